"""The engine with a stand-in backend: refusals, limits, many streams, and closing.

Tests that use the fixture ``stand_in`` run with the backend in this process and in a child process.
"""

import asyncio
import gc
import threading
import time

import numpy as np
import pytest

from shared.engine.engine_streams import TEXT, MakeStandIn, collect, content, pcm, run, speak
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import (
    BadRequest,
    BadText,
    BundleError,
    Overloaded,
    StreamClosed,
    UnknownVoice,
)
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream import Stream


def test_bad_requests_are_refused_at_once(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            with pytest.raises(UnknownVoice, match="tone-440"):
                engine.stream(voice="unknown")
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


def test_a_full_engine_refuses_a_stream_and_counts_the_refusal(stand_in: MakeStandIn) -> None:
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


def test_of_a_thousand_requested_streams_32_are_admitted_and_rendered_as_alone(
    stand_in: MakeStandIn,
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


def test_a_stream_that_is_rendered_ahead_counts_as_load_until_its_last_chunk_is_taken() -> None:
    async def test() -> None:
        async with await Engine.open(backend=StandInBackend()) as engine, engine.stream():
            engine._cost.observe(4e6, 1e7, time.monotonic())  # 0.4 of the compute each: two are admitted

            async def render() -> Stream:
                rendered = engine.stream()
                rendered.push_text("One.")
                rendered.end_input()
                await until(lambda: engine.active_streams == 1)
                refusal = engine.refusal()
                assert refusal is not None and refusal.reason == "compute"
                return rendered

            taken = await render()
            await collect(taken)
            assert engine.refusal() is None
            cancelled = await render()
            cancelled.cancel()
            assert engine.refusal() is None
            await render()  # and forget it
            gc.collect()
            assert engine.refusal() is None

    run(test())


class OpenStreams:
    """Keeps ``count`` streams open inside the context."""

    def __init__(self, engine: Engine, count: int) -> None:
        self.streams = [engine.stream() for _ in range(count)]

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None:
        for stream in self.streams:
            stream.cancel()


def test_a_text_over_the_limit_is_refused_and_the_text_before_it_is_spoken(stand_in: MakeStandIn) -> None:
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


def test_closing_the_engine_ends_every_stream_and_thread(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        backend = stand_in(workers=2)  # a process that stays for the next test has a thread of its own
        before = set(threading.enumerate())
        engine = await Engine.open(backend=backend)
        stream = engine.stream()
        stream.push_text(TEXT)
        await engine.aclose()
        await engine.aclose()
        assert await collect(stream) == []
        started = set(threading.enumerate()) - before
        assert not [thread for thread in started if thread.name.startswith("vivavoce-")]
        with pytest.raises(BadRequest, match="closed"):
            engine.stream()

    run(test())


def test_concurrent_streams_get_their_own_voice_only(stand_in: MakeStandIn) -> None:
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


def test_streams_cancelled_at_random_free_their_slots(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        backend = stand_in(workers=2, max_batch_size=4)
        rng = np.random.default_rng(0)

        async def run_stream(steps: int, cancels: bool) -> None:
            stream = engine.stream()
            stream.push_text(TEXT)
            stream.end_input()
            for _ in range(steps):
                await anext(stream)
            stream.cancel() if cancels else await collect(stream)

        async with await Engine.open(backend=backend) as engine:
            for _ in range(10):
                await asyncio.gather(
                    *(run_stream(int(rng.integers(0, 4)), bool(rng.integers(0, 2))) for _ in range(20))
                )
            while backend.open_slots:
                await asyncio.sleep(0.001)
            assert engine.active_streams == 0
            assert engine.metrics.registry.get_sample_value("vivavoce_active_streams") == 0

    run(test())


def test_an_engine_for_one_stream_warms_up_with_two_workers(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        config = EngineConfig(scheduler=SchedulerPolicy(max_streams=1))
        async with await Engine.open(backend=stand_in(workers=2), config=config) as engine:
            assert (await speak(engine, TEXT))[-1].final

    run(test())


@pytest.mark.parametrize("warm_up", [True, False])
def test_an_engine_speaks_before_its_first_stream_if_it_is_warmed_up(
    warm_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = StandInBackend(workers=2)
    slots: list[SlotRequest] = []
    open_slot = backend.open_slot

    def counted(request: SlotRequest) -> int:
        slots.append(request)
        return open_slot(request)

    monkeypatch.setattr(backend, "open_slot", counted)

    async def test() -> None:
        async with await Engine.open(backend=backend, warm_up=warm_up) as engine:
            assert len(slots) == 2 * warm_up  # one for each worker
            assert (await speak(engine, TEXT))[-1].final

    run(test())
