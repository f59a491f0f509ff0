"""The conftest turns skips into failures in CI only; checked in a separate pytest process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
SKIPPED_IN_A_TEST = "import pytest\ndef test_it():\n    pytest.skip('no extra')\n"
SKIPPED_AT_IMPORT = "import pytest\npytest.importorskip('no_such_package')\n"
SKIPPED_FOR_WANT_OF_A_DEVICE = "import pytest\n@pytest.mark.gpu\ndef test_it():\n    pytest.skip('no GPU')\n"
EXPECTED_TO_FAIL = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"


def exit_code(folder: Path, test: str, *, must_not_skip: str) -> int:
    return run_pytest(folder, test, must_not_skip=must_not_skip).returncode


def run_pytest(folder: Path, test: str, *, must_not_skip: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: device\n", encoding="utf-8")
    (folder / "test_one.py").write_text(f"{test}\ndef test_another():\n    pass\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        env=os.environ | {"TESTS_MUST_NOT_SKIP": must_not_skip},
        capture_output=True,
        text=True,
        cwd=folder,
    )


@pytest.mark.parametrize("test", [SKIPPED_IN_A_TEST, SKIPPED_AT_IMPORT])
def test_a_skip_is_a_failure_where_nothing_may_be_skipped(tmp_path: Path, test: str) -> None:
    assert exit_code(tmp_path, test, must_not_skip="1") in (1, 2)


@pytest.mark.parametrize("test", [SKIPPED_FOR_WANT_OF_A_DEVICE, EXPECTED_TO_FAIL])
def test_a_missing_device_and_an_expected_failure_stay_green(tmp_path: Path, test: str) -> None:
    assert exit_code(tmp_path, test, must_not_skip="1") == 0


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    assert exit_code(tmp_path, SKIPPED_IN_A_TEST, must_not_skip="") == 0


def test_the_end_of_a_run_names_each_reason_for_skips_once(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"test_skipped_{number}.py").write_text(SKIPPED_IN_A_TEST, encoding="utf-8")
    printed = run_pytest(tmp_path, SKIPPED_AT_IMPORT, must_not_skip="").stdout
    assert "   3  no extra\n" in printed
    assert "   1  could not import 'no_such_package'" in printed
