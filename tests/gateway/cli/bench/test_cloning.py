"""The cloning scenarios of the serve bench, against a server of tones that keeps voices."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benches.cosyvoice.upstream_scenarios import upstream_figures
from shared.served_apis import TIMEOUT_S, serve_every_api
from shared.training.recorded_voice import wav
from vivavoce.gateway.cli.bench import processes, serve
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.requests.cloning import (
    SCENARIO_TEXTS,
    CloningScenario,
    Reference,
    ScenarioLoad,
    scenario_figures,
)
from vivavoce.gateway.cli.main import main
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.cosyvoice import policy
from vivavoce.tts_engine.voices.recording import read_recording
from vivavoce.tts_engine.voices.store import VoiceStore

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

NOISE = np.random.default_rng(1).integers(-9_000, 9_000, 4 * 24_000).astype(np.int16)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VoiceStore]:
    with VoiceStore(tmp_path / "voices", 2, read_prompt=VoicePrompt.load) as opened:
        yield opened


def figures_of(store: VoiceStore | None, load: ScenarioLoad) -> list[BenchFigure]:
    async def run() -> list[BenchFigure]:
        async with asyncio.timeout(TIMEOUT_S), serve_every_api(store=store) as served:
            url = str(served.client.base_url)
            figures = await scenario_figures(url, CloningScenario.CROSS_LINGUAL, Reference(NOISE), load)
            assert (await served.client.get("/v1/audio/voices")).json()["uploaded_voices"] == []
            return figures

    return asyncio.run(run())


def test_each_concurrency_is_measured_with_a_kept_voice_and_with_recordings(store: VoiceStore) -> None:
    figures = figures_of(store, ScenarioLoad(requests=2, concurrency=3))
    for kind in ("cached voice", "recording sent"):
        for level in (1, 2, 3):
            name = f"cross-lingual, {kind}, {level} at once"
            found = [figure for figure in figures if figure.name.startswith(name)]
            assert len(found) == 4 and all(figure.value > 0 for figure in found)
    assert figures[-1].name == "cross-lingual: first packet saved by a cached voice"


def test_a_server_of_upstream_gets_a_recording_with_each_text(store: VoiceStore) -> None:
    async def run() -> list[BenchFigure]:
        async with asyncio.timeout(TIMEOUT_S), serve_every_api(store=store) as served:
            scenarios, load = [CloningScenario.CROSS_LINGUAL], ScenarioLoad(2, 1)
            return await upstream_figures(str(served.client.base_url), scenarios, Reference(NOISE), load)

    figures = asyncio.run(run())
    assert [figure.name.partition(": ")[2] for figure in figures] == [
        "first packet, p50",
        "first packet, p95",
        "real-time factor, p50",
        "audio of a request, p50",
    ]


def test_a_recording_of_the_user_is_sent_with_its_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "她.wav").write_bytes(wav(NOISE.astype(np.float32) / 32_768))
    references: list[Reference] = []

    def measure(chosen: object, load: object, *, reference: Reference, **options: object) -> BenchReport:
        references.append(reference)
        return BenchReport("serve", (), {})

    monkeypatch.setattr("vivavoce.gateway.cli.bench.serve.measure_scenarios", measure)
    options = ["bench", "serve", "--scenario", "natural", "--recording", str(tmp_path / "她.wav")]
    with pytest.raises(SystemExit) as ended:
        main([*options, "--transcript", "渔船回来了。"])
    assert not ended.value.code
    reference = references[0]
    assert (reference.transcript, reference.name) == ("渔船回来了。", "她.wav")
    assert np.abs(reference.samples - NOISE).max() <= 2


@pytest.mark.parametrize(
    ("has_bundle", "options", "ends_speech"),
    [(False, {}, True), (True, {}, False), (True, {"ends_speech": True}, True)],
)
def test_speech_of_random_weights_is_ended(
    has_bundle: bool,
    options: dict[str, bool],
    ends_speech: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    @contextlib.contextmanager
    def run_server_process(*flags: str, ends_speech: bool) -> Iterator[str]:
        asked.append(ends_speech)
        assert flags[flags.index("--precision") + 1] == "int4"
        yield ""

    monkeypatch.setattr(serve, "run_server_process", run_server_process)
    monkeypatch.setattr(BenchWeights, "folder", lambda _: contextlib.nullcontext(tmp_path))
    bundle = tmp_path if has_bundle else None
    report = serve.measure_scenarios(
        [],
        ScenarioLoad(1, 1),
        reference=Reference(NOISE),
        bundle=bundle,
        size="tiny",
        precision="int4",
        **options,
    )
    assert asked == [ends_speech]
    assert report.settings["speech"] == ("ended after 3 ids a text id" if ends_speech else "to its end")


def test_the_program_that_ends_speech_bounds_the_ids_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "SPEECH_LENGTH", policy.SPEECH_LENGTH)
    assert policy.CosyVoicePolicy().length.bounds(10) == (20, 200)
    exec(processes._END_SPEECH)
    assert policy.CosyVoicePolicy().length.bounds(10) == (20, 30)


def test_speech_is_ended_of_scenarios_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "serve", "--end-speech"])
    assert ended.value.code == 2 and "belongs to --scenario" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["--transcript x --scenario fast", "--recording x --scenario fast"])
def test_a_recording_needs_its_transcript(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "serve", *options.split()])
    assert ended.value.code == 2 and "belong together" in capsys.readouterr().err


def test_recordings_differ_in_every_part_where_they_are_silent_too() -> None:
    silence = Reference(np.zeros(3 * 24_000, np.int16))
    sent = [read_recording(silence.wav(number)).samples.reshape(-1, 480) for number in range(3)]
    for one, other in itertools.combinations(sent, 2):
        assert (one != other).any(1).all()
        assert np.abs(one).max() < 0.001


def test_a_server_that_clones_no_voices_is_named() -> None:
    with pytest.raises(BenchFailed, match="the server answered 400"):
        figures_of(None, ScenarioLoad(1, 1))


def test_the_scenarios_are_those_of_their_names() -> None:
    def is_chinese(text: str) -> bool:
        return not any(letter.isascii() and letter.isalpha() for letter in text)

    texts = {
        name: (text, is_chinese(text), is_chinese(said)) for name, (text, said) in SCENARIO_TEXTS.items()
    }
    assert len(texts[CloningScenario.FAST][0]) <= 10
    assert texts[CloningScenario.CROSS_LINGUAL][1:] == (False, False)
    assert texts[CloningScenario.NATURAL][1:] == (True, True) and len(texts[CloningScenario.NATURAL][0]) > 60
