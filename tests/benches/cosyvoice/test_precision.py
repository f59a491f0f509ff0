"""The precision bench: every precision gives its figures beside those of fp32, with targets."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from benches import __main__ as benches  # noqa: E402
from benches.cosyvoice import precision as bench  # noqa: E402
from benches.cosyvoice.precision import PrecisionBenchSize, measure_precision  # noqa: E402
from shared.runtimes.logit_error import LogitError, logit_error  # noqa: E402
from shared.voices.cosyvoice_bundles import write_random_bundle  # noqa: E402
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights  # noqa: E402
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure  # noqa: E402
from vivavoce.tts_engine.backends.voice_kind import CheckedBundle, CheckedFile  # noqa: E402
from vivavoce.tts_engine.errors import BundleError  # noqa: E402

SMALL = PrecisionBenchSize(tokens=2, positions=20)
PRECISIONS = ("fp32", "bf16", "fp16", "int8")
OF_ALL = (
    "matrices",
    "memory",
    "8 sessions at once",
    "8 one after another",
    "at once against one after another",
)
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


@pytest.fixture(scope="module")
def figures_of(folder: Path) -> dict[str, list[BenchFigure]]:
    """The figures of each precision."""
    return {each: list(measure_precision(folder, each, SMALL)) for each in PRECISIONS}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_precision_has_its_figures(figures_of: dict[str, list[BenchFigure]], precision: str) -> None:
    measured = {figure.name: figure.value for figure in figures_of[precision]}
    names = OF_ALL if precision == "fp32" else OF_ALL + BESIDE_FP32
    assert list(measured) == [f"{precision}, {name}" for name in names]
    assert all(math.isfinite(value) for value in measured.values())
    # What is freed meanwhile can exceed a tiny network, so memory may be below zero.
    assert all(value >= 0 for name, value in measured.items() if not name.endswith("memory"))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8", "int4", "int4-int8"])
def test_onnxruntime_is_measured_beside_torch(folder: Path, precision: str) -> None:
    part = f"onnxruntime {precision}"
    report = bench.measure([precision], BenchWeights(folder), "onnxruntime")
    measured = {figure.name.removeprefix(f"{part}, "): figure.value for figure in report.figures}
    beside_torch = [f"torch {name} beside it" for name in ("fp32", "bf16", "int8")]
    of_flow = ["error of the mel"] if precision == "int4-int8" else []
    ratio = "a token against torch's fastest"
    assert list(measured) == [*OF_ALL, *beside_torch, ratio, *BESIDE_FP32, *of_flow]
    assert all(math.isfinite(value) for value in measured.values())
    assert measured["mean KL to fp32"] < {"fp32": 1e-6, "int8": 0.01, "int4": 2, "int4-int8": 2}[precision]


def test_targets_stand_beside_the_figures(figures_of: dict[str, list[BenchFigure]]) -> None:
    figures = [figure for each in PRECISIONS for figure in figures_of[each]]
    assert {figure.name: figure.at_most for figure in figures if figure.at_most is not None} == {
        "int8, a token against fp32": 0.5,
        "int8, mean KL to fp32": 0.01,
        "bf16, mean KL to fp32": 0.01,
    }
    assert {figure.name: figure.at_least for figure in figures if figure.at_least is not None} == {
        "fp32, at once against one after another": 3,
        "int8, likeliest id as fp32's where it leads by 0.1": 99,
        "bf16, likeliest id as fp32's where it leads by 0.1": 99,
    }


def test_a_precision_takes_the_memory_of_its_number_format(figures_of: dict[str, list[BenchFigure]]) -> None:
    matrices_mb = {precision: figures_of[precision][0].value for precision in PRECISIONS}
    assert matrices_mb["bf16"] == pytest.approx(matrices_mb["fp32"] / 2)
    # The first of two layers keeps 16 bits.
    assert matrices_mb["fp32"] / 4 < matrices_mb["int8"] < matrices_mb["fp32"] / 2


@pytest.mark.slow
def test_a_precision_runs_in_its_own_process_and_is_printed_as_json(folder: Path) -> None:
    arguments = ["precision", "--bundle", str(folder), "--precision", "int8", "--json"]
    report = json.loads(CliRunner().invoke(benches.bench_group, arguments).stdout)
    assert report["settings"]["weights"] == "of the bundle"
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert list(figures) == [f"int8, {name}" for name in OF_ALL + BESIDE_FP32]
    assert all(figure["reached"] is None for figure in figures.values())


def test_targets_apply_to_the_released_size(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [
        BenchFigure("int8, a token against fp32", 0.45, "x", at_most=0.5),
        BenchFigure("int8, mean KL to fp32", 0.02, "nats", at_most=0.01),
        BenchFigure("fp32, at once against one after another", 4.5, "x", at_least=3),
        BenchFigure("bf16, likeliest id as fp32's where it leads by 0.1", 98.9, "%", at_least=99),
        BenchFigure("int8, matrices", 389, "MB"),
    ]
    monkeypatch.setattr(bench, "measure_in_process", lambda module, folder, part: figures)
    for size_bytes, reached in ((2 * 10**9, [True, False, True, False, None]), (1000, [None] * 5)):
        checked = CheckedBundle(2, ("en",), (CheckedFile("llm.pt", size_bytes, ""),), "CosyVoice")
        monkeypatch.setattr(bench, "check_bundle", lambda folder, checked=checked: checked)
        report = bench.measure(["int8"], BenchWeights(Path("release")))
        assert [figure.reached for figure in report.figures] == reached


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--precision", "half"], "'half' is not one of 'auto', 'fp32', "),
        (["--bundle", "nowhere"], "nowhere"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(benches.bench_group, ["precision", *arguments])
    assert result.exit_code and sentence in result.stderr
    assert result.stdout == ""


def test_the_error_of_a_failed_process_is_its_last_line(folder: Path) -> None:
    with pytest.raises(BenchFailed, match="half: precision is 'half'; it must be auto, fp32, "):
        bench.measure_in_process(bench.MODULE, folder, "half")
    with pytest.raises(BundleError, match="nowhere"):
        next(measure_precision(Path("nowhere"), "int8"))


def test_identical_distributions_have_no_error() -> None:
    logits = 5 * torch.randn(10, 30, generator=torch.Generator().manual_seed(1))
    error = logit_error(logits, logits)
    assert (error.kl, error.agreement) == (0, 1)
    assert logit_error(-logits, logits).agreement < 0.5


@pytest.mark.parametrize(
    ("error", "is_small"),
    [
        (LogitError(kl=0.01, agreement=0.99, certain=100), True),
        (LogitError(kl=0.0101, agreement=1.0, certain=100), False),
        (LogitError(kl=0.0, agreement=0.98, certain=100), False),
        (LogitError(kl=0.0, agreement=1.0, certain=0), False),
    ],
)
def test_a_precision_may_be_a_default_within_both_bounds(error: LogitError, is_small: bool) -> None:
    assert error.is_small is is_small
