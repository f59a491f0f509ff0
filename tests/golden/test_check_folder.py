"""``python -m golden``: every case of a folder is shown, known or not, and the exit code is the verdict."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from golden.__main__ import check_golden

DATA = Path(__file__).parent / "data"


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and everything printed."""
    result = CliRunner().invoke(check_golden, arguments)
    return result.exit_code, result.output


def test_every_case_of_the_folder_passes_and_is_shown() -> None:
    code, printed = run(str(DATA), "--json")
    files = {file.stem for file in DATA.iterdir() if file.suffix in (".npz", ".json")}
    cases = json.loads(printed)["cases"]
    assert {row["case"] for row in cases} == {
        case for case in files if not case.startswith(("config", "manifest_"))
    }
    assert [row for row in cases if not row["passed"]] == []
    assert code == 0


def test_a_failure_and_an_unknown_case_exit_with_1(tmp_path: Path) -> None:
    shutil.copy(DATA / "config.json", tmp_path)
    (tmp_path / "z_unknown.npz").write_bytes(b"")
    code, printed = run(str(tmp_path))
    assert code == 1 and "z_unknown" in printed and "UNKNOWN" in printed
    (tmp_path / "z_unknown.npz").unlink()
    stated = json.loads((DATA / "v3_silent_filter.json").read_text("utf-8"))
    stated["max_consecutive_kept"] += 1
    (tmp_path / "v3_silent_filter.json").write_text(json.dumps(stated), "utf-8")
    code, printed = run(str(tmp_path))
    assert code == 1 and "FAIL" in printed


def test_a_folder_without_cases_exits_with_1(tmp_path: Path) -> None:
    code, printed = run(str(tmp_path))
    assert code == 1 and "config.json" in printed
    shutil.copy(DATA / "config.json", tmp_path)
    assert run(str(tmp_path))[0] == 1
