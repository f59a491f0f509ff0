"""`vivavoce check-golden`: every case of the folder, known or not, and the exit code."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'")

from vivavoce.gateway.cli.main import main

GOLDEN = Path(__file__).parent / "data"


Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> tuple[object, str]:
    """Exit code, and all that was printed."""
    with pytest.raises(SystemExit) as ended:
        main(["check-golden", *arguments])
    captured = capsys.readouterr()
    return ended.value.code, captured.out + captured.err


def test_every_case_of_the_folder_passes_and_is_shown(capsys: Capture) -> None:
    code, printed = run(capsys, str(GOLDEN), "--json")
    files = {file.stem for file in GOLDEN.iterdir() if file.suffix in (".npz", ".json")}
    cases = json.loads(printed)["cases"]
    assert {row["case"] for row in cases} == {
        case for case in files if not case.startswith(("config", "manifest_"))
    }
    assert [row for row in cases if not row["passed"]] == []
    assert code == 0


def test_a_miss_and_an_unknown_case_end_with_1(tmp_path: Path, capsys: Capture) -> None:
    shutil.copy(GOLDEN / "config.json", tmp_path)
    (tmp_path / "z_unheard_of.npz").write_bytes(b"")
    code, printed = run(capsys, str(tmp_path))
    assert code == 1 and "z_unheard_of" in printed and "UNKNOWN" in printed
    (tmp_path / "z_unheard_of.npz").unlink()
    stated = json.loads((GOLDEN / "v3_silent_filter.json").read_text("utf-8"))
    stated["max_consecutive_kept"] += 1
    (tmp_path / "v3_silent_filter.json").write_text(json.dumps(stated), "utf-8")
    code, printed = run(capsys, str(tmp_path))
    assert code == 1 and "MISSED" in printed


def test_a_folder_without_cases_is_no_success(tmp_path: Path, capsys: Capture) -> None:
    code, printed = run(capsys, str(tmp_path))
    assert code == 1 and "config.json" in printed
    shutil.copy(GOLDEN / "config.json", tmp_path)
    assert run(capsys, str(tmp_path))[0] == 1
