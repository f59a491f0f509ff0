"""The CosyVoice bench: every part gives its figures, and the report has targets and upstream's figures."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from benches import __main__ as benches
from benches.cosyvoice import components
from benches.cosyvoice.components import (
    ComponentBenchSize,
    ComponentPart,
    measure,
    measure_part,
)
from shared.voices.cosyvoice_bundles import write_random_bundle
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure
from vivavoce.tts_engine.backends.voice_kind import CheckedBundle, CheckedFile
from vivavoce.tts_engine.errors import BundleError

SHORT = ComponentBenchSize(contexts=(12, 20), tokens=2, utterances_s=(1.5, 3))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    for version in (2, 3):
        write_random_bundle(folder / str(version), version, "tiny", 7)
    return {version: folder / str(version) for version in (2, 3)}


def names(bundle: Path, part: ComponentPart) -> list[str]:
    figures = list(measure_part(bundle, part, SHORT))
    assert all(math.isfinite(figure.value) for figure in figures)
    assert all(figure.value > 0 for figure in figures if figure.unit not in ("dB", "of mel"))
    return [figure.name for figure in figures]


@pytest.mark.parametrize("version", [2, 3])
def test_the_language_model_is_timed_at_every_context(bundles: dict[int, Path], version: int) -> None:
    assert names(bundles[version], ComponentPart.LM) == [
        name
        for context in (12, 20)
        for name in (
            f"LM decode, context {context}",
            f"LM decode, context {context}, by the clock",
            f"LM prefill, context {context}",
        )
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_the_flow_is_timed_chunk_by_chunk(bundles: dict[int, Path], version: int) -> None:
    measured = names(bundles[version], ComponentPart.FLOW)
    assert [name for name in measured if name.startswith("flow, 3 s, chunk")] == [
        "flow, 3 s, chunk 1 (1 s)",
        "flow, 3 s, chunk 2 (2 s)",
    ]
    assert "flow, 3 s, total" in measured and "flow, 3 s, last second against first" in measured


def test_a_window_longer_than_the_utterance_is_exact(bundles: dict[int, Path]) -> None:
    figures = {figure.name: figure for figure in measure_part(bundles[2], ComponentPart.WINDOW, SHORT)}
    assert figures["flow, 3 s, window 10 s, from exact, largest"].value < 1e-4
    assert figures["flow, 3 s, window 10 s, from exact, rms"].value < -80


@pytest.mark.parametrize("version", [2, 3])
def test_the_vocoder_is_timed(bundles: dict[int, Path], version: int) -> None:
    assert names(bundles[version], ComponentPart.HIFT)[0] == "HiFT, 1.5 s, RTF"


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_the_first_packet_is_timed_through_the_engine(bundles: dict[int, Path], version: int) -> None:
    assert names(bundles[version], ComponentPart.FIRST_AUDIO) == [
        "first packet, 4 s of text",
        "first packet, 4 s of text, by the clock",
        "RTF, end to end, by the clock",
    ]


@pytest.mark.slow
def test_targets_stand_beside_the_figures_of_the_full_run(bundles: dict[int, Path]) -> None:
    size = ComponentBenchSize(contexts=(120,), tokens=1, utterances_s=(30,))
    parts = (ComponentPart.LM, ComponentPart.FLOW, ComponentPart.FIRST_AUDIO, ComponentPart.MEMORY)
    figures = [figure for part in parts for figure in measure_part(bundles[2], part, size)]
    assert {figure.name: figure.at_most for figure in figures if figure.at_most is not None} == {
        "LM decode, context 120": 76,
        "flow, 30 s, total": 80,
        "flow, 30 s, last second against first": 2.7,
        "first packet, 4 s of text": 5,
        "first packet, 4 s of text, by the clock": 5,
        "peak RSS, three networks, without flow state": 3.3,
    }
    assert all(figure.at_least is None for figure in figures)


@pytest.fixture
def pretend_measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[BenchFigure], int], None]:
    """Replaces the measurement by given figures of a bundle of the released size."""

    def pretend(figures: list[BenchFigure], version: int) -> None:
        checked = CheckedBundle(version, ("en",), (CheckedFile("llm.pt", 2 * 10**9, ""),), "CosyVoice")
        monkeypatch.setattr(components, "check_bundle", lambda folder: checked)
        monkeypatch.setattr(components, "measure_in_process", lambda module, folder, part: figures)

    return pretend


def test_the_released_size_has_targets_and_upstreams_figures(
    pretend_measured: Callable[[list[BenchFigure], int], None],
) -> None:
    figures = [
        BenchFigure("LM decode, context 120", 60.0, "ms/token", at_most=76),
        BenchFigure("flow, 30 s, total", 81.0, "s", at_most=80),
        BenchFigure("LM prefill, context 120", 0.5, "s"),
    ]
    pretend_measured(figures, 2)
    report = measure(["lm"], BenchWeights(Path("release")))
    assert [figure.reached for figure in report.figures[:3]] == [True, False, None]
    assert {figure.name for figure in report.figures[3:]} >= {"upstream: LM decode, context 120"}
    pretend_measured(figures, 3)
    assert all(figure.reached is None for figure in measure(["lm"], BenchWeights(Path("release"))).figures)


@pytest.mark.slow
def test_a_part_runs_in_its_own_process_and_is_printed_as_json(bundles: dict[int, Path]) -> None:
    arguments = ["cosyvoice", "--bundle", str(bundles[3]), "--parts", "memory", "--json"]
    result = CliRunner().invoke(benches.bench_group, arguments)
    report = json.loads(result.stdout)
    assert report["settings"]["version"] == 3
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert 0.1 < figures["peak RSS, three networks, without flow state"]["value"] < 2
    assert figures["flow state, exact"]["unit"] == "MB/s of speech"
    assert all(figure["reached"] is None for figure in figures.values())


def test_an_invalid_bundle_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no cosyvoice2\.yaml"):
        measure(["lm"], BenchWeights(tmp_path))


def test_the_error_of_a_failed_process_is_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match=r"lm: .*no such folder"):
        components.measure_in_process(components.MODULE, tmp_path / "gone", ComponentPart.LM)


def test_an_unknown_part_is_refused_in_one_sentence() -> None:
    result = CliRunner().invoke(benches.bench_group, ["cosyvoice", "--parts", "lm,cat"])
    assert result.exit_code == 2
    assert "got 'cat'; allowed are lm, flow" in result.stderr
    assert list(benches.COSYVOICE_PARTS) == list(ComponentPart)
