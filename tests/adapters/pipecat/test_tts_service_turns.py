"""The engine's Pipecat service in real pipelines: frames, words and audio of turns without interruptions.

A word of the stand-in voice lasts exactly 0.2 s.
"""

import ast
import asyncio
import inspect
import textwrap
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from pipecat.frames.frames import (
    AggregatedTextFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.metrics.metrics import TTFAMetricsData, TTFBMetricsData, TTSUsageMetricsData
from pipecat.services.tts_service import TextAggregationMode

from shared.engine.standin_backend import WORD_S
from shared.event_loop import in_loop
from shared.gateways.pipecat_pipeline import (
    StoppedClock,
    open_engine,
    run_pipeline,
    tokens,
    unpaced_service,
    until_idle,
)
from vivavoce.adapters.pipecat import (
    base_tts_service,
    engine_tts_service,
    remote_tts_service,
    word_timing,
)
from vivavoce.adapters.pipecat.audiosocket import input as audiosocket_input
from vivavoce.adapters.pipecat.audiosocket import output as audiosocket_output
from vivavoce.adapters.pipecat.audiosocket import transport

SPOKEN = (TTSStartedFrame, TTSAudioRawFrame, TTSTextFrame, TTSStoppedFrame, LLMFullResponseEndFrame)


# One turn


@in_loop
async def test_frames_leave_in_the_order_that_pipecat_requires() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.turn("One two. Three.")
        await pipeline.until(LLMFullResponseEndFrame)
        kinds = [type(frame) for frame in pipeline.frames]
        assert kinds[1:3] == [LLMFullResponseStartFrame, TTSStartedFrame]
        assert kinds[-2:] == [TTSStoppedFrame, LLMFullResponseEndFrame]
        assert kinds.index(TTSAudioRawFrame) < kinds.index(TTSTextFrame)
        assert kinds.count(TTSStartedFrame) == kinds.count(TTSStoppedFrame) == 1
        assert {frame.context_id for frame in pipeline.of(*SPOKEN[:4])} == {
            pipeline.of(TTSStartedFrame)[0].context_id
        }
        # Pipecat copies audio frames, so that a subclass would lose its type
        assert {type(frame) for frame in pipeline.of(TTSAudioRawFrame)} == {TTSAudioRawFrame}


@in_loop
async def test_word_frames_have_the_words_of_the_text_and_the_times_of_the_audio() -> None:
    async with (
        open_engine() as engine,
        run_pipeline(unpaced_service(engine), clock=StoppedClock()) as pipeline,
    ):
        await pipeline.turn("One two, three four. Five.")
        assert pipeline.words == ["One", "two", "three", "four", "Five"]
        first = pipeline.of(TTSTextFrame)[0].pts
        times_s = [(frame.pts - first) / 1e9 for frame in pipeline.of(TTSTextFrame)]
        # a word is 0.2 s; the pause is 0.25 s after a clause and 0.32 s after a sentence
        assert times_s == pytest.approx([0.0, 0.2, 0.65, 0.85, 1.37], abs=0.001)


@in_loop
async def test_the_conversation_gets_the_text_as_written() -> None:
    text = "Well, it's $42.50 (net), Dr. Who; e.g. 3-4 items — ok? Yes!"
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.turn(text)
        spoken = " ".join(frame.raw_text or frame.text for frame in pipeline.of(TTSTextFrame))
        assert spoken.split() == text.split()


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_any_split_of_the_text_gives_the_same_words_and_audio(size: int) -> None:
    text = "Hello there, one two. That is three hundred, or 4,000 words!"

    async def speak() -> tuple[list[str], bytes]:
        async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
            await pipeline.send(LLMFullResponseStartFrame(), *tokens(text, size), LLMFullResponseEndFrame())
            await pipeline.until(TTSStoppedFrame)
            return pipeline.words, pipeline.audio

    words, audio = asyncio.run(speak())
    assert " ".join(words).replace(",", "").replace(".", "").replace("!", "").split() == (
        "Hello there one two That is three hundred or 4000 words".split()
    )
    assert len(audio) / 48_000 == pytest.approx(0.02 + 13 * WORD_S + 0.25 + 0.32 + 0.25, abs=0.5)


@in_loop
async def test_words_of_an_unfinished_sentence_are_pushed_with_its_first_clause() -> None:
    """Pipecat's own aggregation waits for the end of the sentence."""
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame(), *tokens("One two three, and then", size=4))
        await pipeline.until(TTSTextFrame, 3)
        assert pipeline.words == ["One", "two", "three"]
        announced = [frame.text for frame in pipeline.of(AggregatedTextFrame) if frame.will_be_spoken]
        assert announced == ["One two three,"]


@in_loop
async def test_words_played_before_a_pause_of_the_llm_survive_an_interruption() -> None:
    """An LLM may call a tool after a sentence; Pipecat ends one only at the next one's first letter."""
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame(), *tokens("One two. "))
        await pipeline.until(TTSTextFrame, 2)
        await pipeline.send(InterruptionFrame())
        await pipeline.turn("Next one.")
        assert pipeline.words == ["One", "two", "Next", "one"]


@in_loop
async def test_the_first_clause_is_spoken_before_the_reply_is_complete() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame(), *tokens("Hello there, I "))
        await pipeline.until(TTSAudioRawFrame)
        assert pipeline.of(TTSStoppedFrame) == []


@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 24_000])
def test_audio_has_the_pipeline_s_rate_and_ends_with_the_speech(sample_rate: int) -> None:
    async def speak() -> None:
        async with (
            open_engine() as engine,
            run_pipeline(unpaced_service(engine), sample_rate=sample_rate) as pipeline,
        ):
            await pipeline.turn("One two three.")
            assert {frame.sample_rate for frame in pipeline.of(TTSAudioRawFrame)} == {sample_rate}
            assert len(pipeline.audio) == 2 * round((3 * WORD_S + 0.02) * sample_rate)
            assert peak(pipeline.audio[-2 * round(0.015 * sample_rate) :]) < 200
            assert peak(pipeline.audio[-2 * round(0.030 * sample_rate) :]) > 2_000
            assert pipeline.words == ["One", "two", "three"]

    asyncio.run(speak())


@in_loop
async def test_sentence_aggregation_speaks_every_sentence() -> None:
    async with open_engine() as engine:
        service = unpaced_service(engine, text_aggregation_mode=TextAggregationMode.SENTENCE)
        async with run_pipeline(service) as pipeline:
            await pipeline.turn("One two. Three four.")
            assert pipeline.words == ["One", "two", "Three", "four"]


@in_loop
async def test_metrics_frames_report_usage_ttfb_and_ttfa() -> None:
    async with open_engine() as engine:
        async with run_pipeline(
            unpaced_service(engine), enable_metrics=True, enable_usage_metrics=True
        ) as pipeline:
            await pipeline.turn("One two three.")
            data = [item for frame in pipeline.of(MetricsFrame) for item in frame.data]
        usage = [item.value for item in data if isinstance(item, TTSUsageMetricsData)]
        assert usage == [len("One two three.")]
        assert any(isinstance(item, TTFBMetricsData) and item.value > 0 for item in data)
        assert any(isinstance(item, TTFAMetricsData) for item in data)


@in_loop
async def test_replies_without_speakable_text_become_silence_without_an_error() -> None:
    """Pipecat stops using a service after three contexts without audio."""
    async with open_engine() as engine:
        service = unpaced_service(engine)
        async with run_pipeline(service, sample_rate=8_000) as pipeline:
            for text in ("…", "\N{GRINNING FACE}", "!?", "Well."):
                await pipeline.turn(text)
            assert service.is_usable
            assert pipeline.errors == []
            silent = [frame for frame in pipeline.of(TTSAudioRawFrame) if not any(frame.audio)]
            assert len(silent) >= 3
            assert all(len(frame.audio) >= 320 for frame in silent[:3])


@in_loop
async def test_a_turn_without_text_closes_its_stream_without_an_error() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame(), LLMFullResponseEndFrame())
        await pipeline.turn("Then.")
        await until_idle(engine)
        assert pipeline.errors == []


@in_loop
async def test_a_turn_s_stream_opens_before_its_first_token() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame())
        while not engine.active_streams:
            await asyncio.sleep(0.01)
        await pipeline.send(*tokens("Hi there. "), LLMFullResponseEndFrame())
        await pipeline.until(TTSStoppedFrame)


# Coexistence with Pipecat


@in_loop
async def test_speech_uses_no_thread_of_the_event_loop_s_default_executor() -> None:
    """aiortc encodes Opus in that executor; occupying its threads delays the packets of every call."""
    released = threading.Event()
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        blocked = loop.run_in_executor(None, released.wait)
        try:
            await pipeline.turn("One two three.")
            assert pipeline.words == ["One", "two", "three"]
        finally:
            released.set()
            await blocked


@pytest.mark.parametrize(
    ("module", "prefixes"),
    [
        (base_tts_service, ("_vivavoce_", "vivavoce_")),
        (engine_tts_service, ("_vivavoce_",)),
        (remote_tts_service, ("_vivavoce_",)),
        (word_timing, ("_vivavoce_",)),
        (transport, ("_audiosocket_",)),
        (audiosocket_input, ("_audiosocket_",)),
        (audiosocket_output, ("_audiosocket_",)),
    ],
)
def test_attributes_of_pipecat_subclasses_have_a_prefix_of_vivavoce(
    module: ModuleType, prefixes: tuple[str, ...]
) -> None:
    """An attribute ``_next`` of a transport once replaced Pipecat's link to the next processor."""
    attributes_of_pipecat = {"_settings", "_aggregated_frame_sequencer", "caller"}
    subclasses = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and _inherits_state(value)
    ]
    assert subclasses
    for subclass in subclasses:
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(subclass)))):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    assert name.startswith(prefixes) or name in attributes_of_pipecat, (
                        subclass.__name__,
                        name,
                    )


def _inherits_state(value: type) -> bool:
    bases = [base for base in value.__mro__[1:] if base.__module__.startswith("pipecat.")]
    return any("__init__" in vars(base) for base in bases)


# Several contexts


def peak(pcm: bytes) -> int:
    return int(np.abs(np.frombuffer(pcm, "<i2").astype(int)).max())
