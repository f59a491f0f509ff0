"""Tests of steps of both stages at the same time: no session waits, and samples do not change."""

import asyncio
import random
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.voices.tiny_cosyvoice import BRIEF, recording  # noqa: E402
from vivavoce.tts_engine.backends.base import ALL_STAGES, Stage  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.engine import Engine, EngineConfig  # noqa: E402
from vivavoce.tts_engine.scheduler import SchedulerPolicy  # noqa: E402
from vivavoce.tts_engine.stream import Stream  # noqa: E402

OVERLAPPING = replace(BRIEF, overlap=True, max_render_rows=4)
UNLIMITED_LOAD = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9))
TEXTS = ("Well, who is it, at night? It is me.", "It is me.", "Nobody said so, and so I went home.")


class Gate:
    """Blocks the ``method`` of a runner: once closed, a call waits inside until ``open``."""

    def __init__(self, runner: Any, method: str) -> None:
        self._work = getattr(runner, method)
        self._closed, self._entered, self._opened = False, threading.Event(), threading.Event()
        setattr(runner, method, self)

    def __call__(self, parts: Mapping[int, Any]) -> Any:
        if self._closed:
            self._entered.set()
            assert self._opened.wait(60)
        return self._work(parts)

    def close(self) -> None:
        """Block calls from now on."""
        self._closed = True

    async def entered(self) -> None:
        """Wait until a call is blocked."""
        assert await asyncio.to_thread(self._entered.wait, 60)

    def open(self) -> None:
        """Let calls pass."""
        self._closed = False
        self._opened.set()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 300))


async def samples_of(stream: Stream) -> np.ndarray:
    pcm = b"".join([chunk.pcm async for chunk in stream])
    return np.frombuffer(pcm, np.int16) / 32_768


def open_stream(engine: Engine, text: str, **options: Any) -> Stream:
    stream = engine.stream(**options)
    stream.push_text(text)
    stream.end_input()
    return stream


async def render_eight_sessions(backend: CosyVoiceBackend) -> list[np.ndarray]:
    """The samples of eight sessions in three voices, one of them a voice conversion."""
    async with await Engine.open(backend=backend, config=UNLIMITED_LOAD) as engine:
        tone = backend.voices.enroll(recording(), 16_000, "a tone that wobbles").id
        other = backend.voices.enroll(recording(317.0), 16_000, "another").id
        voices = ("nobody", tone, other)
        streams = [
            open_stream(engine, TEXTS[index % len(TEXTS)], voice=voices[index % 3], seed=index)
            for index in range(7)
        ]
        streams.append(await engine.convert(recording(250.0), 16_000, voice=tone))
        return await asyncio.gather(*(samples_of(stream) for stream in streams))


def test_overlapping_stages_do_not_change_the_samples(folder: Path) -> None:
    async def test() -> None:
        expected = await render_eight_sessions(
            CosyVoiceBackend.load(folder, replace(OVERLAPPING, overlap=False))
        )
        samples = await render_eight_sessions(CosyVoiceBackend.load(folder, OVERLAPPING))
        for one, other in zip(samples, expected, strict=True):
            assert one.shape == other.shape
            assert np.abs(one - other).max() < 1e-4 + 1 / 32_768  # a step of 16 bits may round otherwise

    run(test())


def test_each_worker_runs_one_stage_with_overlap_and_every_stage_without(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, OVERLAPPING)
    assert backend.workers == (frozenset({Stage.DECODE}), frozenset({Stage.RENDER}))
    assert CosyVoiceBackend.load(v2_folder, BRIEF).workers == (ALL_STAGES,)


def test_a_session_decodes_during_a_render_step(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, OVERLAPPING)

    async def test() -> None:
        async with await Engine.open(backend=backend, config=UNLIMITED_LOAD) as engine:
            sound = Gate(backend._render_stage.runner, "run_flow")
            sound.close()
            one = open_stream(engine, TEXTS[0], seed=1)
            await sound.entered()
            two = open_stream(engine, TEXTS[1], seed=2)
            while not backend._sessions[two._session.slot].is_chunk_ready:
                await asyncio.sleep(0.001)
            sound.open()
            assert all([len(await samples_of(stream)) for stream in (one, two)])

    run(test())


def test_a_session_renders_during_a_decode_step(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, OVERLAPPING)

    async def test() -> None:
        async with await Engine.open(backend=backend, config=UNLIMITED_LOAD) as engine:
            sound, ids = Gate(backend._render_stage.runner, "run_flow"), Gate(backend._lm, "choose")
            sound.close()
            one = open_stream(engine, TEXTS[0], seed=1)
            await sound.entered()
            ids.close()
            two = open_stream(engine, TEXTS[1], seed=2)
            await ids.entered()
            sound.open()
            assert (await anext(one)).samples
            ids.open()
            assert all([len(await samples_of(stream)) for stream in (one, two)])

    run(test())


def test_a_new_session_decodes_while_a_cancelled_one_is_still_rendered(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(OVERLAPPING, slots=1))

    async def test() -> None:
        async with await Engine.open(backend=backend, config=UNLIMITED_LOAD) as engine:
            expected = await samples_of(open_stream(engine, TEXTS[1], seed=2))
            gate = Gate(backend._render_stage.runner, "run_flow")
            gate.close()
            first = open_stream(engine, TEXTS[0], seed=1)
            await gate.entered()
            first.cancel()
            second = open_stream(engine, TEXTS[1], seed=2)
            while not backend._sessions[second._session.slot].is_chunk_ready:
                await asyncio.sleep(0.001)
            assert backend.open_slots == 2
            gate.open()
            assert np.array_equal(await samples_of(second), expected)
        assert backend.open_slots == 0
        assert sorted(backend._free_rows) == [*range(len(backend._free_rows))]

    run(test())


def test_cancelling_at_any_time_does_not_change_other_sessions(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(OVERLAPPING, slots=4))
    rng = random.Random(3)

    async def session(engine: Engine, permits: asyncio.Semaphore, expected: np.ndarray) -> None:
        async with permits, open_stream(engine, TEXTS[0], seed=1) as stream:
            if rng.random() < 0.4:
                await asyncio.sleep(rng.random() * 0.2)
                return
            samples = await samples_of(stream)
            assert samples.shape == expected.shape
            assert np.abs(samples - expected).max() < 1e-4 + 1 / 32_768

    async def test() -> None:
        async with await Engine.open(backend=backend, config=UNLIMITED_LOAD) as engine:
            expected = await samples_of(open_stream(engine, TEXTS[0], seed=1))
            permits = asyncio.Semaphore(4)
            await asyncio.gather(*(session(engine, permits, expected) for _ in range(30)))
            while backend.open_slots:
                await asyncio.sleep(0.001)
            assert not backend._rows

    run(test())
