"""Streams at once through the engine in this process: first audio, audio seconds a second, underruns, power.

Open loop: streams begin as a Poisson process over the length of one, whatever the engine does. A listener
plays each chunk when the one before has ended; a gap of more than 60 ms is an underrun.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import numpy as np
from gpu_check.findings import CheckOptions, Finding, as_known
from gpu_check.steps.machine import card_state

from vivavoce.tts_engine.backends.base import PreparingBackend
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.policy import policy_for
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import VivavoceError

TEXT = (
    "Thank you for calling, how can I help you with your order today? "
    "Please hold the line while I look that up."
)
_UNDERRUN_S = 0.06
_AUDIBLE = 10 ** (-50 / 20) * 32_768  # -50 dBFS of s16le
_COUNTS = (1, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """One stream as its listener heard it."""

    first_audio_s: float  # the first audible sample, when it is played; infinite without any
    speech_s: float
    underruns: int


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the figures, with the stages overlapped and, at 8 streams, one after another."""
    counts, seconds = ((1, 2), 0.5) if options.is_quick else (_COUNTS, 8.0)
    yield from as_known(_measure(options, counts, seconds, overlap=True))
    yield from as_known(_measure(options, counts[-1:] if options.is_quick else (8,), seconds, overlap=False))


async def _measure(
    options: CheckOptions, counts: tuple[int, ...], seconds: float, *, overlap: bool
) -> AsyncIterator[Finding]:
    began = time.perf_counter()
    async with open_engine(options, overlap=overlap) as (engine, voice):
        yield Finding("engine, ready to speak in", time.perf_counter() - began, "s")
        await _captured(engine)
        yield Finding("engine, all steps captured in", time.perf_counter() - began, "s")
        for count in counts:
            name = f"{count} stream{'s' * (count > 1)}{'' if overlap else ', stages one after another'}"
            for finding in await _load(engine, voice, count, seconds, name):
                yield finding


@asynccontextmanager
async def open_engine(options: CheckOptions, *, overlap: bool) -> AsyncIterator[tuple[Engine, str]]:
    """An engine with the random bundle, and a voice that has spoken before."""
    policy = replace(policy_for("fp32", options.device), overlap=overlap, slots=64)
    backend = CosyVoiceBackend.load(options.bundle, policy)
    async with await Engine.open(backend=backend) as engine:
        noise = 0.1 * np.random.default_rng(0).standard_normal(3 * SAMPLE_RATE)
        voice = await asyncio.to_thread(engine.voices.enroll, noise.astype(np.float32), SAMPLE_RATE, "Hello.")
        await listen(engine, voice.id, 0, 0.1)
        yield engine, voice.id


async def _captured(engine: Engine) -> None:
    """Wait until no step runs without a graph that is to have one."""
    backend = engine._backend
    assert isinstance(backend, PreparingBackend)
    while backend.next_preparation is not None or engine._is_preparing:
        await asyncio.sleep(0.05)


async def _load(engine: Engine, voice: str, count: int, seconds: float, name: str) -> list[Finding]:
    drawn, began = random.Random(count), time.perf_counter()
    waits = [0.0]
    for _ in range(count - 1):
        waits.append(waits[-1] + drawn.expovariate(count / seconds))
    streams = [listen(engine, voice, seed, seconds, wait) for seed, wait in enumerate(waits)]
    power = asyncio.to_thread(lambda: list(card_state(("power.draw", "utilization.gpu"))))
    *answers, card = await asyncio.gather(*streams, power, return_exceptions=True)
    took_s = time.perf_counter() - began
    heard = [each for each in answers if isinstance(each, StreamTimes)]
    findings = [Finding(f"{name}, refused", len(answers) - len(heard))]
    if heard:
        first = sorted(1000 * each.first_audio_s for each in heard)
        findings += [
            Finding(f"{name}, first audio, p50", first[len(first) // 2], "ms"),
            Finding(f"{name}, first audio, p95", first[min(len(first) - 1, int(0.95 * len(first)))], "ms"),
            Finding(f"{name}, audio seconds a second", sum(each.speech_s for each in heard) / took_s),
            Finding(f"{name}, underruns", sum(each.underruns for each in heard)),
        ]
    if isinstance(card, list):
        findings += [Finding(f"{name}, {each.name}", each.value) for each in card]
    for error in answers:
        if isinstance(error, BaseException) and not isinstance(error, VivavoceError):
            raise error
    return findings


async def listen(engine: Engine, voice: str, seed: int, seconds: float, wait_s: float = 0.0) -> StreamTimes:
    """Speak for some seconds and listen; random weights never end the speech by themselves."""
    await asyncio.sleep(wait_s)
    began, first, speech_s, underruns, plays_until = time.perf_counter(), float("inf"), 0.0, 0, None
    async with engine.stream(voice=voice, seed=seed) as stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for chunk in stream:
            if not chunk.seconds:
                continue
            now = time.perf_counter()
            if plays_until is not None and now > plays_until + _UNDERRUN_S:
                underruns += 1
            starts = now if plays_until is None else max(now, plays_until)
            loud = np.flatnonzero(np.abs(np.frombuffer(chunk.pcm, "<i2").astype(np.int32)) > _AUDIBLE)
            if len(loud):
                first = min(first, starts + float(loud[0]) / SAMPLE_RATE - began)
            plays_until = starts + chunk.seconds
            speech_s += chunk.seconds
            if speech_s >= seconds:
                break
    return StreamTimes(first, speech_s, underruns)
