"""Tests of the engine over a stand-in backend: order, limits, cancellation, failures, determinism.

Tests that do not look into the backend run with it in this process and in a child process.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shared.standin_backend import WORD_S, StandInBackend
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import (
    BadRequest,
    BadText,
    BundleError,
    Overloaded,
    StreamClosed,
    SynthesisFailed,
    UnknownVoice,
)
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream import Stream

TEXT = "One two three four, five six seven eight nine ten. Then eleven and twelve follow!"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def collect(stream: Stream) -> list[AudioChunk]:
    return [chunk async for chunk in stream]


async def speak(engine: Engine, text: str, *, split: int = 0, **how: Any) -> list[AudioChunk]:
    async with engine.stream(**how) as stream:
        size = split or len(text) or 1
        for start in range(0, len(text), size):
            stream.push_text(text[start : start + size])
        stream.end_input()
        return await collect(stream)


def pcm(chunks: Sequence[AudioChunk]) -> bytes:
    return b"".join(chunk.pcm for chunk in chunks)


def content(chunks: Sequence[AudioChunk]) -> list[object]:
    """The chunks without their provenance."""
    return [(chunk.pcm, chunk.samples, chunk.text, chunk.words) for chunk in chunks]


StandIn = Callable[..., StandInBackend | ProcessBackend]


class Processes:
    """Stand-in backends in child processes, one for each set of arguments, reused by all tests."""

    def __init__(self) -> None:
        self._started: dict[str, ProcessBackend] = {}

    def stand_in(self, *arguments: Any, **how: Any) -> ProcessBackend:
        key = repr((arguments, how))
        if key not in self._started:
            backend = ProcessBackend.start_backend(functools.partial(StandInBackend, *arguments, **how))
            self._started[key] = backend
            backend.close = lambda: None  # type: ignore[method-assign]
        return self._started[key]

    def close(self) -> None:
        for backend in self._started.values():
            ProcessBackend.close(backend)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.close()


@pytest.fixture(params=["here", "in a process"])
def stand_in(request: pytest.FixtureRequest, processes: Processes) -> StandIn:
    """Makes stand-in backends."""
    return StandInBackend if request.param == "here" else processes.stand_in


class GatedBackend(StandInBackend):
    """Counts steps and lets a test block them."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.gate = threading.Semaphore(10_000)
        self.steps = 0
        self.stepping = threading.Event()

    def shut(self) -> None:
        while self.gate.acquire(blocking=False):
            pass

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        self.stepping.set()
        self.gate.acquire()
        self.steps += len(turns)
        return super().step(worker, turns)


def test_chunks_are_contiguous_and_the_last_one_alone_is_final(stand_in: StandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            chunks = await speak(engine, TEXT)
            assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
            assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            position = 0
            for chunk in chunks:
                assert chunk.samples == (position, position + len(chunk.pcm) // 2)
                position = chunk.samples[1]

    run(test())


def test_every_word_time_is_where_its_tone_is(stand_in: StandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            chunks = await speak(engine, TEXT)
            words = [word for chunk in chunks for word in chunk.words]
            assert [word.text for word in words] == TEXT.replace(",", "").replace(".", "").replace(
                "!", ""
            ).split()
            samples = np.frombuffer(pcm(chunks), "<i2")
            for word in words:
                assert word.stop_s - word.start_s == pytest.approx(WORD_S)
                middle = round((word.start_s + WORD_S / 2) * SAMPLE_RATE)
                assert np.abs(samples[middle - 100 : middle + 100]).max() > 4000

    run(test())


@pytest.mark.parametrize("split", [1, 2, 3, 7, 20])
def test_the_same_text_gives_the_same_chunks_however_it_is_split(split: int, stand_in: StandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            whole, parts = await speak(engine, TEXT), await speak(engine, TEXT, split=split)
            assert content(whole) == content(parts)

    run(test())


def test_speech_begins_before_the_text_is_complete(stand_in: StandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine, engine.stream() as stream:
            stream.push_text("Good morning, ")
            chunk = await anext(stream)
            assert chunk.words[0].text == "Good"

    run(test())


@pytest.mark.parametrize(
    "text", ["", "   ", "...", "\U0001f642\U0001f642", "\x00\x07\u200b", "\ud800", "!?\n\n---"]
)
def test_a_text_with_nothing_to_say_is_20_ms_of_silence(text: str, stand_in: StandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            (chunk,) = await speak(engine, text)
            assert chunk.final
            assert chunk.pcm == bytes(2 * SAMPLE_RATE // 50)

    run(test())


def test_speech_beyond_full_scale_saturates() -> None:
    class Loud(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            (rendered,) = super().step(worker, turns)
            assert isinstance(rendered, StepResult)
            return [replace(rendered, samples=8 * rendered.samples)]

    async def test() -> None:
        async with await Engine.open(backend=Loud()) as engine:
            samples = np.frombuffer(pcm(await speak(engine, "One.")), "<i2")
        assert (samples.min(), samples.max()) == (-32_768, 32_767)

    run(test())


def test_flush_speaks_what_is_buffered(stand_in: StandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine, engine.stream() as stream:
            stream.push_text("no full stop")
            stream.flush()
            first = await anext(stream)
            assert first.words[0].text == "no"
            stream.push_text("and more")
            stream.end_input()
            rest = await collect(stream)
            assert [word.text for chunk in rest for word in chunk.words] == ["full", "stop", "and", "more"]

    run(test())


def test_a_listener_that_stops_reading_stops_its_own_rendering_only(stand_in: StandIn) -> None:
    async def test() -> None:
        config = EngineConfig(scheduler=SchedulerPolicy(max_unread_s=1.0))
        async with await Engine.open(backend=stand_in(), config=config) as engine:
            alone = content(await speak(engine, TEXT))
            async with engine.stream() as idle:
                idle.push_text("word " * 200 + ".")
                idle.end_input()
                for _ in range(2):
                    assert content(await speak(engine, TEXT)) == alone
                    assert 1.0 <= idle._session.unread_s <= 1.0 + WORD_S
                assert len([word for chunk in await collect(idle) for word in chunk.words]) == 200

    run(test())


def test_cancel_yields_nothing_more_and_frees_the_slot_within_one_step() -> None:
    async def test() -> None:
        backend = GatedBackend()
        async with await Engine.open(backend=backend) as engine:
            backend.shut()
            backend.stepping.clear()
            stream = engine.stream()
            stream.push_text(TEXT)
            await asyncio.to_thread(backend.stepping.wait)
            before = backend.steps
            stream.cancel()
            assert [chunk async for chunk in stream] == []
            backend.gate.release()
            while backend.open_slots:
                await asyncio.sleep(0.001)
            assert backend.steps == before + 1
            assert engine.active_streams == 0
            with pytest.raises(StreamClosed):
                stream.push_text("more")
            backend.gate.release(1000)

    run(test())


def test_a_new_stream_is_admitted_while_a_cancelled_one_is_in_its_last_step() -> None:
    async def test() -> None:
        backend = GatedBackend(slots=1)
        async with await Engine.open(backend=backend) as engine:
            backend.shut()
            backend.stepping.clear()
            first = engine.stream()
            first.push_text(TEXT)
            await asyncio.to_thread(backend.stepping.wait)
            with pytest.raises(Overloaded):
                engine.stream()
            first.cancel()
            try:
                second = engine.stream()
                assert backend.open_slots == 2
                with pytest.raises(Overloaded):
                    engine.stream()
            finally:
                backend.gate.release(1000)
            async with second:
                second.push_text(TEXT)
                second.end_input()
                words = [word.text for chunk in await collect(second) for word in chunk.words]
                assert len(words) == 15
            assert backend.open_slots == 0

    run(test())


def test_leaving_the_block_early_frees_the_slot(stand_in: StandIn) -> None:
    async def test() -> None:
        backend = stand_in()
        async with await Engine.open(backend=backend) as engine:
            async with engine.stream() as stream:
                stream.push_text(TEXT)
                await anext(stream)
            while backend.open_slots:
                await asyncio.sleep(0.001)

    run(test())


def test_a_failing_step_ends_its_own_stream_and_no_other() -> None:
    class Failing(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            rendered = super().step(worker, turns)
            bad = [slot for slot, state in self._open.items() if state.pitch_hz == 666]
            return [
                RuntimeError("no such tone") if turn.slot in bad else result
                for turn, result in zip(turns, rendered, strict=True)
            ]

    async def test() -> None:
        backend = Failing((440, 666), max_batch_size=8)
        async with await Engine.open(backend=backend) as engine:
            good = asyncio.create_task(speak(engine, TEXT))
            with pytest.raises(SynthesisFailed, match="no such tone"):
                await speak(engine, TEXT, voice="tone-666")
            assert (await good)[-1].final
            assert backend.open_slots == 0

    run(test())


def test_a_step_that_raises_ends_its_sessions_and_the_engine_continues() -> None:
    class Raising(StandInBackend):
        fail = False

        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            if self.fail:
                raise MemoryError("device full")
            return super().step(worker, turns)

    async def test() -> None:
        backend = Raising()
        async with await Engine.open(backend=backend) as engine:
            backend.fail = True
            with pytest.raises(SynthesisFailed, match="device full"):
                await speak(engine, TEXT)
            backend.fail = False
            assert (await speak(engine, TEXT))[-1].final
            assert backend.open_slots == 0

    run(test())


def test_bad_requests_are_refused_at_once(stand_in: StandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            with pytest.raises(UnknownVoice, match="tone-440"):
                engine.stream(voice="nobody")
            with pytest.raises(BadRequest, match=r"speed 3"):
                engine.stream(speed=3)
            with pytest.raises(BadRequest, match="seed -1"):
                engine.stream(seed=-1)
            recording = np.zeros(10, np.float32)
            with pytest.raises(BadRequest, match="clones no voice"):
                engine.voices.enroll(recording, 16_000, "hello")
            with pytest.raises(BadRequest, match="clones no voice"):
                await engine.convert(recording, 16_000)
            assert engine.active_streams == 0

    run(test())


def test_a_full_engine_refuses_a_stream_and_counts_the_refusal(stand_in: StandIn) -> None:
    async def test() -> None:
        config = EngineConfig(scheduler=SchedulerPolicy(max_streams=2))
        async with await Engine.open(backend=stand_in(), config=config) as engine:
            with OpenStreams(engine, 2), pytest.raises(Overloaded):
                engine.stream()
            engine.stream().cancel()
            refused = engine.metrics.registry.get_sample_value(
                "vivavoce_refusals_total", {"reason": "streams"}
            )
            assert refused == 1

    run(test())


def test_of_a_thousand_requested_streams_32_are_admitted_and_sound_as_alone(
    stand_in: StandIn,
) -> None:
    pitches = [300 + 50 * index for index in range(32)]

    async def test() -> None:
        async with await Engine.open(backend=stand_in(pitches, slots=32, max_batch_size=8)) as engine:
            alone = [content(await speak(engine, TEXT, voice=f"tone-{pitch}")) for pitch in pitches[:3]]
            spoken, refusals = [], []
            for number in range(1_000):
                try:
                    stream = engine.stream(voice=f"tone-{pitches[number % 32]}")
                except Overloaded as refusal:
                    refusals.append(refusal)
                    continue
                stream.push_text(TEXT)
                stream.end_input()
                spoken.append(stream)
            assert (len(spoken), len(refusals)) == (32, 968)
            assert all(refusal.retry_after_s > 0 for refusal in refusals)
            all_content = [content(chunks) for chunks in await asyncio.gather(*map(collect, spoken))]
            assert all_content[:3] == alone
            assert len({repr(each) for each in all_content}) == 32
            assert (await speak(engine, TEXT))[-1].final

    run(test())


class OpenStreams:
    """Keeps ``count`` streams open inside the block."""

    def __init__(self, engine: Engine, count: int) -> None:
        self.streams = [engine.stream() for _ in range(count)]

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None:
        for stream in self.streams:
            stream.cancel()


def test_a_text_over_the_limit_is_refused_and_the_text_before_it_is_spoken(stand_in: StandIn) -> None:
    async def test() -> None:
        config = EngineConfig(max_characters=50)
        async with (
            await Engine.open(backend=stand_in(), config=config) as engine,
            engine.stream() as stream,
        ):
            stream.push_text("Hello there.")
            with pytest.raises(BadText, match="at most 50"):
                stream.push_text("x" * 39)
            stream.end_input()
            stream.end_input()
            with pytest.raises(StreamClosed):
                stream.push_text("x")
            words = [word.text for chunk in await collect(stream) for word in chunk.words]
            assert words == ["Hello", "there"]

    run(test())


def test_the_error_for_an_unknown_bundle_names_it() -> None:
    async def test() -> None:
        with pytest.raises(BundleError, match="nowhere: no such folder"):
            await Engine.open("nowhere")

    run(test())


def test_closing_the_engine_ends_every_stream_and_thread(stand_in: StandIn) -> None:
    async def test() -> None:
        engine = await Engine.open(backend=stand_in(workers=2))
        stream = engine.stream()
        stream.push_text(TEXT)
        await engine.aclose()
        await engine.aclose()
        assert await collect(stream) == []
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("vivavoce-")]
        with pytest.raises(BadRequest, match="closed"):
            engine.stream()

    run(test())


def test_many_streams_at_once_each_hear_their_own_voice_only(stand_in: StandIn) -> None:
    async def test() -> None:
        pitches = [300 + 100 * index for index in range(20)]
        async with await Engine.open(backend=stand_in(pitches, workers=2)) as engine:
            spoken = await asyncio.gather(
                *(speak(engine, TEXT, voice=f"tone-{pitch}", split=3) for pitch in pitches)
            )
        for pitch, chunks in zip(pitches, spoken, strict=True):
            samples = np.frombuffer(pcm(chunks), "<i2").astype(float)
            time_s = np.arange(len(samples)) / SAMPLE_RATE
            is_speech = np.abs(samples) > 0
            expected = np.sin(2 * np.pi * pitch * time_s) * 0.25 * 32767
            assert np.abs(samples - expected)[is_speech].max() < 1.0

    run(test())


def test_streams_cancelled_at_random_leave_nothing_behind(stand_in: StandIn) -> None:
    async def test() -> None:
        backend = stand_in(workers=2, max_batch_size=4)
        rng = np.random.default_rng(0)

        async def one(steps: int, cancels: bool) -> None:
            stream = engine.stream()
            stream.push_text(TEXT)
            stream.end_input()
            for _ in range(steps):
                await anext(stream)
            stream.cancel() if cancels else await collect(stream)

        async with await Engine.open(backend=backend) as engine:
            for _ in range(10):
                await asyncio.gather(
                    *(one(int(rng.integers(0, 4)), bool(rng.integers(0, 2))) for _ in range(20))
                )
            while backend.open_slots:
                await asyncio.sleep(0.001)
            assert engine.active_streams == 0
            assert engine.metrics.registry.get_sample_value("vivavoce_active_streams") == 0

    run(test())


def test_an_engine_for_one_stream_warms_up_with_two_workers(stand_in: StandIn) -> None:
    async def test() -> None:
        config = EngineConfig(scheduler=SchedulerPolicy(max_streams=1))
        async with await Engine.open(backend=stand_in(workers=2), config=config) as engine:
            assert (await speak(engine, TEXT))[-1].final

    run(test())
