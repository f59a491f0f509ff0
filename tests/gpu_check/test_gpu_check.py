"""The check of a card: resumed, bounded in time, each line kept; on a processor every step runs."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from gpu_check.__main__ import FIRST_STEPS, STEPS, main
from gpu_check.chart import draw_chart
from gpu_check.findings import Finding
from gpu_check.schedule import DONE, FAILED, TIMED_OUT, CheckStep, read_results, run_steps
from gpu_check.steps.first_hop import PARTS, TracedStep, first_hop_findings, first_hop_parts
from gpu_check.steps.replays import covered
from gpu_check.table import first_hop_table

from vivavoce.tts_engine.backends.base import Stage

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


def test_the_steps_end_within_12_minutes_and_the_first_of_them_within_6() -> None:
    assert sum(step.limit_s for step in STEPS) <= 12 * 60
    assert sum(step.limit_s for step in FIRST_STEPS) <= 6 * 60


def test_the_parts_of_a_first_hop_add_up_to_its_first_audio() -> None:
    others = TracedStep(Stage.DECODE, frozenset({2}), 10.0, 14.0)
    steps = [
        others,
        TracedStep(Stage.DECODE, frozenset({1, 2}), 14.0, 16.0),
        TracedStep(Stage.RENDER, frozenset({1}), 17.0, 21.0, {"flow": 2.0, "noise": 0.5}),
        TracedStep(Stage.RENDER, frozenset({1}), 21.0, 23.0, {"flow": 0.5, "vocoder": 1.0}),
        TracedStep(Stage.DECODE, frozenset({1}), 23.0, 23.5),  # of the next chunk
        TracedStep(Stage.RENDER, frozenset({1}), 24.0, 26.0, {"flow": 2.0}),
    ]
    parts = first_hop_parts(steps, slot=1, pushed_at=9.0, read_at=9.5, heard_at=24.0)
    assert parts == {
        "text": 0.5,
        "wait": 5.5,
        "ids": 2.0,
        "flow": 2.5,
        "noise": 0.5,
        "vocoder": 1.0,
        "host": 3.0,
    }
    assert sum(parts.values()) == 24.0 - 9.0


def test_a_line_of_the_table_is_a_load() -> None:
    streams = [dict.fromkeys(PARTS, 0.002), dict.fromkeys(PARTS, 0.004)]
    lines = [*first_hop_table([*first_hop_findings("2 streams", streams), Finding("torch", "2.11")])]
    assert lines[0].split() == ["first", "hop,", "ms", *PARTS, "all"]
    assert lines[1].split() == ["2", "streams", *["3.0"] * 7, "21.0"]
    assert lines[2].split() == ["2", "streams,", "slowest", *["4.0"] * 7, "28.0"]
    assert not [*first_hop_table([Finding("torch", "2.11")])]


def test_kernels_that_run_at_once_count_once() -> None:
    assert covered([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.75)]) == 4.0


def test_a_chart_is_drawn_or_the_reason_is_given(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "chart.png"
    assert draw_chart([Finding("torch", "2.11")], path).endswith("no stream was measured")
    names = ("first audio, p50", "first audio, p95", "audio seconds a second")
    found = [Finding(f"{count} streams, {name}", count) for count in (2, 4) for name in names]
    assert draw_chart(found, path).endswith("drawn")
    assert path.read_bytes().startswith(b"\x89PNG")


# What a machine that is lent with a card has, and what these packages need.
_MACHINE = (
    "torch torchgen functorch triton numpy numpy.libs safetensors tokenizers onnx onnxruntime yaml _yaml "
    "sympy mpmath networkx jinja2 markupsafe filelock fsspec typing_extensions.py ml_dtypes flatbuffers "
    "google packaging"
).split()


@pytest.fixture
def machine_packages(tmp_path: Path) -> Path:
    """A folder with links to the packages of such a machine, and to no others."""
    folder, installed = tmp_path / "packages", Path(sysconfig.get_path("platlib"))
    folder.mkdir()
    for name in _MACHINE:
        if (installed / name).exists():
            (folder / name).symlink_to(installed / name)
    for name in ("torch", "numpy", "onnxruntime"):
        for metadata in installed.glob(f"{name}-*.dist-info"):
            (folder / metadata.name).symlink_to(metadata)
    return folder


@pytest.mark.slow
def test_what_decides_most_needs_no_package_that_a_machine_with_a_card_lacks(
    tmp_path: Path, machine_packages: Path
) -> None:
    root = Path(__file__).parents[2]
    folders = (machine_packages, root / "tests", root / ".links")
    without_site = [sys.executable, "-S", "-m", "gpu_check.steps"]
    for name in (*(step.name for step in FIRST_STEPS), "xtts"):
        done = subprocess.run(
            [*without_site, name, str(tmp_path / "out"), "--device", "cpu", "--quick"],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, folders))},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    absent = subprocess.run(
        [sys.executable, "-S", "-c", "import av"],
        env={"PYTHONPATH": str(machine_packages)},
        capture_output=True,
        text=True,
    )
    assert "No module named 'av'" in absent.stderr


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
    assert found["3 streams, asked for, audio seconds a second"] == 3
    assert found["2 listeners in a closed loop, audio seconds a second"] > 0
    assert found["4 tokens, 1 row, operations"] > 0
    assert found["XTTS, latents of 4 rows from torch's, largest"] == 0
    assert found["XTTS, 2 streams, audio seconds a second"] > 0
    parts = [found[f"first hop, 1 stream, {part}"] for part in PARTS]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(found["first hop, 1 stream, all"])
    assert "first hop, ms" in shown
    assert found["speaks afterwards"] > 0
