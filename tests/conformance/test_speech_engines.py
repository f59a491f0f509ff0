"""Each ``SpeechEngine`` keeps the promises of the interface: of one bundle, of two, of replicas."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import numpy as np
import pytest

from shared.cluster.local_replicas import LocalReplicas
from shared.engine.engine_streams import TEXT, content, pcm, speak
from shared.engine.standin_backend import WORD_S, StandInBackend
from shared.event_loop import until
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.engine_set import EngineSet, NamedEngine
from vivavoce.tts_engine.errors import (
    BadRequest,
    BadText,
    LanguageNotSpoken,
    Overloaded,
    StreamClosed,
    SynthesisFailed,
    UnknownVoice,
)
from vivavoce.tts_engine.reading.prosody import Prosody
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.speech_engine import SpeechEngine, SpeechStream, TextSink
from vivavoce.tts_engine.stream_request import Delivery, StreamRequest

MakeBackend = Callable[[], StandInBackend]
OpenEngine = Callable[[EngineConfig, MakeBackend], AbstractAsyncContextManager[SpeechEngine]]
CONFIG = EngineConfig(SchedulerPolicy(max_streams=2), max_characters=200)


def make_backend() -> StandInBackend:
    return StandInBackend((440, 330))


@asynccontextmanager
async def one_engine(config: EngineConfig, make: MakeBackend) -> AsyncIterator[SpeechEngine]:
    async with await Engine.open(backend=make(), config=config, warm_up=False) as engine:
        yield engine


@asynccontextmanager
async def engines_of_two_bundles(config: EngineConfig, make: MakeBackend) -> AsyncIterator[SpeechEngine]:
    first = await Engine.open(backend=make(), config=config, warm_up=False)
    other = await Engine.open(backend=StandInBackend((220,)), config=config, warm_up=False)
    async with EngineSet((NamedEngine("first", first), NamedEngine("other", other))) as engine:
        yield engine


@asynccontextmanager
async def engine_of_replicas(config: EngineConfig, make: MakeBackend) -> AsyncIterator[SpeechEngine]:
    directory = LocalReplicas()
    for _ in range(2):
        await directory.add(backend=make(), config=config)
    async with await ClusterEngine.connect(directory, config) as engine:
        yield engine


ENGINES = {"one": one_engine, "set": engines_of_two_bundles, "cluster": engine_of_replicas}


@pytest.fixture(params=ENGINES)
def open_engine(request: pytest.FixtureRequest) -> OpenEngine:
    opened: OpenEngine = ENGINES[request.param]
    return opened


def run(
    open_engine: OpenEngine,
    test: Callable[[SpeechEngine], Coroutine[Any, Any, None]],
    make: MakeBackend = make_backend,
) -> None:
    async def opened() -> None:
        async with asyncio.timeout(60), open_engine(CONFIG, make) as engine:
            await test(engine)

    asyncio.run(opened())


def missing(implementation: object, interface: type) -> list[str]:
    """The public methods and properties that an object has from its interface only."""
    promised = {name: member for name, member in vars(interface).items() if not name.startswith("_")}
    return [name for name, member in promised.items() if getattr(type(implementation), name) is member]


def test_all_of_the_interface_is_there(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        assert missing(engine, SpeechEngine) == ["stream", "convert"]  # which the interface has
        assert engine.active_streams == 0 and engine.max_streams >= 2 and engine.refusal() is None
        assert engine.compute_s_per_audio_s >= 0.0 and engine.process_ids == () and engine.lexicon is None
        assert engine.voices.default.id == "tone-440" and "tone-330" in engine.voices
        async with engine.stream() as stream:
            assert missing(stream, SpeechStream) == missing(stream, TextSink) == []
            assert engine.active_streams == 1

    run(open_engine, test)


def test_equal_requests_give_equal_speech_however_the_text_is_split(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        async with await Engine.open(backend=make_backend(), warm_up=False) as alone:
            expected = await speak(alone, TEXT, voice="tone-330", seed=7)
        for split in (0, 3):
            spoken = await speak(engine, TEXT, split=split, voice="tone-330", seed=7)
            assert b"".join(chunk.pcm for chunk in spoken) == pcm(expected)
            assert [chunk.words for chunk in spoken] == [chunk.words for chunk in expected]
            assert content(spoken) == content(expected)
        by_value = engine.open_stream(StreamRequest("tone-330", seed=7))
        by_value.push_text(TEXT)
        by_value.end_input()
        assert content([chunk async for chunk in by_value]) == content(expected)

    run(open_engine, test)


def test_chunks_follow_each_other_and_name_their_text(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        chunks = await speak(engine, TEXT)
        starts = [chunk.samples[0] for chunk in chunks]
        assert starts == [0, *(chunk.samples[1] for chunk in chunks[:-1])]
        assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
        assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        words = [word for chunk in chunks for word in chunk.words]
        assert [TEXT[word.text_start : word.text_stop] for word in words] == [word.text for word in words]
        assert len(words) == len(TEXT.split())

    run(open_engine, test)


def test_marks_rates_and_pauses_take_effect_where_they_stand(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        async with engine.stream() as stream:
            stream.mark("begin")
            stream.push_text("One two. ", pause_s=0.5)
            stream.mark("middle")
            stream.set_prosody(Prosody(1.5))
            stream.push_text("Three.")
            stream.mark("end")
            stream.end_input()
            assert stream.text == "One two. Three."
            chunks = [chunk async for chunk in stream]
        marks = [mark for chunk in chunks for mark in chunk.marks]
        assert [mark.name for mark in marks] == ["begin", "middle", "end"]
        words = [word for chunk in chunks for word in chunk.words]
        assert marks[0].at_s == words[0].start_s and marks[1].at_s <= words[2].start_s
        assert words[2].start_s == pytest.approx(2 * WORD_S + 0.5, abs=0.001)
        assert stream.unread_characters == 0

    run(open_engine, test)


def test_flush_speaks_what_is_buffered(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        async with engine.stream() as stream:
            stream.push_text("one two")
            stream.flush()
            spoken: list[str] = []
            while len(spoken) < 2:
                spoken += [word.text for word in (await anext(stream)).words]
            assert spoken == ["one", "two"]

    run(open_engine, test)


def test_a_stream_that_ended_takes_no_more(open_engine: OpenEngine) -> None:
    def refused(stream: SpeechStream) -> None:
        for act in (
            lambda: stream.push_text("more"),
            lambda: stream.set_prosody(Prosody(2.0)),
            lambda: stream.set_language("zxx"),
            lambda: stream.mark("late"),
            stream.flush,
        ):
            with pytest.raises(StreamClosed):
                act()

    async def test(engine: SpeechEngine) -> None:
        async with engine.stream() as ended:
            ended.push_text("One.")
            ended.end_input()
            ended.end_input()
            refused(ended)
            assert [chunk async for chunk in ended][-1].final
            with pytest.raises(StopAsyncIteration):
                await anext(ended)
        cancelled = engine.stream()
        cancelled.push_text(TEXT)
        cancelled.cancel()
        cancelled.cancel()
        refused(cancelled)
        assert [chunk async for chunk in cancelled] == []

    run(open_engine, test)


def test_requests_and_texts_are_checked(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        with pytest.raises(UnknownVoice):
            engine.stream(voice="nobody")
        for options in ({"speed": 0.4}, {"speed": 2.1}, {"seed": -1}):
            with pytest.raises(BadRequest):
                engine.stream(**options)  # type: ignore[arg-type]
        assert engine.active_streams == 0
        async with engine.stream() as stream:
            stream.push_text("One two. ")
            with pytest.raises(BadText, match="at most 200"):
                stream.push_text("x" * 200)
            stream.end_input()
            words = [word.text async for chunk in stream for word in chunk.words]
        assert words == ["One", "two"]

    run(open_engine, test)


def test_a_language_that_is_not_spoken_is_refused(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        with pytest.raises(LanguageNotSpoken):
            engine.language_spoken("tone-330", "de")
        with pytest.raises(UnknownVoice):
            engine.language_spoken("nobody", "de")
        async with engine.stream() as stream:
            with pytest.raises(LanguageNotSpoken):
                stream.set_language("de")
            stream.push_text("One.")
            stream.end_input()
            assert [chunk async for chunk in stream][-1].final

    run(open_engine, test)


def test_cancel_ends_the_speech_and_makes_room(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        async with engine.stream() as stream, engine.stream():
            stream.push_text(TEXT)
            stream.set_deadline(0.0)
            await anext(stream)
            assert engine.active_streams == 2
            refusal = engine.refusal()
            assert refusal is not None and refusal.retry_after_s > 0
            with pytest.raises(Overloaded):
                engine.stream()
            assert _refusals(engine) == 1
            stream.cancel()
            await until(lambda: engine.active_streams == 1)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert [chunk.final for chunk in await speak(engine, "One.")][-1]
        await until(lambda: engine.active_streams == 0)

    run(open_engine, test)


def _refusals(engine: SpeechEngine) -> float:
    (family,) = engine.metrics.refusals.collect()
    return sum(sample.value for sample in family.samples if sample.name.endswith("_total"))


class FailingBackend(StandInBackend):
    """Fails in a text of five words."""

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        if any(turn.segment is not None and len(turn.segment.words) == 5 for turn in turns):
            raise RuntimeError("broken")
        return super().step(worker, turns)


def test_a_fault_of_the_voice_ends_its_own_stream_with_one_error(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        async with engine.stream() as failing, engine.stream() as other:
            failing.push_text("One two three four five.")
            other.push_text("One two.")
            for stream in (failing, other):
                stream.end_input()
            with pytest.raises(SynthesisFailed, match="the voice failed: broken"):
                await anext(failing)
            with pytest.raises(StopAsyncIteration):
                await anext(failing)
            assert [chunk async for chunk in other][-1].final
        assert engine.metrics.failures._value.get() == 1
        await until(lambda: engine.active_streams == 0)

    run(open_engine, test, lambda: FailingBackend((440, 330)))


def test_a_recording_is_converted_or_refused_clearly(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        with pytest.raises(BadRequest, match=r"convert|clone"):
            await engine.convert(np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE)
        assert engine.active_streams == 0

    run(open_engine, test)


def test_closing_ends_every_stream_and_opens_none(open_engine: OpenEngine) -> None:
    async def test(engine: SpeechEngine) -> None:
        stream = engine.stream(delivery=Delivery(listener_rate=8_000), trace_id="call 7")
        stream.push_text(TEXT)
        await anext(stream)
        await engine.aclose()
        await engine.aclose()
        assert [chunk async for chunk in stream] == []
        with pytest.raises(BadRequest, match="closed"):
            engine.stream()

    run(open_engine, test)
