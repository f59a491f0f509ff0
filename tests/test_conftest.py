"""The conftest turns skips into failures in CI only; checked in separate pytest processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
SKIPPED_IN_A_TEST = "import pytest\ndef test_it():\n    pytest.skip('no extra')\n"
TESTS = {
    **{f"test_skipped_{number}.py": SKIPPED_IN_A_TEST for number in range(3)},
    "test_skipped_at_import.py": "import pytest\npytest.importorskip('no_such_package')\n",
    "test_device.py": "import pytest\n@pytest.mark.gpu\ndef test_it():\n    pytest.skip('no GPU')\n",
    "test_expected.py": "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n",
    "test_passed.py": "def test_it():\n    pass\n",
}


def run_pytest(folder: Path, *, must_not_skip: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: device\n", encoding="utf-8")
    for name, test in TESTS.items():
        (folder / name).write_text(test, encoding="utf-8")
    options = ["-q", "-rfE", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        env=os.environ | {"TESTS_MUST_NOT_SKIP": must_not_skip},
        capture_output=True,
        text=True,
        cwd=folder,
    )


def test_skips_but_those_for_want_of_a_device_are_failures_where_nothing_may_be_skipped(
    tmp_path: Path,
) -> None:
    done = run_pytest(tmp_path, must_not_skip="1")
    failed = set(re.findall(r"^(?:FAILED|ERROR) (\w+\.py)", done.stdout, re.MULTILINE))
    assert done.returncode == 1
    assert failed == {name for name in TESTS if name.startswith("test_skipped_")}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    return run_pytest(tmp_path_factory.mktemp("tests"), must_not_skip="")


def test_a_skip_is_a_skip_elsewhere(elsewhere: "subprocess.CompletedProcess[str]") -> None:
    assert elsewhere.returncode == 0
    assert "1 passed, 5 skipped, 1 xfailed" in elsewhere.stdout


def test_the_end_of_a_run_names_each_reason_for_skips_once(
    elsewhere: "subprocess.CompletedProcess[str]",
) -> None:
    assert "   3  no extra\n" in elsewhere.stdout
    assert "   1  could not import 'no_such_package'" in elsewhere.stdout
