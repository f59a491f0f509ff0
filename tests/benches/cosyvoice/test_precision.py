"""The precision bench: every precision gives its figures, beside fp32's; the report holds targets to them."""

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'")

from benches.cosyvoice import precision as bench
from benches.cosyvoice.precision_timings import PrecisionTrialSize, measure_precision
from vivavoce.gateway.cli import main
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights
from vivavoce.gateway.cli.bench.report import BenchFailed
from vivavoce.tts_engine.bundles import CheckedBundle, CheckedFile, write_random_bundle
from vivavoce.tts_engine.cosyvoice.device_timings import Measurement
from vivavoce.tts_engine.errors import BundleError

LITTLE = PrecisionTrialSize(tokens=2, positions=20)
OF_ALL = ("matrices", "8 sessions at once", "8 one after another", "at once against one after another")
BESIDE_FP32 = (
    "a token",
    "fp32 beside it",
    "a token against fp32",
    "a token by the clock",
    "fp32 beside it by the clock",
    "a token against fp32 by the clock",
    "mean KL to fp32",
    "likeliest id as fp32's where it leads by 0.1",
    "positions where it leads by 0.1",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "tiny"
    write_random_bundle(path, 2, "tiny", 7)
    return path


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "int8"])
def test_a_precision_has_its_figures(folder: Path, precision: str) -> None:
    measured = {one.name: one.value for one in measure_precision(folder, precision, LITTLE)}
    names = OF_ALL if precision == "fp32" else OF_ALL + BESIDE_FP32
    assert list(measured) == [f"{precision}, {name}" for name in names]
    assert all(math.isfinite(value) and value >= 0 for value in measured.values())


def test_a_precision_takes_the_memory_that_its_name_says(folder: Path) -> None:
    held = {
        precision: next(measure_precision(folder, precision, LITTLE)).value
        for precision in ("fp32", "bf16", "int8")
    }
    assert held["bf16"] == pytest.approx(held["fp32"] / 2)
    # Of two layers the first keeps 16 bits.
    assert held["fp32"] / 4 < held["int8"] < held["fp32"] / 2


def test_it_runs_in_a_process_of_its_own_and_becomes_json(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main.main(["bench", "precision", "--bundle", str(folder), "--precision", "int8", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["weights"] == "of the bundle"
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert list(figures) == [f"int8, {name}" for name in OF_ALL + BESIDE_FP32]
    assert all(figure["reached"] is None for figure in figures.values())


def test_released_sizes_have_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = CheckedBundle(2, ("en",), (CheckedFile("llm.pt", 2 * 10**9, ""),))
    figures = [
        Measurement("int8, a token against fp32", 0.45, "x"),
        Measurement("int8, mean KL to fp32", 0.02, "nats"),
        Measurement("fp32, at once against one after another", 4.5, "x"),
        Measurement("bf16, likeliest id as fp32's where it leads by 0.1", 98.9, "%"),
        Measurement("int8, matrices", 389, "MB"),
    ]
    monkeypatch.setattr(bench, "check_bundle", lambda folder: checked)
    monkeypatch.setattr(bench, "measure_in_process", lambda module, folder, part: figures)
    told = bench.measure(["int8"], BenchWeights(Path("release"))).figures
    assert [figure.reached for figure in told] == [True, False, True, False, None]


def test_every_target_is_of_a_figure_that_is_measured() -> None:
    told = {f"fp32, {name}" for name in OF_ALL}
    told |= {f"{precision}, {name}" for precision in ("bf16", "int8") for name in BESIDE_FP32}
    assert bench._TARGETS.at_most.keys() | bench._TARGETS.at_least.keys() <= told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--precision", "half"], "'half' is not one of 'fp32', 'bf16', 'fp16', 'int8'"),
        (["--bundle", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["bench", "precision", *arguments])
    said = capsys.readouterr()
    assert end.value.code and sentence in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_process_says_why_it_has_no_figures(folder: Path) -> None:
    with pytest.raises(BenchFailed, match="int4: precision is 'int4'; it must be fp32, bf16, fp16, int8"):
        bench.measure_in_process(bench._MODULE, folder, "int4")
    with pytest.raises(BundleError, match="nowhere"):
        next(measure_precision(Path("nowhere"), "int8"))
