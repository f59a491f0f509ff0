"""The Pipecat service, in real pipelines on a voice of tones: order, words, interruptions, failures, ends.

A word of the voice lasts exactly 0.2 s; most tests hand audio on as soon as it is rendered (``lead_s=inf``),
so that nothing here waits for a listener.
"""

import ast
import asyncio
import inspect
import math
import textwrap
import threading
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat warns of old classes of its own
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from loguru import logger
from pipecat.frames.frames import (
    AggregatedTextFrame,
    CancelFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    TextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import TTFAMetricsData, TTFBMetricsData, TTSUsageMetricsData
from pipecat.services.tts_service import TextAggregationMode, TTSContext
from pipecat.utils.errors import ErrorCategory

from shared.event_loop import in_loop
from shared.pipecat_line import line, reply, tokens
from shared.standin_backend import WORD_S, StandInBackend
from vivavoce import Engine
from vivavoce.adapters.pipecat import (
    audio_context,
    base_tts_service,
    engine_tts_service,
    remote_tts_service,
    word_timing,
)
from vivavoce.adapters.pipecat.audiosocket import transport
from vivavoce.adapters.pipecat.engine_tts_service import VivavoceTTSService
from vivavoce.adapters.pipecat.word_timing import Playhead
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, StepResult
from vivavoce.tts_engine.engine import EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.voices.voices import MULTIPLE_LANGUAGES, Voice, Voices

SPOKEN = (TTSStartedFrame, TTSAudioRawFrame, TTSTextFrame, TTSStoppedFrame, LLMFullResponseEndFrame)


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    logger.disable("pipecat")
    yield
    logger.enable("pipecat")


@asynccontextmanager
async def tones(backend: StandInBackend | None = None, max_streams: int = 64) -> AsyncIterator[Engine]:
    config = EngineConfig(SchedulerPolicy(max_streams=max_streams))
    engine = await Engine.open(backend=backend or StandInBackend((440, 660)), config=config)
    async with engine:
        yield engine


def at_once(engine: Engine, **arguments: Any) -> VivavoceTTSService:
    return VivavoceTTSService(engine=engine, lead_s=math.inf, **arguments)


async def idle(engine: Engine) -> None:
    """Wait until every stream is gone: a cancelled one is within a step."""
    async with asyncio.timeout(30):
        while engine.active_streams:
            await asyncio.sleep(0.005)


# The playhead: pure


def test_words_count_from_the_first_audio_of_their_context() -> None:
    playhead = Playhead()
    starts = playhead.play(5_000_000_000, 0.4)
    assert starts == 5_000_000_000
    assert playhead.word_time_s(starts + 300_000_000) == pytest.approx(0.3)


def test_audio_queues_behind_what_is_there() -> None:
    playhead = Playhead()
    playhead.play(1_000_000_000, 0.5)
    assert playhead.play(1_100_000_000, 0.5) == 1_500_000_000
    assert playhead.lead_s(1_200_000_000) == pytest.approx(0.8)


def test_a_gap_moves_the_words_after_it() -> None:
    playhead = Playhead()
    playhead.play(0, 0.2)
    late = playhead.play(3_000_000_000, 0.2)
    assert playhead.word_time_s(late) == pytest.approx(3.0)


def test_a_context_that_waits_for_another_is_timed_from_when_it_is_heard() -> None:
    playhead = Playhead()
    first = playhead.play(0, 1.0)
    playhead.word_time_s(first + 800_000_000)  # the last word of the first context
    playhead.begin_context()
    second = playhead.play(100_000_000, 1.0)
    # Pipecat counts from the last word, 0.8 s; the audio is heard at 1.0 s
    assert playhead.word_time_s(second) == pytest.approx(0.2)


def test_word_times_never_run_backwards() -> None:
    playhead = Playhead()
    playhead.play(0, 1.0)
    assert playhead.word_time_s(500_000_000) == pytest.approx(0.5)
    assert playhead.word_time_s(400_000_000) == pytest.approx(0.5)


def test_nothing_is_ahead_after_an_interruption() -> None:
    playhead = Playhead()
    playhead.play(0, 9.0)
    playhead.discard()
    assert playhead.lead_s(1_000_000_000) == 0.0
    assert playhead.play(1_000_000_000, 0.1) == 1_000_000_000


# One turn


@in_loop
async def test_frames_come_in_the_order_that_pipecat_asks_for() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.turn("One two. Three.")
        await end.until(LLMFullResponseEndFrame)
        kinds = [type(frame) for frame in end.frames]
        assert kinds[1:3] == [LLMFullResponseStartFrame, TTSStartedFrame]
        assert kinds[-2:] == [TTSStoppedFrame, LLMFullResponseEndFrame]
        assert kinds.index(TTSAudioRawFrame) < kinds.index(TTSTextFrame)
        assert kinds.count(TTSStartedFrame) == kinds.count(TTSStoppedFrame) == 1
        assert {frame.context_id for frame in end.of(*SPOKEN[:4])} == {end.of(TTSStartedFrame)[0].context_id}
        assert {type(frame) for frame in end.of(TTSAudioRawFrame)} == {
            TTSAudioRawFrame
        }  # Pipecat copies them


@in_loop
async def test_words_are_those_of_the_text_at_the_times_of_the_audio() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.turn("One two, three four. Five.")
        assert end.words == ["One", "two", "three", "four", "Five"]
        first = end.of(TTSTextFrame)[0].pts
        heard = [(frame.pts - first) / 1e9 for frame in end.of(TTSTextFrame)]
        # words of 0.2 s, 0.12 s after a clause, 0.32 s after a sentence
        assert heard == pytest.approx([0.0, 0.2, 0.52, 0.72, 1.24], abs=0.001)


@in_loop
async def test_the_conversation_gets_the_text_as_it_was_written() -> None:
    text = "Well, it's $42.50 (net), Dr. Who; e.g. 3-4 items — ok? Yes!"
    async with tones() as engine, line(at_once(engine)) as end:
        await end.turn(text)
        said = " ".join(frame.raw_text or frame.text for frame in end.of(TTSTextFrame))
        assert said.split() == text.split()


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_any_split_of_the_text_gives_the_same_words_and_audio(size: int) -> None:
    text = "Hello there, one two. That is three hundred, or 4,000 words!"

    async def speak() -> tuple[list[str], bytes]:
        async with tones() as engine, line(at_once(engine)) as end:
            await end.send(LLMFullResponseStartFrame(), *tokens(text, size), LLMFullResponseEndFrame())
            await end.until(TTSStoppedFrame)
            return end.words, end.audio

    words, audio = asyncio.run(speak())
    assert " ".join(words).replace(",", "").replace(".", "").replace("!", "").split() == (
        "Hello there one two That is three hundred or 4000 words".split()
    )
    assert len(audio) / 48_000 == pytest.approx(0.02 + 13 * WORD_S + 0.12 + 0.32 + 0.12, abs=0.5)


@in_loop
async def test_words_of_an_unfinished_sentence_are_told_with_its_first_clause() -> None:
    """Pipecat itself would hold them until the sentence has an end."""
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame(), *tokens("One two three, and then", size=4))
        await end.until(TTSTextFrame, 3)
        assert end.words == ["One", "two", "three"]
        announced = [frame.text for frame in end.of(AggregatedTextFrame) if frame.will_be_spoken]
        assert announced == ["One two three,"]


@in_loop
async def test_words_that_were_heard_are_remembered_when_the_writer_pauses_behind_them() -> None:
    """At the end of a sentence an LLM may call a tool; Pipecat waits for the next sentence's first letter."""
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame(), *tokens("One two. "))
        await end.until(TTSTextFrame, 2)
        await end.send(InterruptionFrame())
        await end.turn("Next one.")
        assert end.words == ["One", "two", "Next", "one"]


@in_loop
async def test_the_first_clause_is_heard_while_the_reply_is_being_written() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame(), *tokens("Hello there, I "))
        await end.until(TTSAudioRawFrame)
        assert end.of(TTSStoppedFrame) == []


@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 24_000])
def test_audio_is_at_the_rate_of_the_pipeline_and_ends_where_the_speech_does(sample_rate: int) -> None:
    async def speak() -> None:
        async with tones() as engine, line(at_once(engine), sample_rate=sample_rate) as end:
            await end.turn("One two three.")
            assert {frame.sample_rate for frame in end.of(TTSAudioRawFrame)} == {sample_rate}
            assert len(end.audio) == 2 * round((3 * WORD_S + 0.02) * sample_rate)
            assert loudest(end.audio[-2 * round(0.015 * sample_rate) :]) < 200
            assert loudest(end.audio[-2 * round(0.030 * sample_rate) :]) > 2_000
            assert end.words == ["One", "two", "three"]

    asyncio.run(speak())


@in_loop
async def test_sentences_are_spoken_in_sentence_mode() -> None:
    async with tones() as engine:
        service = at_once(engine, text_aggregation_mode=TextAggregationMode.SENTENCE)
        async with line(service) as end:
            await end.turn("One two. Three four.")
            assert end.words == ["One", "two", "Three", "four"]


@in_loop
async def test_metrics_are_told() -> None:
    async with tones() as engine:
        async with line(at_once(engine), enable_metrics=True, enable_usage_metrics=True) as end:
            await end.turn("One two three.")
            data = [item for frame in end.of(MetricsFrame) for item in frame.data]
        usage = [item.value for item in data if isinstance(item, TTSUsageMetricsData)]
        assert usage == [len("One two three.")]
        assert any(isinstance(item, TTFBMetricsData) and item.value > 0 for item in data)
        assert any(isinstance(item, TTFAMetricsData) for item in data)


@in_loop
async def test_three_unspeakable_replies_in_a_row_are_silence_and_no_error() -> None:
    """Pipecat writes a service off after three contexts without audio."""
    async with tones() as engine:
        service = at_once(engine)
        async with line(service, sample_rate=8_000) as end:
            for text in ("…", "\N{GRINNING FACE}", "!?", "Well."):
                await end.turn(text)
            assert service.is_usable
            assert end.errors == []
            silent = [frame for frame in end.of(TTSAudioRawFrame) if not any(frame.audio)]
            assert len(silent) >= 3
            assert all(len(frame.audio) >= 320 for frame in silent[:3])


@in_loop
async def test_a_turn_without_text_leaves_nothing_behind() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame(), LLMFullResponseEndFrame())
        await end.turn("Then.")
        await idle(engine)
        assert end.errors == []


@in_loop
async def test_the_stream_of_a_turn_is_opened_before_its_first_token() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame())
        while not engine.active_streams:
            await asyncio.sleep(0.01)
        await end.send(*tokens("Hi there. "), LLMFullResponseEndFrame())
        await end.until(TTSStoppedFrame)


# A good guest


@in_loop
async def test_speaking_takes_nothing_of_the_loops_own_threads() -> None:
    """aiortc encodes Opus on them: who fills them delays everybody's packets."""
    taken = threading.Event()
    async with tones() as engine, line(at_once(engine)) as end:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        blocked = loop.run_in_executor(None, taken.wait)
        try:
            await end.turn("One two three.")
            assert end.words == ["One", "two", "three"]
        finally:
            taken.set()
            await blocked


@pytest.mark.parametrize(
    ("module", "prefixes"),
    [
        (base_tts_service, ("_vivavoce_", "vivavoce_")),
        (engine_tts_service, ("_vivavoce_",)),
        (remote_tts_service, ("_vivavoce_",)),
        (word_timing, ("_vivavoce_",)),
        (transport, ("_audiosocket_",)),
    ],
)
def test_attributes_of_ours_cannot_be_taken_for_pipecats(
    module: ModuleType, prefixes: tuple[str, ...]
) -> None:
    """A transport that kept its own ``_next`` once took the place of the link to the next processor."""
    theirs_to_set = {"_settings", "_aggregated_frame_sequencer", "caller"}
    heirs = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__ and _inherits_state(one)
    ]
    assert heirs
    for heir in heirs:
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(heir)))):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    assert name.startswith(prefixes) or name in theirs_to_set, (heir.__name__, name)


def _inherits_state(one: type) -> bool:
    bases = [base for base in one.__mro__[1:] if base.__module__.startswith("pipecat.")]
    return any("__init__" in vars(base) for base in bases)


# Several contexts


@in_loop
async def test_a_speak_frame_in_mid_turn_is_said_after_the_turn() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(
            LLMFullResponseStartFrame(),
            *tokens("One two. "),
            TTSSpeakFrame("Between us."),
            *tokens("Three."),
            LLMFullResponseEndFrame(),
        )
        await end.until(TTSStoppedFrame, 2)
        assert end.words == ["One", "two", "Three", "Between", "us"]
        contexts = [frame.context_id for frame in end.of(TTSAudioRawFrame)]
        assert len(set(contexts)) == 2
        assert contexts == sorted(contexts, key=contexts.index)
        assert [frame.pts for frame in end.of(TTSTextFrame)] == sorted(
            frame.pts for frame in end.of(TTSTextFrame)
        )


@in_loop
async def test_words_of_the_next_context_wait_for_the_audio_before_them() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(TTSSpeakFrame("One two three."), TTSSpeakFrame("Four."))
        await end.until(TTSStoppedFrame, 2)
        first, *_, last = end.of(TTSTextFrame)
        assert (last.pts - first.pts) / 1e9 == pytest.approx(3 * WORD_S + 0.02, abs=0.05)


@in_loop
async def test_two_services_share_one_engine() -> None:
    async with tones() as engine:
        one = at_once(engine, settings=VivavoceTTSService.Settings(voice="tone-440"))
        other = at_once(engine, settings=VivavoceTTSService.Settings(voice="tone-660"))
        async with line(one) as first, line(other) as second:
            await asyncio.gather(first.turn("One two three."), second.turn("One two three."))
            assert pitch(first.audio) == pytest.approx(440, abs=5)
            assert pitch(second.audio) == pytest.approx(660, abs=5)
        await idle(engine)


def loudest(pcm: bytes) -> int:
    return int(np.abs(np.frombuffer(pcm, "<i2").astype(int)).max())


def pitch(pcm: bytes) -> float:
    samples = np.frombuffer(pcm, "<i2")
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.argmax(spectrum) * 24_000 / len(samples))


# Interruptions


@in_loop
async def test_no_audio_follows_an_interruption() -> None:
    async with tones() as engine, line(VivavoceTTSService(engine=engine)) as end:
        await end.send(*reply("One two three four five six, " * 20))
        await end.until(TTSAudioRawFrame, 3)
        await end.send(InterruptionFrame())
        await end.until(InterruptionFrame)
        at = next(index for index, frame in enumerate(end.frames) if isinstance(frame, InterruptionFrame))
        await idle(engine)
        await end.turn("Then.")
        after = [frame for frame in end.frames[at:] if isinstance(frame, TTSAudioRawFrame | TTSTextFrame)]
        before = end.of(TTSAudioRawFrame)[0].context_id
        assert before not in {frame.context_id for frame in after}
        assert end.words[-1] == "Then"
        assert end.errors == []


@in_loop
async def test_nothing_of_an_interrupted_reply_is_heard_in_the_next() -> None:
    """At 8 kHz a resampler that served both would give out what it still held of the first."""
    async with tones() as engine:
        async with line(at_once(engine), sample_rate=8_000) as end:
            await end.turn("Then.")
            undisturbed = end.audio
        async with line(VivavoceTTSService(engine=engine, lead_s=0.3), sample_rate=8_000) as end:
            await end.send(*reply("One two three four five six, " * 20))
            await end.until(TTSAudioRawFrame, 2)
            await end.send(InterruptionFrame())
            await end.until(InterruptionFrame)
            await end.turn("Then.")
            context = end.of(TTSStoppedFrame)[-1].context_id
            heard = b"".join(f.audio for f in end.of(TTSAudioRawFrame) if f.context_id == context)
            assert heard == undisturbed


@in_loop
async def test_an_interruption_before_the_first_token_ends_the_stream_that_was_opened() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame())
        while not engine.active_streams:
            await asyncio.sleep(0.01)
        await end.send(InterruptionFrame())
        await end.until(InterruptionFrame)
        await idle(engine)
        await end.turn("Still here.")
        assert end.words == ["Still", "here"]


@in_loop
async def test_an_interruption_between_first_token_and_first_audio_leaves_nothing_to_hear() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame(), *tokens("Hello"))
        await end.until(TTSStartedFrame)
        await end.send(InterruptionFrame())
        await end.until(InterruptionFrame)
        await end.turn("Next one.")
        assert end.words == ["Next", "one"]
        assert end.errors == []


@pytest.mark.xfail(not hasattr(TTSContext, "interruptible"), reason="new in Pipecat 1.13", run=False)
@in_loop
async def test_what_must_not_be_interrupted_is_said_to_its_end() -> None:
    async with tones() as engine, line(VivavoceTTSService(engine=engine, lead_s=0.3)) as end:
        warning = TTSSpeakFrame("This call is recorded for training.")
        warning.interruptible = False
        await end.send(warning)
        await end.until(TTSAudioRawFrame)
        await end.send(InterruptionFrame())
        await end.until(TTSStoppedFrame)
        assert end.words == ["This", "call", "is", "recorded", "for", "training"]


@in_loop
async def test_what_an_llm_still_sends_of_an_interrupted_reply_is_not_spoken() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(LLMFullResponseStartFrame(), *tokens("Hello there"))
        await end.until(TTSStartedFrame)
        await end.send(InterruptionFrame())
        await end.until(InterruptionFrame)
        await end.send(LLMTextFrame(", old"), LLMTextFrame(" friend."), LLMFullResponseEndFrame())
        await end.turn("Next one.")
        assert end.words == ["Next", "one"]
        assert end.errors == []


@in_loop
async def test_text_outside_of_a_reply_is_spoken_and_its_end_is_not_waited_for() -> None:
    """Pipecat opens a context for it, and would wait for its end until the context is given up."""
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(InterruptionFrame())
        await end.send(TextFrame("."), TextFrame("Hello"))
        await end.until(TTSStoppedFrame, 2)
        assert [word for word in end.words if word] == ["Hello"]
        await end.turn("Next one.")
        assert end.words[-2:] == ["Next", "one"]
        assert end.errors == []
        await idle(engine)


# Timeouts of Pipecat's


@in_loop
async def test_an_engine_slower_than_pipecats_patience_loses_no_word() -> None:
    """With Pipecat's own 3 s the rest would be dropped, and remembered as said."""

    class Slow(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            if any(turn.segment and turn.segment.words[0].text == "late" for turn in turns):
                time.sleep(3.5)
            return super().step(worker, turns)

    async with tones(Slow()) as engine, line(at_once(engine)) as end:
        await end.turn("One two. late three. Four.")
        assert end.words == ["One", "two", "late", "three", "Four"]
        assert len(end.of(TTSStoppedFrame)) == 1
        assert end.errors == []


def test_an_engine_is_given_up_on_before_pipecat_takes_its_text_for_said() -> None:
    assert audio_context.STALL_TIMEOUT_S < base_tts_service.STOP_FRAME_TIMEOUT_S


@pytest.mark.parametrize(
    ("begun", "rest"), [("One two. ", "Three, four."), ("One two. Three, ", "four."), ("One two. ", "")]
)
def test_a_writer_slower_than_pipecats_patience_is_spoken_whole(begun: str, rest: str) -> None:
    async def speak() -> None:
        async with tones() as engine, line(at_once(engine, stop_frame_timeout_s=0.2)) as end:
            await end.send(LLMFullResponseStartFrame(), *tokens(begun))
            await end.until(TTSAudioRawFrame)
            await asyncio.sleep(0.6)
            await end.send(*tokens(rest), LLMFullResponseEndFrame())
            await end.until(LLMFullResponseEndFrame)
            await end.send(*reply("Next one."))
            said = f"{begun}{rest} Next one".replace(",", "").replace(".", "").split()
            await end.until(TTSTextFrame, len(said))
            assert end.words == said
            assert end.errors == []
            await idle(engine)

    asyncio.run(speak())


@in_loop
async def test_a_pause_of_the_writer_costs_no_sample() -> None:
    """Pipecat's resamplers forget what they hold after 0.2 s, and skip in mid-word."""
    text = "One two three, and four. Five."
    async with tones() as engine:
        async with line(at_once(engine), sample_rate=8_000) as end:
            await end.turn(text)
            at_a_stroke = end.audio
        async with line(at_once(engine), sample_rate=8_000) as end:
            await end.send(LLMFullResponseStartFrame())
            for part in ("One two three, an", "d four. Fi", "ve."):
                await end.send(LLMTextFrame(part))
                await asyncio.sleep(0.3)
            await end.send(LLMFullResponseEndFrame())
            await end.until(TTSStoppedFrame)
            assert end.audio == at_a_stroke


# Pace


@in_loop
async def test_audio_is_handed_on_at_the_pace_of_the_listener() -> None:
    """0.5 s ahead, and what was already taken from the engine; not the 20 s that the text would be."""
    async with tones() as engine, line(VivavoceTTSService(engine=engine, lead_s=0.5)) as end:
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        await end.send(*reply("One two three four five six, " * 20))
        await end.until(TTSAudioRawFrame, 2)
        await asyncio.sleep(0.3)
        assert len(end.audio) / 48_000 < loop.time() - begun_at + 1.5
        await end.send(InterruptionFrame())
        await end.until(InterruptionFrame)


# Failures


class BrittleBackend(StandInBackend):
    """Fails at the word "fail", that is, in mid-speech."""

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        return [
            RuntimeError("out of tones")
            if self._breaks(turn)
            else super(BrittleBackend, self).step(0, [turn])[0]
            for turn in turns
        ]

    def _breaks(self, turn: SlotTurn) -> bool:
        slot = self._open[turn.slot]
        segment = turn.segment or slot.segment
        word = 0 if turn.segment is not None else slot.word
        return segment is not None and segment.words[word].text == "fail"


@in_loop
async def test_an_engine_that_fails_in_mid_reply_is_one_error_and_no_invention() -> None:
    async with tones(BrittleBackend()) as engine:
        service = at_once(engine)
        async with line(service) as end:
            await end.turn("One two. Then I fail and say no more. Never heard.")
            assert [error.category for error in end.errors] == [ErrorCategory.SERVER]
            assert "out of tones" in end.errors[0].error
            said = " ".join(end.words)
            assert said.startswith("One two")
            assert "more" not in said
            assert "heard" not in said
            await end.turn("Fine again.")
            assert end.words[-2:] == ["Fine", "again"]
            assert service.is_usable
            assert len(end.errors) == 1
        await idle(engine)


@in_loop
async def test_a_neighbour_does_not_notice_a_failure() -> None:
    async with (
        tones(BrittleBackend()) as engine,
        line(at_once(engine)) as broken,
        line(at_once(engine)) as well,
    ):
        await asyncio.gather(broken.turn("So, fail now."), well.turn("One two three four."))
        assert well.words == ["One", "two", "three", "four"]
        assert well.errors == []
        assert len(broken.errors) == 1


@in_loop
async def test_a_full_house_is_an_error_for_this_reply_and_does_not_write_the_service_off() -> None:
    async with tones(max_streams=1) as engine:
        service = at_once(engine)
        async with line(service) as end:
            with_the_only_slot = engine.stream()
            for _ in range(4):
                await end.turn("Is anybody there?")
            assert [error.category for error in end.errors] == [ErrorCategory.RATE_LIMIT] * 4
            assert end.words == []
            assert service.is_usable
            with_the_only_slot.cancel()
            await end.turn("At last.")
            assert end.words == ["At", "last"]


@in_loop
async def test_an_engine_that_goes_silent_is_given_up_on() -> None:
    silent = threading.Event()

    class Stuck(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            if any(turn.segment and turn.segment.words[0].text == "stuck" for turn in turns):
                silent.wait()
            return super().step(worker, turns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audio_context, "STALL_TIMEOUT_S", 0.3)
        async with tones(Stuck()) as engine, line(at_once(engine)) as end:
            try:
                await end.turn("One. stuck two.")
                assert "gave nothing for 0.3 s" in end.errors[0].error
                assert end.words == ["One"]
            finally:
                silent.set()


@in_loop
async def test_an_engine_closed_under_a_call_is_one_clear_error() -> None:
    async with tones() as engine, line(VivavoceTTSService(engine=engine)) as end:
        await end.send(*reply("One two three four five six. " * 10))
        await end.until(TTSAudioRawFrame)
        await engine.aclose()
        await end.until(TTSStoppedFrame)
        assert "engine was closed" in end.errors[0].error


# Settings


@in_loop
async def test_every_setting_has_a_value_from_the_start() -> None:
    async with tones() as engine:
        settings = VivavoceTTSService(engine=engine).settings
        assert settings.given_fields() == {
            "model": "default",
            "voice": "tone-440",
            "language": "zxx",
            "speed": 1.0,
        }


@in_loop
async def test_a_new_voice_speaks_from_the_next_turn_on() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.turn("One two three.")
        before = len(end.audio)
        await end.send(TTSUpdateSettingsFrame(delta=VivavoceTTSService.Settings(voice="tone-660")))
        await end.turn("One two three.")
        assert pitch(end.audio[:before]) == pytest.approx(440, abs=5)
        assert pitch(end.audio[before:]) == pytest.approx(660, abs=5)


@in_loop
async def test_a_new_voice_also_counts_for_a_turn_that_has_been_opened() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.send(
            LLMFullResponseStartFrame(),
            TTSUpdateSettingsFrame(delta=VivavoceTTSService.Settings(voice="tone-660")),
            *tokens("One two three."),
            LLMFullResponseEndFrame(),
        )
        await end.until(TTSStoppedFrame)
        assert pitch(end.audio) == pytest.approx(660, abs=5)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [({"voice": "nobody"}, "no voice 'nobody'"), ({"speed": 9.0}, "got speed 9.0; it must be 0.5 to 2.0")],
)
def test_settings_that_cannot_be_are_refused_and_the_old_ones_stay(wrong: Any, complaint: str) -> None:
    async def change() -> None:
        async with tones() as engine:
            service = at_once(engine)
            async with line(service) as end:
                await end.send(TTSUpdateSettingsFrame(delta=VivavoceTTSService.Settings(**wrong)))
                await end.until_error()
                assert complaint in end.errors[0].error
                assert service.settings.voice == "tone-440"
                assert service.is_usable
                await end.turn("As before.")
                assert end.words == ["As", "before"]

    asyncio.run(change())


@in_loop
async def test_a_voice_that_does_not_exist_is_said_at_the_first_reply() -> None:
    async with tones() as engine:
        service = at_once(engine, settings=VivavoceTTSService.Settings(voice="nobody"))
        async with line(service) as end:
            await end.send(*reply("Hello."))
            await end.until_error()
            assert "no voice 'nobody'; loaded: tone-440, tone-660" in end.errors[0].error
            assert not service.is_usable


async def warned_of(backend: StandInBackend, language: str) -> list[str]:
    """What is logged where a bot in that language is made."""
    said: list[str] = []
    handler = logger.add(lambda message: said.append(str(message)), level="WARNING")
    logger.enable("vivavoce")
    try:
        async with tones(backend) as engine:
            VivavoceTTSService(engine=engine, settings=VivavoceTTSService.Settings(language=language))
    finally:
        logger.remove(handler)
    return said


class Polyglot(StandInBackend):
    """A voice of many languages; remembers in which it was asked to read."""

    def __init__(self) -> None:
        super().__init__()
        self.voices = Voices((Voice("tone-440", MULTIPLE_LANGUAGES, "a tone"),))
        self.asked: list[str | None] = []

    def open_slot(self, request: SlotRequest) -> int:
        self.asked.append(request.delivery.language)
        return super().open_slot(request)


@in_loop
async def test_another_language_than_the_voices_is_warned_of() -> None:
    (said,) = await warned_of(StandInBackend(), "de-DE")
    assert "speaks zxx, not de-DE" in said


@in_loop
async def test_a_voice_of_many_languages_is_warned_of_one_whose_numbers_are_not_read() -> None:
    assert await warned_of(Polyglot(), "de-DE") == []
    (said,) = await warned_of(Polyglot(), "pt-BR")
    assert "numbers in pt-BR will be read as in English" in said


@in_loop
async def test_text_is_read_in_the_language_of_the_settings() -> None:
    for language, asked in (("de-DE", "de-DE"), ("pt-BR", MULTIPLE_LANGUAGES), (None, MULTIPLE_LANGUAGES)):
        backend = Polyglot()
        settings = VivavoceTTSService.Settings(language=language)
        async with tones(backend) as engine, line(at_once(engine, settings=settings)) as end:
            await end.turn("One two three.")
        assert set(backend.asked[1:]) == {asked}  # the first is the engine's own, which warms up


# Ends


@in_loop
async def test_an_end_frame_lets_the_reply_be_said() -> None:
    async with tones() as engine:
        async with line(at_once(engine)) as end:
            await end.send(*reply("One two three four. Five."))
        assert end.words == ["One", "two", "three", "four", "Five"]
        await idle(engine)


@pytest.mark.parametrize(
    "stage",
    [
        "before the turn",
        "before the text",
        "in the text",
        "in the audio",
        "with a second reply in the line",
        "behind an interruption",
        "behind the audio",
        "behind a failure",
    ],
)
def test_a_pipeline_can_be_cancelled_at_each_stage(stage: str) -> None:
    async def cancel() -> None:
        async with tones(BrittleBackend()) as engine:
            async with line(VivavoceTTSService(engine=engine)) as end:
                match stage:
                    case "before the text":
                        await end.send(LLMFullResponseStartFrame())
                        await end.until(LLMFullResponseStartFrame)
                    case "in the text":
                        await end.send(LLMFullResponseStartFrame(), *tokens("One two thr"))
                        await end.until(TTSStartedFrame)
                    case "in the audio":
                        await end.send(*reply("One two three four five six. " * 9))
                        await end.until(TTSAudioRawFrame, 2)
                    case "with a second reply in the line":
                        await end.send(TTSSpeakFrame("One two three. " * 9), TTSSpeakFrame("Four. " * 9))
                        await end.until(TTSAudioRawFrame, 2)
                    case "behind an interruption":
                        await end.send(*reply("One two three four five six. " * 9))
                        await end.until(TTSAudioRawFrame, 2)
                        await end.send(InterruptionFrame())
                    case "behind the audio":
                        await end.turn("One.")
                    case "behind a failure":
                        await end.send(*reply("One, then fail."))
                        await end.until_error()
                await end.send(CancelFrame())
                await end.until(CancelFrame)
                await idle(engine)
                said = len(end.audio)
            assert len(end.audio) == said

    asyncio.run(cancel())


@in_loop
async def test_teardown_may_come_thrice() -> None:
    async with tones() as engine:
        service = at_once(engine)
        async with line(service) as end:
            await end.turn("Bye now.")
        await service.cleanup()
        await idle(engine)


@in_loop
async def test_an_engine_given_is_not_closed_and_one_of_ours_is() -> None:
    opened: list[Engine] = []
    really_open = Engine.open

    async def open_tones(bundle: str) -> Engine:
        opened.append(await really_open(bundle, backend=StandInBackend()))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        async with tones() as engine:
            async with line(at_once(engine)) as end:
                await end.turn("Given.")
            engine.stream().cancel()  # is still open
            patch.setattr(Engine, "open", open_tones)
            async with line(VivavoceTTSService(lead_s=math.inf)) as end:
                await end.turn("My own.")
                assert end.words == ["My", "own"]
    assert len(opened) == 1
    assert not any(thread.is_alive() for thread in opened[0]._threads)


@in_loop
async def test_fifty_turns_leave_no_task_behind() -> None:
    async with tones() as engine, line(at_once(engine)) as end:
        await end.turn("Warm up.")
        before = len(asyncio.all_tasks())
        for number in range(50):
            await end.send(*reply(f"Turn {number}, here we go."))
            if number % 3 == 0:
                await end.until(TTSAudioRawFrame, number + 1)
                await end.send(InterruptionFrame())
        await end.turn("The end.")
        while engine.active_streams or len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)
        assert threading.active_count() < 20


@in_loop
async def test_replies_that_the_voice_cannot_read_are_errors_and_do_not_write_the_service_off() -> None:
    async with tones() as engine:
        service = at_once(engine)
        async with line(service, sample_rate=8_000) as end:
            for text in ("你好。", "こんにちは。", "안녕하세요.", "Well."):
                await end.turn(text)
            assert service.is_usable
            assert len(end.errors) == 3 and "can read no word" in end.errors[0].error
            assert end.words == ["Well"]
