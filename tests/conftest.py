"""Configuration of all tests; with ``TESTS_MUST_NOT_SKIP=1``, as in CI, a skipped test fails.

A test that is skipped because an extra is missing looks green and proves nothing. Only tests of a device that
the machine may lack (``gpu``) may be skipped in CI.
"""

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import settings
from websockets.asyncio.client import connect

from shared.virtual_time import VirtualTimeLoop

_MAX_SHOWN_CHARACTERS = 50_000  # of two values that differ

# A deadline for each example would assert wall time, which fails at random on a busy machine.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# A client gives up a handshake after 10 s otherwise, which a busy machine may take.
connect.__init__.__kwdefaults__["open_timeout"] = 120.0

# A client reads the certificates of all authorities, 55 ms of processor time, which no test needs anew.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)

# Child processes of tests import ``benches`` and ``shared`` as the tests do.
_PATHS = (str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")]))
os.environ["PYTHONPATH"] = os.pathsep.join(_PATHS)

# As ``vivavoce`` sets it before numpy is loaded: more threads take ten times the processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Test processes share the cores. A network of torch in several threads waits for a core at each of its
# operations, and takes up to fifteen times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

T = TypeVar("T")


# Collecting tests makes objects that stay; looking for garbage among them took two fifths of its time.
gc.disable()


@pytest.hookimpl(trylast=True)  # after the marks of folders
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread files with long tests over the others, for ``--no-loadscope-reorder`` of pytest-xdist.

    Side by side they would take each other's processor time. A long file that is begun last is run by one
    process while the others have nothing to do, so none is among the last fifth, and peers come first.
    """
    marked = {
        item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("asr")
    }
    files = dict.fromkeys(item.path for item in items)
    long = sorted(marked, key=lambda path: ("peers" not in path.parts, path))
    places = {path: 0.8 * index * (len(files) / len(long) - 1) for index, path in enumerate(long)}
    places |= {path: index for index, path in enumerate(path for path in files if path not in marked)}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Exempt what pytest has collected from garbage collection: each full one would take a second longer."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def run_virtually() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine on a loop whose time is virtual; ``loop.time`` is the clock to inject."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(coroutine)

    return run


@pytest.fixture(scope="module", autouse=True)
def _objects_of_earlier_modules_are_not_collected() -> None:
    """Collect garbage, and exempt the rest from collection, as the server does before calls.

    In a process that has run thousands of tests, a full collection stops calls for 0.4 to 1 s otherwise.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _engines_are_closed() -> Iterator[None]:
    """Fail a module that leaves an engine open, whose threads slow down and confuse later tests."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("vivavoce-")]
    assert left == [], "an engine was not closed"


@pytest.fixture
def decoded_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode recordings in this process, which is faster; the decoder's tests start processes."""
    from vivavoce.tts_engine.voices.recording_decoder import answer_bytes

    monkeypatch.setattr("vivavoce.tts_engine.voices.recording._decode_in_subprocess", answer_bytes)


def _skips_fail() -> bool:
    return os.environ.get("TESTS_MUST_NOT_SKIP") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    try:
        report = yield
    except SystemError:  # Python before 3.11.8 may refuse to parse a source once (gh-106905)
        report = pytest.TestReport.from_item_and_call(item, call)
    expected_to_fail = hasattr(report, "wasxfail")
    if _skips_fail() and report.skipped and not expected_to_fail and item.get_closest_marker("gpu") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped, which TESTS_MUST_NOT_SKIP forbids: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _skips_fail() and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skipped, which TESTS_MUST_NOT_SKIP forbids: {report.longrepr}"
    return report


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Describe long values, such as samples, by their sizes: pytest's difference of them takes minutes."""
    sizes = len(repr(left)), len(repr(right))
    if sum(sizes) <= _MAX_SHOWN_CHARACTERS:
        return None
    return [f"{type(left).__name__} {op} {type(right).__name__}, of {sizes[0]} and {sizes[1]} characters"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason for skips once, with the number of tests, or of files that are skipped as a whole."""
    skips = (report.longrepr for report in terminalreporter.stats.get("skipped", ()))
    reasons = Counter(skip[2].removeprefix("Skipped: ") for skip in skips if isinstance(skip, tuple))
    if reasons:
        terminalreporter.section("skipped tests and files")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:4}  {reason}")
