"""What tests of every folder share; with ``TESTS_MUST_NOT_SKIP=1``, as in CI, a skipped test is a failed one.

A test that is skipped for want of an extra looks green while it proves nothing. Only tests that need a device
that the machine may lack (``gpu``) are allowed to be skipped there.
"""

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

# A deadline for each example is a wall-time assertion, which a busy machine fails at random.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests of many small steps, in which threads of torch's are in each other's way."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _skips_fail() -> bool:
    return os.environ.get("TESTS_MUST_NOT_SKIP") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_to_fail = hasattr(report, "wasxfail")
    if _skips_fail() and report.skipped and not expected_to_fail and item.get_closest_marker("gpu") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _skips_fail() and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skipped, where nothing may be: {report.longrepr}"
    return report
