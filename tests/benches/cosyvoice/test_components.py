"""The CosyVoice bench: every part gives its figures; the report holds them against targets and upstream."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'")

from benches.cosyvoice import components
from benches.cosyvoice.component_timings import MeasuredPart, MeasurementSize, measure_part
from benches.cosyvoice.components import measure
from vivavoce.gateway.cli import main
from vivavoce.gateway.cli.bench import commands
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights
from vivavoce.gateway.cli.bench.report import BenchFailed
from vivavoce.tts_engine.bundles import CheckedBundle, CheckedFile, write_random_bundle
from vivavoce.tts_engine.cosyvoice.device_timings import Measurement
from vivavoce.tts_engine.errors import BundleError

SHORT = MeasurementSize(contexts=(12, 20), tokens=2, utterances_s=(1.5, 3))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    for version in (2, 3):
        write_random_bundle(folder / str(version), version, "tiny", 7)
    return {version: folder / str(version) for version in (2, 3)}


def names(bundle: Path, part: MeasuredPart) -> list[str]:
    measured = list(measure_part(bundle, part, SHORT))
    assert all(math.isfinite(one.value) for one in measured)
    assert all(one.value > 0 for one in measured if one.unit != "dB" and one.unit != "of mel")
    return [one.name for one in measured]


@pytest.mark.parametrize("version", [2, 3])
def test_the_language_model_is_timed_at_every_context(bundles: dict[int, Path], version: int) -> None:
    assert names(bundles[version], MeasuredPart.LM) == [
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
    told = names(bundles[version], MeasuredPart.FLOW)
    assert [name for name in told if name.startswith("flow, 3 s, chunk")] == [
        "flow, 3 s, chunk 1 (1 s)",
        "flow, 3 s, chunk 2 (2 s)",
    ]
    assert "flow, 3 s, total" in told and "flow, 3 s, last second against first" in told


def test_a_window_that_holds_everything_is_exact(bundles: dict[int, Path]) -> None:
    figures = {one.name: one for one in measure_part(bundles[2], MeasuredPart.WINDOW, SHORT)}
    assert figures["flow, 3 s, window 10 s, from exact, largest"].value < 1e-4
    assert figures["flow, 3 s, window 10 s, from exact, rms"].value < -80


@pytest.mark.parametrize("version", [2, 3])
def test_the_vocoder_is_timed(bundles: dict[int, Path], version: int) -> None:
    assert names(bundles[version], MeasuredPart.HIFT)[0] == "HiFT, 1.5 s, RTF"


@pytest.mark.parametrize("version", [2, 3])
def test_the_first_packet_is_timed_through_the_engine(bundles: dict[int, Path], version: int) -> None:
    assert names(bundles[version], MeasuredPart.FIRST_AUDIO) == [
        "first packet, 4 s of text",
        "first packet, 4 s of text, by the clock",
        "RTF, end to end, by the clock",
    ]


@pytest.fixture
def measured_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Measurement], int], None]:
    """The report of a released bundle of which these figures were measured."""

    def pretend(figures: list[Measurement], version: int) -> None:
        checked = CheckedBundle(version, ("en",), (CheckedFile("llm.pt", 2 * 10**9, ""),))
        monkeypatch.setattr(components, "check_bundle", lambda folder: checked)
        monkeypatch.setattr(components, "measure_in_process", lambda module, folder, part: figures)

    return pretend


def test_released_sizes_have_targets_and_upstream_beside_them(
    measured_as: Callable[[list[Measurement], int], None],
) -> None:
    figures = [
        Measurement("LM decode, context 120", 60.0, "ms/token"),
        Measurement("flow, 30 s, total", 81.0, "s"),
        Measurement("LM prefill, context 120", 0.5, "s"),
    ]
    measured_as(figures, 2)
    report = measure(["lm"], BenchWeights(Path("release")))
    assert [figure.reached for figure in report.figures[:3]] == [True, False, None]
    assert {figure.name for figure in report.figures[3:]} >= {"upstream: LM decode, context 120"}
    measured_as(figures, 3)
    assert all(figure.reached is None for figure in measure(["lm"], BenchWeights(Path("release"))).figures)


def test_every_target_is_of_a_figure_that_is_measured() -> None:
    """The names of the full run, without running it."""
    first = "first packet, 4 s of text"
    told = {first, f"{first}, by the clock", "peak RSS, three networks, without flow state"}
    told |= {f"LM decode, context {context}" for context in MeasurementSize().contexts}
    for seconds in MeasurementSize().utterances_s:
        for name in (f"flow, {seconds:g} s", f"flow, {seconds:g} s, window 10 s"):
            told |= {f"{name}, total", f"{name}, last second against first"}
    assert set(components._TARGETS.at_most) <= told


def test_a_part_runs_in_a_process_of_its_own_and_becomes_json(
    bundles: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main.main(["bench", "cosyvoice", "--bundle", str(bundles[3]), "--parts", "memory", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["version"] == 3
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert 0.1 < figures["peak RSS, three networks, without flow state"]["value"] < 2
    assert figures["flow state, exact"]["unit"] == "MB/s of speech"
    assert all(figure["reached"] is None for figure in figures.values())


def test_a_bundle_that_is_none_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no cosyvoice2\.yaml"):
        measure(["lm"], BenchWeights(tmp_path))


def test_a_process_that_fails_leaves_its_last_word(bundles: dict[int, Path], tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match=r"lm: .*no such folder"):
        components.measure_in_process(components._MODULE, tmp_path / "gone", MeasuredPart.LM)


def test_a_part_that_there_is_not_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main.main(["bench", "cosyvoice", "--parts", "lm,cat"])
    assert "'cat' is none of lm, flow" in capsys.readouterr().err
    assert list(commands._COSYVOICE_PARTS) == list(MeasuredPart)
