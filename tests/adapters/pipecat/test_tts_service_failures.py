"""The engine's Pipecat service in real pipelines: failures of the engine, and the end of a pipeline."""

import asyncio
import math
import threading
import warnings
from collections.abc import Sequence

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from pipecat.frames.frames import (
    CancelFrame,
    InterruptionFrame,
    LLMFullResponseStartFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.utils.errors import ErrorCategory

from shared.engine.standin_backend import StandInBackend
from shared.event_loop import in_loop
from shared.gateways.pipecat_pipeline import (
    FailingBackend,
    open_engine,
    reply,
    run_pipeline,
    tokens,
    unpaced_service,
    until_idle,
)
from vivavoce import Engine
from vivavoce.adapters.pipecat import (
    audio_context,
)
from vivavoce.adapters.pipecat.engine_tts_service import VivavoceTTSService
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult

# Failures


@in_loop
async def test_an_engine_failure_within_a_reply_is_one_error_and_drops_the_rest_of_the_reply() -> None:
    async with open_engine(FailingBackend()) as engine:
        service = unpaced_service(engine)
        async with run_pipeline(service) as pipeline:
            await pipeline.turn("One two. Then I fail and say no more. Never heard.")
            assert [error.category for error in pipeline.errors] == [ErrorCategory.SERVER]
            assert "the voice failed" in pipeline.errors[0].error
            spoken = " ".join(pipeline.words)
            assert spoken.startswith("One two")
            assert "more" not in spoken
            assert "heard" not in spoken
            await pipeline.turn("Fine again.")
            assert pipeline.words[-2:] == ["Fine", "again"]
            assert service.is_usable
            assert len(pipeline.errors) == 1
        await until_idle(engine)


@in_loop
async def test_a_failure_does_not_affect_another_stream_of_the_engine() -> None:
    async with (
        open_engine(FailingBackend()) as engine,
        run_pipeline(unpaced_service(engine)) as failing,
        run_pipeline(unpaced_service(engine)) as other,
    ):
        await asyncio.gather(failing.turn("So, fail now."), other.turn("One two three four."))
        assert other.words == ["One", "two", "three", "four"]
        assert other.errors == []
        assert len(failing.errors) == 1


@in_loop
async def test_an_overloaded_engine_fails_the_reply_and_keeps_the_service_usable() -> None:
    async with open_engine(max_streams=1) as engine:
        service = unpaced_service(engine)
        async with run_pipeline(service) as pipeline:
            only_stream = engine.stream()
            for _ in range(4):
                await pipeline.turn("Is anybody there?")
            assert [error.category for error in pipeline.errors] == [ErrorCategory.RATE_LIMIT] * 4
            assert pipeline.words == []
            assert service.is_usable
            only_stream.cancel()
            await pipeline.turn("At last.")
            assert pipeline.words == ["At", "last"]


@in_loop
async def test_a_stalled_engine_fails_the_reply_after_the_timeout() -> None:
    released = threading.Event()

    class StallingBackend(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            if any(turn.segment and turn.segment.words[0].text == "stuck" for turn in turns):
                released.wait()
            return super().step(worker, turns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audio_context, "STALL_TIMEOUT_S", 0.3)
        async with (
            open_engine(StallingBackend()) as engine,
            run_pipeline(unpaced_service(engine)) as pipeline,
        ):
            try:
                await pipeline.turn("One. stuck two.")
                assert "gave nothing for 0.3 s" in pipeline.errors[0].error
                assert pipeline.words == ["One"]
            finally:
                released.set()


@in_loop
async def test_closing_the_engine_within_a_reply_is_reported_as_an_error() -> None:
    async with open_engine() as engine, run_pipeline(VivavoceTTSService(engine=engine)) as pipeline:
        await pipeline.send(*reply("One two three four five six. " * 10))
        await pipeline.until(TTSAudioRawFrame)
        await engine.aclose()
        await pipeline.until(TTSStoppedFrame)
        assert "engine was closed" in pipeline.errors[0].error


# The end of a pipeline


@in_loop
async def test_an_end_frame_waits_for_the_end_of_the_reply() -> None:
    async with open_engine() as engine:
        async with run_pipeline(unpaced_service(engine)) as pipeline:
            await pipeline.send(*reply("One two three four. Five."))
        assert pipeline.words == ["One", "two", "three", "four", "Five"]
        await until_idle(engine)


@pytest.mark.parametrize(
    "stage",
    [
        "before the turn",
        "before the text",
        "in the text",
        "in the audio",
        "with a second reply in the pipeline",
        "after an interruption",
        "after the audio",
        "after a failure",
    ],
)
def test_a_pipeline_can_be_cancelled_at_each_stage(stage: str) -> None:
    async def cancel() -> None:
        async with open_engine(FailingBackend()) as engine:
            async with run_pipeline(VivavoceTTSService(engine=engine)) as pipeline:
                match stage:
                    case "before the text":
                        await pipeline.send(LLMFullResponseStartFrame())
                        await pipeline.until(LLMFullResponseStartFrame)
                    case "in the text":
                        await pipeline.send(LLMFullResponseStartFrame(), *tokens("One two thr"))
                        await pipeline.until(TTSStartedFrame)
                    case "in the audio":
                        await pipeline.send(*reply("One two three four five six. " * 9))
                        await pipeline.until(TTSAudioRawFrame, 2)
                    case "with a second reply in the pipeline":
                        await pipeline.send(TTSSpeakFrame("One two three. " * 9), TTSSpeakFrame("Four. " * 9))
                        await pipeline.until(TTSAudioRawFrame, 2)
                    case "after an interruption":
                        await pipeline.send(*reply("One two three four five six. " * 9))
                        await pipeline.until(TTSAudioRawFrame, 2)
                        await pipeline.send(InterruptionFrame())
                    case "after the audio":
                        await pipeline.turn("One.")
                    case "after a failure":
                        await pipeline.send(*reply("One, then fail."))
                        await pipeline.until_error()
                await pipeline.send(CancelFrame())
                await pipeline.until(CancelFrame)
                await until_idle(engine)
                audio_bytes = len(pipeline.audio)
            assert len(pipeline.audio) == audio_bytes

    asyncio.run(cancel())


@in_loop
async def test_cleanup_after_the_end_of_the_pipeline_is_harmless() -> None:
    async with open_engine() as engine:
        service = unpaced_service(engine)
        async with run_pipeline(service) as pipeline:
            await pipeline.turn("Bye now.")
        await service.cleanup()
        await until_idle(engine)


@in_loop
async def test_the_service_closes_the_engine_that_it_opened_and_no_other() -> None:
    opened: list[Engine] = []
    really_open = Engine.open

    async def open_tones(bundle: str) -> Engine:
        opened.append(await really_open(bundle, backend=StandInBackend()))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        async with open_engine() as engine:
            async with run_pipeline(unpaced_service(engine)) as pipeline:
                await pipeline.turn("Given.")
            engine.stream().cancel()  # raises if the engine is closed
            patch.setattr(Engine, "open", open_tones)
            async with run_pipeline(VivavoceTTSService(lead_s=math.inf)) as pipeline:
                await pipeline.turn("My own.")
                assert pipeline.words == ["My", "own"]
    assert len(opened) == 1
    assert not any(thread.is_alive() for thread in opened[0]._threads)


@in_loop
async def test_fifty_turns_leak_no_task() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.turn("Warm up.")
        before = len(asyncio.all_tasks())
        for number in range(50):
            await pipeline.send(*reply(f"Turn {number}, here we go."))
            if number % 3 == 0:
                await pipeline.until(TTSAudioRawFrame, number + 1)
                await pipeline.send(InterruptionFrame())
        await pipeline.turn("The end.")
        while engine.active_streams or len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)
        assert threading.active_count() < 20


@in_loop
async def test_replies_that_the_voice_cannot_read_are_errors_and_leave_the_service_usable() -> None:
    async with open_engine() as engine:
        service = unpaced_service(engine)
        async with run_pipeline(service, sample_rate=8_000) as pipeline:
            for text in ("你好。", "こんにちは。", "안녕하세요.", "Well."):
                await pipeline.turn(text)
            assert service.is_usable
            assert len(pipeline.errors) == 3 and "can read no word" in pipeline.errors[0].error
            assert pipeline.words == ["Well"]
