"""Streams through the engine in this process: first audio and its parts, audio seconds a second, underruns.

open loop      streams begin as a Poisson process over the length of one, whatever the engine does, so that N
               of them ask for N audio seconds a second
closed loop    N listeners begin a stream each time that one has ended, so that they ask for all there is

A listener plays each chunk when the one before has ended; a gap of more than 60 ms is an underrun.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import numpy as np
from gpu_check.findings import CheckOptions, Finding, as_known
from gpu_check.steps.first_hop import StepTrace, first_hop_findings, first_hop_parts
from gpu_check.steps.machine import card_state

from vivavoce.tts_engine.backends.base import Backend, PreparingBackend
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.policy import policy_for
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import Overloaded, VivavoceError
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream import Stream

TEXT = (
    "Thank you for calling, how can I help you with your order today? "
    "Please hold the line while I look that up."
)
_UNDERRUN_S = 0.06
_AUDIBLE = 10 ** (-50 / 20) * 32_768  # -50 dBFS of s16le
_SLOTS = 64


@dataclass(frozen=True, slots=True)
class Loads:
    """What is asked of the engine, in this order."""

    alone: int = 5  # streams, one after the other, traced and not
    closed: int = 64  # listeners
    closed_s: float = 8.0  # that are measured, after as many that are not
    open: tuple[int, ...] = (400, 8, 32)  # streams; up to ``max_traced`` also traced
    max_traced: int = 32
    stream_s: float = 8.0  # of speech that a listener takes


_QUICK = Loads(alone=1, closed=2, closed_s=0.5, open=(3, 2), max_traced=2, stream_s=0.5)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """One stream as its listener heard it."""

    first_audio_s: float  # the first audible sample, when it is played; infinite without any
    speech_s: float
    underruns: int
    first_chunk: tuple[int, float, float, float]  # as of ``first_hop_parts``


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the figures of one engine."""
    yield from as_known(_measure(options, _QUICK if options.is_quick else Loads()))


async def _measure(options: CheckOptions, loads: Loads) -> AsyncIterator[Finding]:
    began = time.perf_counter()
    async with open_engine(options) as (engine, voice):
        yield Finding("engine, ready to speak in", time.perf_counter() - began, "s")
        await _captured(engine)
        yield Finding("engine, all steps captured in", time.perf_counter() - began, "s")
        for finding in stream_times(
            "1 stream", [await listen(engine, voice, 0, 0.1) for _ in range(loads.alone)]
        ):
            yield finding
        trace = StepTrace(options.torch_device)
        with trace.of(engine._backend):
            heard = [await listen(engine, voice, 0, 0.1) for _ in range(loads.alone)]
        for finding in first_hop_findings("1 stream", _parts(trace, heard)):
            yield finding
        yield await _closed_loop(engine, voice, loads)
        for count in loads.open:
            for finding in await open_loop(engine, voice, count, loads.stream_s):
                yield finding
            if count <= loads.max_traced:
                for finding in await _traced_loop(engine, voice, count, loads.stream_s, options):
                    yield finding


@asynccontextmanager
async def open_engine(options: CheckOptions) -> AsyncIterator[tuple[Engine, str]]:
    """An engine with the random bundle, and a voice that has spoken before."""
    policy = replace(policy_for("auto", options.device), overlap=True, slots=_SLOTS)
    async with await unlimited_engine(CosyVoiceBackend.load(options.bundle, policy)) as engine:
        noise = 0.1 * np.random.default_rng(0).standard_normal(3 * SAMPLE_RATE)
        voice = await asyncio.to_thread(engine.voices.enroll, noise.astype(np.float32), SAMPLE_RATE, "Hello.")
        await listen(engine, voice.id, 0, 0.1)
        yield engine, voice.id


async def unlimited_engine(backend: Backend) -> Engine:
    """An engine that admits all that memory has room for, however fast it is."""
    return await Engine.open(backend=backend, config=EngineConfig(SchedulerPolicy(max_load=float("inf"))))


async def _captured(engine: Engine) -> None:
    """Wait until no step runs without a graph that is to have one."""
    backend = engine._backend
    assert isinstance(backend, PreparingBackend)
    while backend.next_preparation is not None or engine._workers.are_preparing:
        await asyncio.sleep(0.05)


async def _closed_loop(engine: Engine, voice: str, loads: Loads) -> Finding:
    """Audio seconds a second of all listeners, once every one of them has begun long ago."""
    rendered_s = 0.0

    def count(seconds: float) -> None:
        nonlocal rendered_s
        rendered_s += seconds

    async def listen_on(listener: int) -> None:
        while True:
            try:
                await listen(engine, voice, listener, loads.stream_s, count=count)
            except Overloaded:  # memory has no room for so many
                await asyncio.sleep(0.1)

    listeners = [asyncio.create_task(listen_on(number)) for number in range(loads.closed)]
    try:
        await asyncio.sleep(loads.closed_s)
        began, before_s = time.perf_counter(), rendered_s
        await asyncio.sleep(loads.closed_s)
        rate = (rendered_s - before_s) / (time.perf_counter() - began)
    finally:
        for task in listeners:
            task.cancel()
        ended = await asyncio.gather(*listeners, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
    return Finding(f"{loads.closed} listeners in a closed loop, audio seconds a second", rate)


async def open_loop(engine: Engine, voice: str, count: int, seconds: float) -> list[Finding]:
    """Figures of so many streams of so many seconds each, which begin as a Poisson process."""
    name, began = f"{count} streams", time.perf_counter()
    power = asyncio.create_task(
        asyncio.to_thread(lambda: list(card_state(("power.draw", "utilization.gpu"))))
    )
    heard, refused = await _listen_to_many(engine, voice, count, seconds)
    took_s = time.perf_counter() - began
    return [
        Finding(f"{name}, asked for, audio seconds a second", count),
        Finding(f"{name}, refused", refused),
        *stream_times(name, heard),
        Finding(f"{name}, audio seconds a second", sum(each.speech_s for each in heard) / took_s),
        Finding(f"{name}, underruns", sum(each.underruns for each in heard)),
        *(Finding(f"{name}, {each.name}", each.value) for each in await power),
    ]


async def _traced_loop(
    engine: Engine, voice: str, count: int, seconds: float, options: CheckOptions
) -> list[Finding]:
    trace = StepTrace(options.torch_device)
    with trace.of(engine._backend):
        heard, _ = await _listen_to_many(engine, voice, count, seconds)
    return list(first_hop_findings(f"{count} streams", _parts(trace, heard)))


async def _listen_to_many(
    engine: Engine, voice: str, count: int, seconds: float
) -> tuple[list[StreamTimes], int]:
    """Open loop: what was heard, and how many streams were refused or failed."""
    drawn, waits = random.Random(count), [0.0]
    for _ in range(count - 1):
        waits.append(waits[-1] + drawn.expovariate(count / seconds))
    streams = [listen(engine, voice, seed, seconds, wait) for seed, wait in enumerate(waits)]
    answers = await asyncio.gather(*streams, return_exceptions=True)
    for error in answers:
        if isinstance(error, BaseException) and not isinstance(error, VivavoceError):
            raise error
    heard = [each for each in answers if isinstance(each, StreamTimes)]
    return heard, len(answers) - len(heard)


def stream_times(name: str, heard: list[StreamTimes]) -> Iterator[Finding]:
    """First audio of some streams."""
    first = sorted(1000 * each.first_audio_s for each in heard)
    if first:
        yield Finding(f"{name}, first audio, p50", first[len(first) // 2], "ms")
        yield Finding(f"{name}, first audio, p95", first[min(len(first) - 1, int(0.95 * len(first)))], "ms")


def _parts(trace: StepTrace, heard: list[StreamTimes]) -> list[dict[str, float]]:
    return [first_hop_parts(trace.steps, *each.first_chunk) for each in heard]


async def listen(
    engine: Engine,
    voice: str,
    seed: int,
    seconds: float,
    wait_s: float = 0.0,
    count: Callable[[float], None] = lambda seconds: None,
) -> StreamTimes:
    """Speak for some seconds and listen; random weights hardly end the speech by themselves.

    count: takes the seconds of each chunk.
    """
    await asyncio.sleep(wait_s)
    began, first, speech_s, underruns, plays_until = time.monotonic(), float("inf"), 0.0, 0, None
    first_chunk = 0, began, began, began
    async with engine.stream(voice=voice, seed=seed) as stream:
        assert isinstance(stream, Stream)
        stream.push_text(TEXT)
        stream.end_input()
        async for chunk in stream:
            if not chunk.seconds:
                continue
            now = time.monotonic()
            count(chunk.seconds)
            if plays_until is None:
                session = stream._session
                first_chunk = session.slot, began, session.first_segment_at or began, now
            elif now > plays_until + _UNDERRUN_S:
                underruns += 1
            starts = now if plays_until is None else max(now, plays_until)
            loud = np.flatnonzero(np.abs(np.frombuffer(chunk.pcm, "<i2").astype(np.int32)) > _AUDIBLE)
            if len(loud):
                first = min(first, starts + float(loud[0]) / SAMPLE_RATE - began)
            plays_until = starts + chunk.seconds
            speech_s += chunk.seconds
            if speech_s >= seconds:
                break
    return StreamTimes(first, speech_s, underruns, first_chunk)
