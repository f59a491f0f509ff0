"""The Pipecat service of a vivavoce server, in real pipelines with the stand-in voice: output and settings.

``tests/adapters/pipecat`` tests the same frames and words for an engine in the same process.
"""

import asyncio
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from loguru import logger
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import TTFAMetricsData, TTFBMetricsData, TTSUsageMetricsData
from pipecat.services.tts_service import TextAggregationMode

from shared.audio.tones import pitch_of
from shared.event_loop import until
from shared.gateways.pipecat_pipeline import (
    LONG_TEXT,
    StoppedClock,
    remote_service,
    reply,
    run_pipeline,
    tokens,
)
from vivavoce.adapters.pipecat import (
    VivavoceTTSService,
    VivavoceWebsocketTTSService,
    remote_tts_service,
)

Run = Callable[..., None]


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    logger.disable("pipecat")
    logger.disable("vivavoce")
    yield
    logger.enable("pipecat")
    logger.enable("vivavoce")


# Frames and audio


@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 24_000])
def test_the_remote_service_gives_the_samples_and_words_of_the_local_one(run: Run, sample_rate: int) -> None:
    text = "Well, it's 4,000 words; one two. That is all!"

    async def test(served: Any) -> None:
        outputs = []
        for service in (VivavoceTTSService(engine=served.engine, lead_s=math.inf), remote_service(served)):
            async with run_pipeline(service, sample_rate=sample_rate, clock=StoppedClock()) as pipeline:
                await pipeline.turn(text)
                first = pipeline.of(TTSTextFrame)[0].pts
                times = [(frame.pts - first) / 1e9 for frame in pipeline.of(TTSTextFrame)]
                outputs.append((pipeline.audio, [frame.text for frame in pipeline.of(TTSTextFrame)], times))
                assert {frame.sample_rate for frame in pipeline.of(TTSAudioRawFrame)} == {sample_rate}
                assert pipeline.errors == []
        (local, local_words, local_times), (remote, remote_words, remote_times) = outputs
        assert remote_words == local_words
        assert remote_times == pytest.approx(local_times, abs=0.002)
        if sample_rate != 16_000:  # the server resamples to 16 kHz with another filter
            assert remote == local
        assert len(remote) == pytest.approx(len(local), abs=0.02 * sample_rate)

    run(test)


def test_frames_leave_in_the_order_that_pipecat_requires(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.turn("One two. Three.")
            await pipeline.until(LLMFullResponseEndFrame)
            kinds = [type(frame) for frame in pipeline.downstream.frames]
            assert kinds[1:3] == [LLMFullResponseStartFrame, TTSStartedFrame]
            assert kinds[-2:] == [TTSStoppedFrame, LLMFullResponseEndFrame]
            assert kinds.index(TTSAudioRawFrame) < kinds.index(TTSTextFrame)
            assert kinds.count(TTSStartedFrame) == kinds.count(TTSStoppedFrame) == 1

    run(test)


def test_the_first_clause_is_spoken_before_the_reply_is_complete(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.send(LLMFullResponseStartFrame(), *tokens("Hello there, I "))
            await pipeline.until(TTSTextFrame, 2)
            assert pipeline.words == ["Hello", "there"]
            assert pipeline.of(TTSStoppedFrame) == []

    run(test)


def test_replies_without_speakable_text_become_silence_without_an_error(run: Run) -> None:
    async def test(served: Any) -> None:
        service = remote_service(served)
        async with run_pipeline(service, sample_rate=8_000) as pipeline:
            for text in ("…", "\N{GRINNING FACE}", "!?", "Well."):
                await pipeline.turn(text)
            assert service.is_usable and pipeline.errors == []
            assert not any(b"".join(frame.audio for frame in pipeline.of(TTSAudioRawFrame)[:3]))
            assert pipeline.words[-1] == "Well"

    run(test)


def test_turns_without_text_speak_nothing_and_open_no_connections(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            for _ in range(5):
                await pipeline.send(LLMFullResponseStartFrame(), LLMFullResponseEndFrame())
            await pipeline.turn("Then.")
            assert pipeline.words == ["Then"] and pipeline.errors == []
            assert len(served.sockets) <= 3

    run(test)


def test_a_speak_frame_within_a_turn_is_spoken_after_the_turn(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            speak = TTSSpeakFrame("Between us.")
            await pipeline.send(LLMFullResponseStartFrame(), *tokens("One two. "), speak, *tokens("Three."))
            await pipeline.send(LLMFullResponseEndFrame())
            await pipeline.until(TTSStoppedFrame, 2)
            assert pipeline.words == ["One", "two", "Three", "Between", "us"]

    run(test)


def test_sentence_aggregation_speaks_every_sentence(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(
            remote_service(served, text_aggregation_mode=TextAggregationMode.SENTENCE)
        ) as pipeline:
            await pipeline.turn("One two. Three four.")
            assert pipeline.words == ["One", "two", "Three", "four"]

    run(test)


def test_metrics_frames_report_usage_ttfb_and_ttfa(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(
            remote_service(served), enable_metrics=True, enable_usage_metrics=True
        ) as pipeline:
            await pipeline.turn("One two three.")
            data = [item for frame in pipeline.of(MetricsFrame) for item in frame.data]
        assert [d.value for d in data if isinstance(d, TTSUsageMetricsData)] == [len("One two three.")]
        assert any(isinstance(item, TTFBMetricsData) and item.value > 0 for item in data)
        assert any(isinstance(item, TTFAMetricsData) for item in data)

    run(test)


def test_a_paced_service_loses_nothing_while_unread_audio_is_limited(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_tts_service, "MAX_UNREAD_S", 0.1)

    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served, lead_s=0.3)) as pipeline:
            await pipeline.turn("One two three four five six seven eight.")
            assert pipeline.words == "One two three four five six seven eight".split()

    run(test)


# Interruptions


def test_no_audio_follows_an_interruption_and_the_server_closes_the_stream(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served, lead_s=0.5)) as pipeline:
            for _ in range(5):
                await pipeline.send(*reply(LONG_TEXT))
                await pipeline.until(TTSAudioRawFrame, len(pipeline.of(TTSAudioRawFrame)) + 3)
                await pipeline.send(InterruptionFrame())
                await pipeline.until(InterruptionFrame)
                interrupted, count = (
                    pipeline.of(TTSAudioRawFrame)[-1].context_id,
                    len(pipeline.downstream.frames),
                )
                await until(lambda: served.engine.active_streams == 0)
                await pipeline.turn("Then.")
                after = pipeline.downstream.frames[count:]
                assert interrupted not in {
                    f.context_id for f in after if isinstance(f, TTSAudioRawFrame | TTSTextFrame)
                }
                assert pipeline.words[-1] == "Then"
                pipeline.downstream.frames.clear()
            assert pipeline.errors == []
            assert len(served.sockets) <= 3  # connections are reused

    run(test)


def test_the_reply_after_an_interruption_contains_no_audio_of_the_interrupted_one(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served, lead_s=0.3), sample_rate=8_000) as pipeline:
            await pipeline.turn("Then.")
            uninterrupted = pipeline.audio
            for _ in range(3):
                count = len(pipeline.of(TTSAudioRawFrame))
                await pipeline.send(*reply(LONG_TEXT))
                await pipeline.until(TTSAudioRawFrame, count + 2)
                await pipeline.send(InterruptionFrame())
                await pipeline.turn("Then.")
                context = pipeline.of(TTSStoppedFrame)[-1].context_id
                assert uninterrupted == b"".join(
                    frame.audio for frame in pipeline.of(TTSAudioRawFrame) if frame.context_id == context
                )

    run(test)


@pytest.mark.parametrize("text", ["", "Hello"])
def test_an_interruption_before_any_audio_drops_the_reply(run: Run, text: str) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.send(LLMFullResponseStartFrame(), *tokens(text))
            await pipeline.until(TTSStartedFrame if text else LLMFullResponseStartFrame)
            await pipeline.send(InterruptionFrame())
            await pipeline.until(InterruptionFrame)
            await pipeline.turn("Next one.")
            assert pipeline.words == ["Next", "one"] and pipeline.errors == []

    run(test)


# Settings


def test_a_new_voice_is_used_in_a_turn_that_is_open_but_has_no_text(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.turn("One two three.")
            before = len(pipeline.audio)
            await pipeline.send(
                LLMFullResponseStartFrame(),  # opens the turn
                TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(voice="tone-330")),
                *tokens("One two three."),
                LLMFullResponseEndFrame(),
            )
            await pipeline.until(TTSStoppedFrame, 2)
            assert pitch_of(pipeline.audio[:before]) == pytest.approx(440, abs=5)
            assert pitch_of(pipeline.audio[before:]) == pytest.approx(330, abs=5)

    run(test)


def test_the_server_gets_the_speed_and_the_service_checks_its_range(run: Run) -> None:
    async def test(served: Any) -> None:
        speeds: list[float] = []
        open_slot = served.backend.open_slot
        served.backend.open_slot = lambda request: speeds.append(request.speed) or open_slot(request)
        service = remote_service(served, settings=VivavoceWebsocketTTSService.Settings(speed=2.0))
        async with run_pipeline(service) as pipeline:
            await pipeline.turn("One two three.")
            await pipeline.send(TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(speed=9.0)))
            await until(lambda: bool(pipeline.errors))
            assert "got speed 9.0" in pipeline.errors[0].error and service.is_usable
            await pipeline.send(TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(speed=1.0)))
            await pipeline.turn("One two three.")
            assert speeds == [2.0, 1.0]

    run(test)


def test_an_unknown_voice_is_reported_at_the_first_reply_and_can_be_changed(run: Run) -> None:
    async def test(served: Any) -> None:
        service = remote_service(served, settings=VivavoceWebsocketTTSService.Settings(voice="unknown"))
        async with run_pipeline(service) as pipeline:
            await pipeline.send(LLMFullResponseStartFrame())
            await until(lambda: len(served.sockets) > 0)
            await asyncio.sleep(0.3)
            assert pipeline.errors == []  # there is no text yet
            await pipeline.send(*tokens("Hello."), LLMFullResponseEndFrame())
            await until(lambda: bool(pipeline.errors))
            assert "unknown" in pipeline.errors[0].error and not service.is_usable
            await pipeline.send(
                TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(voice="tone-330"))
            )
            await until(lambda: service.is_usable)
            await pipeline.turn("Better now.")
            assert pipeline.words[-2:] == ["Better", "now"]

    run(test)
