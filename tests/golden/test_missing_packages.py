"""The golden check without the packages that it needs; runs without torch too."""

import subprocess
import sys
from pathlib import Path

import pytest

from vivavoce.tts_engine.packaging.installation import install_command

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("package", ["torch", "wetext"])
def test_a_missing_package_is_one_sentence_before_the_table(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from golden.__main__ import check_golden\n"
        f"check_golden([{str(DATA)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert package in done.stderr and install_command("cosyvoice") in done.stderr
    assert done.stderr.count("\n") == 1
