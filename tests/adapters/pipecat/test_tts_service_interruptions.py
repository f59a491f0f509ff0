"""The engine's Pipecat service in real pipelines: several contexts, interruptions, timeouts and pacing.

A word of the stand-in voice lasts exactly 0.2 s.
"""

import asyncio
import time
import warnings
from collections.abc import Sequence

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.services.tts_service import TTSContext

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S, StandInBackend
from shared.event_loop import in_loop
from shared.gateways.pipecat_pipeline import (
    StoppedClock,
    open_engine,
    reply,
    run_pipeline,
    tokens,
    unpaced_service,
    until_idle,
)
from vivavoce.adapters.pipecat import (
    audio_context,
    base_tts_service,
)
from vivavoce.adapters.pipecat.engine_tts_service import VivavoceTTSService
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult

# Several contexts


@in_loop
async def test_a_speak_frame_within_a_turn_is_spoken_after_the_turn() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(
            LLMFullResponseStartFrame(),
            *tokens("One two. "),
            TTSSpeakFrame("Between us."),
            *tokens("Three."),
            LLMFullResponseEndFrame(),
        )
        await pipeline.until(TTSStoppedFrame, 2)
        assert pipeline.words == ["One", "two", "Three", "Between", "us"]
        contexts = [frame.context_id for frame in pipeline.of(TTSAudioRawFrame)]
        assert len(set(contexts)) == 2
        assert contexts == sorted(contexts, key=contexts.index)
        assert [frame.pts for frame in pipeline.of(TTSTextFrame)] == sorted(
            frame.pts for frame in pipeline.of(TTSTextFrame)
        )


@in_loop
async def test_words_of_the_next_context_are_timed_after_the_audio_before_them() -> None:
    async with (
        open_engine() as engine,
        run_pipeline(unpaced_service(engine), clock=StoppedClock()) as pipeline,
    ):
        await pipeline.send(TTSSpeakFrame("One two three."), TTSSpeakFrame("Four."))
        await pipeline.until(TTSStoppedFrame, 2)
        first, *_, last = pipeline.of(TTSTextFrame)
        assert (last.pts - first.pts) / 1e9 == pytest.approx(3 * WORD_S + 0.02, abs=0.05)


@in_loop
async def test_two_services_share_one_engine() -> None:
    async with open_engine() as engine:
        low = unpaced_service(engine, settings=VivavoceTTSService.Settings(voice="tone-440"))
        high = unpaced_service(engine, settings=VivavoceTTSService.Settings(voice="tone-660"))
        async with run_pipeline(low) as first, run_pipeline(high) as second:
            await asyncio.gather(first.turn("One two three."), second.turn("One two three."))
            assert pitch_of(first.audio) == pytest.approx(440, abs=5)
            assert pitch_of(second.audio) == pytest.approx(660, abs=5)
        await until_idle(engine)


# Interruptions


@in_loop
async def test_no_audio_follows_an_interruption() -> None:
    async with open_engine() as engine, run_pipeline(VivavoceTTSService(engine=engine)) as pipeline:
        await pipeline.send(*reply("One two three four five six, " * 20))
        await pipeline.until(TTSAudioRawFrame, 3)
        await pipeline.send(InterruptionFrame())
        await pipeline.until(InterruptionFrame)
        at = next(
            index for index, frame in enumerate(pipeline.frames) if isinstance(frame, InterruptionFrame)
        )
        await until_idle(engine)
        await pipeline.turn("Then.")
        after = [
            frame for frame in pipeline.frames[at:] if isinstance(frame, TTSAudioRawFrame | TTSTextFrame)
        ]
        before = pipeline.of(TTSAudioRawFrame)[0].context_id
        assert before not in {frame.context_id for frame in after}
        assert pipeline.words[-1] == "Then"
        assert pipeline.errors == []


@in_loop
async def test_the_reply_after_an_interruption_contains_no_audio_of_the_interrupted_one() -> None:
    """A resampler shared by both replies would emit the samples it still held of the first."""
    async with open_engine() as engine:
        async with run_pipeline(unpaced_service(engine), sample_rate=8_000) as pipeline:
            await pipeline.turn("Then.")
            uninterrupted = pipeline.audio
        async with run_pipeline(VivavoceTTSService(engine=engine, lead_s=0.3), sample_rate=8_000) as pipeline:
            await pipeline.send(*reply("One two three four five six, " * 20))
            await pipeline.until(TTSAudioRawFrame, 2)
            await pipeline.send(InterruptionFrame())
            await pipeline.until(InterruptionFrame)
            await pipeline.turn("Then.")
            context = pipeline.of(TTSStoppedFrame)[-1].context_id
            audio = b"".join(f.audio for f in pipeline.of(TTSAudioRawFrame) if f.context_id == context)
            assert audio == uninterrupted


@in_loop
async def test_an_interruption_before_the_first_token_closes_the_open_stream() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame())
        while not engine.active_streams:
            await asyncio.sleep(0.01)
        await pipeline.send(InterruptionFrame())
        await pipeline.until(InterruptionFrame)
        await until_idle(engine)
        await pipeline.turn("Still here.")
        assert pipeline.words == ["Still", "here"]


@in_loop
async def test_an_interruption_between_the_first_token_and_the_first_audio_drops_the_reply() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame(), *tokens("Hello"))
        await pipeline.until(TTSStartedFrame)
        await pipeline.send(InterruptionFrame())
        await pipeline.until(InterruptionFrame)
        await pipeline.turn("Next one.")
        assert pipeline.words == ["Next", "one"]
        assert pipeline.errors == []


@pytest.mark.xfail(not hasattr(TTSContext, "interruptible"), reason="new in Pipecat 1.13", run=False)
@in_loop
async def test_an_uninterruptible_speak_frame_is_spoken_to_its_end() -> None:
    async with (
        open_engine() as engine,
        run_pipeline(VivavoceTTSService(engine=engine, lead_s=0.3)) as pipeline,
    ):
        announcement = TTSSpeakFrame("This call is recorded for training.")
        announcement.interruptible = False
        await pipeline.send(announcement)
        await pipeline.until(TTSAudioRawFrame)
        await pipeline.send(InterruptionFrame())
        await pipeline.until(TTSStoppedFrame)
        assert pipeline.words == ["This", "call", "is", "recorded", "for", "training"]


@in_loop
async def test_text_of_an_interrupted_reply_that_arrives_later_is_not_spoken() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame(), *tokens("Hello there"))
        await pipeline.until(TTSStartedFrame)
        await pipeline.send(InterruptionFrame())
        await pipeline.until(InterruptionFrame)
        await pipeline.send(LLMTextFrame(", old"), LLMTextFrame(" friend."), LLMFullResponseEndFrame())
        await pipeline.turn("Next one.")
        assert pipeline.words == ["Next", "one"]
        assert pipeline.errors == []


@in_loop
async def test_text_outside_of_a_reply_is_spoken_without_waiting_for_its_end() -> None:
    """Pipecat opens a context for such text, which no end frame ever closes."""
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(InterruptionFrame())
        await pipeline.send(TextFrame("."), TextFrame("Hello"))
        await pipeline.until(TTSStoppedFrame, 2)
        assert [word for word in pipeline.words if word] == ["Hello"]
        await pipeline.turn("Next one.")
        assert pipeline.words[-2:] == ["Next", "one"]
        assert pipeline.errors == []
        await until_idle(engine)


# Pipecat's timeouts


@in_loop
async def test_an_engine_slower_than_pipecat_s_timeout_loses_no_word() -> None:
    """With Pipecat's default of 3 s the rest would be dropped but recorded as spoken."""

    class SlowBackend(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            if any(turn.segment and turn.segment.words[0].text == "late" for turn in turns):
                time.sleep(3.5)
            return super().step(worker, turns)

    async with open_engine(SlowBackend()) as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.turn("One two. late three. Four.")
        assert pipeline.words == ["One", "two", "late", "three", "Four"]
        assert len(pipeline.of(TTSStoppedFrame)) == 1
        assert pipeline.errors == []


def test_the_stall_timeout_is_shorter_than_pipecat_s_stop_frame_timeout() -> None:
    assert audio_context.STALL_TIMEOUT_S < base_tts_service.STOP_FRAME_TIMEOUT_S


@pytest.mark.parametrize(
    ("begin", "rest"), [("One two. ", "Three, four."), ("One two. Three, ", "four."), ("One two. ", "")]
)
def test_a_reply_with_pauses_longer_than_pipecat_s_timeout_is_spoken_completely(
    begin: str, rest: str
) -> None:
    async def speak() -> None:
        async with (
            open_engine() as engine,
            run_pipeline(unpaced_service(engine, stop_frame_timeout_s=0.2)) as pipeline,
        ):
            await pipeline.send(LLMFullResponseStartFrame(), *tokens(begin))
            await pipeline.until(TTSAudioRawFrame)
            await asyncio.sleep(0.6)
            await pipeline.send(*tokens(rest), LLMFullResponseEndFrame())
            await pipeline.until(LLMFullResponseEndFrame)
            await pipeline.send(*reply("Next one."))
            words = f"{begin}{rest} Next one".replace(",", "").replace(".", "").split()
            await pipeline.until(TTSTextFrame, len(words))
            assert pipeline.words == words
            assert pipeline.errors == []
            await until_idle(engine)

    asyncio.run(speak())


@in_loop
async def test_a_pause_in_the_reply_changes_no_sample() -> None:
    """Pipecat's resamplers drop their buffer after 0.2 s without input, which cuts into a word."""
    text = "One two three, and four. Five."
    async with open_engine() as engine:
        async with run_pipeline(unpaced_service(engine), sample_rate=8_000) as pipeline:
            await pipeline.turn(text)
            without_pauses = pipeline.audio
        async with run_pipeline(unpaced_service(engine), sample_rate=8_000) as pipeline:
            await pipeline.send(LLMFullResponseStartFrame())
            for part in ("One two three, an", "d four. Fi", "ve."):
                await pipeline.send(LLMTextFrame(part))
                await asyncio.sleep(0.3)
            await pipeline.send(LLMFullResponseEndFrame())
            await pipeline.until(TTSStoppedFrame)
            assert pipeline.audio == without_pauses


# Pacing


@in_loop
async def test_audio_is_pushed_at_most_lead_s_ahead_of_its_playback() -> None:
    """The lead is 0.5 s plus the chunk in hand; the whole text would be 20 s."""
    async with (
        open_engine() as engine,
        run_pipeline(VivavoceTTSService(engine=engine, lead_s=0.5)) as pipeline,
    ):
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        await pipeline.send(*reply("One two three four five six, " * 20))
        await pipeline.until(TTSAudioRawFrame, 2)
        await asyncio.sleep(0.3)
        assert len(pipeline.audio) / 48_000 < loop.time() - started_at + 1.5
        await pipeline.send(InterruptionFrame())
        await pipeline.until(InterruptionFrame)
