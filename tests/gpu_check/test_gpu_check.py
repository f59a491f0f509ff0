"""The check of a card: resumed, bounded in time, each line kept; on a processor every step runs."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from gpu_check.__main__ import STEPS, main
from gpu_check.chart import draw_chart
from gpu_check.findings import Finding
from gpu_check.schedule import DONE, FAILED, TIMED_OUT, CheckStep, read_results, run_steps

_PRINT = "import json; print(json.dumps({{'name': '{}', 'value': 1.5, 'unit': 's'}}), flush=True)"
_PROGRAMS = {
    "good": _PRINT.format("good"),
    "broken": _PRINT.format("begun") + "; raise SystemExit(3)",
    "endless": _PRINT.format("begun") + "; import time; time.sleep(600)",
}


def command(name: str) -> list[str]:
    return [sys.executable, "-c", _PROGRAMS[name]]


def test_lines_are_shown_as_they_are_known_and_kept(tmp_path: Path) -> None:
    shown: list[str] = []
    steps = [CheckStep("good", 60), CheckStep("broken", 60), CheckStep("endless", 3)]
    results = run_steps(steps, command, tmp_path, shown.append)
    assert {name: result.status for name, result in results.items()} == {
        "good": DONE,
        "broken": FAILED,
        "endless": TIMED_OUT,
    }
    assert "  good: 1.5 s" in shown and shown.count("  begun: 1.5 s") == 2
    assert read_results(tmp_path) == results


def test_a_check_goes_on_with_what_is_not_done(tmp_path: Path) -> None:
    run_steps([CheckStep("good", 60), CheckStep("broken", 60)], command, tmp_path, lambda line: None)
    asked: list[str] = []

    def repaired(name: str) -> list[str]:
        asked.append(name)
        return command("good")

    results = run_steps(
        [CheckStep("good", 60), CheckStep("broken", 60)], repaired, tmp_path, lambda line: None
    )
    assert asked == ["broken"]
    assert all(result.status == DONE for result in results.values())


def test_the_steps_end_within_25_minutes() -> None:
    assert sum(step.limit_s for step in STEPS) < 25 * 60


def test_a_chart_is_drawn_or_the_reason_is_given(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "chart.png"
    assert draw_chart([Finding("torch", "2.11")], path).endswith("no stream was measured")
    names = ("first audio, p50", "first audio, p95", "audio seconds a second")
    found = [Finding(f"{count} streams, {name}", count) for count in (2, 4) for name in names]
    assert draw_chart(found, path).endswith("drawn")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_every_step_runs_on_a_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = main(["--out", str(tmp_path), "--device", "cpu", "--quick"])
    shown = capsys.readouterr().out
    results = json.loads((tmp_path / "gpu-check.json").read_text())
    assert {name: result["status"] for name, result in results.items()} == dict.fromkeys(
        (step.name for step in STEPS), DONE
    ), shown
    assert exit_code == 0
    found = {each["name"]: each["value"] for result in results.values() for each in result["findings"]}
    exact = [name for name in found if name.startswith("float32, ")]
    assert len(exact) == 6 and all("(within" in name for name in exact)
    assert found["ids of graphs that differ from those without"] == 0
    assert found["mel of graphs from that without, largest"] < 0.01
    assert found["ids at once that differ from alone"] == 0
    assert found["mel at once from alone, largest"] == 0
    assert found["2 streams, refused"] == 0
    assert found["speaks afterwards"] > 0
