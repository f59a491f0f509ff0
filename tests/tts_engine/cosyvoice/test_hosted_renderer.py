"""Tests of a CosyVoice bundle rendered in a child process, on small random weights."""

import asyncio
import functools
import importlib
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.voices.tiny_cosyvoice import BRIEF, recording  # noqa: E402
from vivavoce.tts_engine.backends.base import (  # noqa: E402
    Backend,
    ProcessPolicy,
    Stage,
)
from vivavoce.tts_engine.backends.hosted_backend import BackendParts  # noqa: E402
from vivavoce.tts_engine.backends.process import ProcessBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices  # noqa: E402
from vivavoce.tts_engine.cosyvoice.front_end import CosyVoiceFrontEnd  # noqa: E402
from vivavoce.tts_engine.cosyvoice.loading import load_hosted_renderer  # noqa: E402
from vivavoce.tts_engine.engine import Engine, EngineConfig  # noqa: E402
from vivavoce.tts_engine.errors import BadRequest, BundleError, Overloaded, SynthesisFailed  # noqa: E402
from vivavoce.tts_engine.scheduler import SchedulerPolicy  # noqa: E402
from vivavoce.tts_engine.stream_request import Delivery, DeliveryMode  # noqa: E402

TEXT = "It is me."
UNLIMITED_LOAD = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9))
# One slot, so that a session that has ended must have closed it in the child, too.
ONE_SLOT = replace(BRIEF, slots=1)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 300))


async def content_of(engine: Engine, **options: Any) -> list[object]:
    async with engine.stream(**options) as stream:
        stream.push_text(TEXT)
        stream.end_input()
        return [(chunk.pcm, chunk.samples, chunk.text, chunk.words) async for chunk in stream]


async def render_every_voice(engine: Engine) -> list[object]:
    """Chunks of the bundle's speaker, an enrolled voice, a stored voice, and a voice conversion."""
    voices = engine.voices
    assert isinstance(voices, BundleVoices) and voices.store is not None
    enrolled = voices.enroll(recording(), 16_000, "a tone").id
    stored = voices.store.list([""])[0].id
    instructed = Delivery(instruction="Speak slowly.")
    with pytest.raises(BadRequest, match="an instruction goes with"):
        engine.stream(voice=enrolled, delivery=Delivery(mode=DeliveryMode.INSTRUCT))
    rendered = [
        await content_of(engine, seed=3),
        await content_of(engine, voice=enrolled),
        await content_of(engine, voice=stored, speed=1.2, delivery=instructed),
    ]
    again = await engine.convert(recording(), 16_000, voice=enrolled)
    rendered.append([(chunk.pcm, chunk.samples) async for chunk in again])
    return rendered


@pytest.mark.parametrize("overlap", [False, True], ids=["one worker", "a worker a stage"])
def test_samples_equal_those_of_the_backend_in_this_process(
    v3_folder: Path, tmp_path: Path, overlap: bool
) -> None:
    async def rendered(backend: Backend) -> list[object]:
        async with await Engine.open(backend=backend) as engine:
            return await render_every_voice(engine)

    async def test() -> None:
        in_process = CosyVoiceBackend.load(v3_folder, ONE_SLOT, voices=tmp_path)
        assert in_process.voices.store is not None
        in_process.voices.store.add(
            in_process.voices.encode_prompt(recording() * 0.5, 16_000, "another tone"), name="anna"
        )
        # With the store, in which both keep the prepared voice: it is rounded to halves.
        policy = replace(ONE_SLOT, overlap=overlap, voice_store=tmp_path)
        in_child = ProcessBackend(
            BackendParts(
                functools.partial(load_hosted_renderer, v3_folder, policy),
                functools.partial(CosyVoiceFrontEnd.load, v3_folder, ONE_SLOT, tmp_path),
            )
        )
        assert len(in_child.workers) == 1 + overlap
        assert await rendered(in_child) == await rendered(in_process)

    run(test())


def test_a_new_slot_is_in_the_decode_stage(v3_folder: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(v3_folder), process=ProcessPolicy()) as engine:
            backend = engine._backend
            assert isinstance(backend, ProcessBackend)
            assert backend.max_batch_size(Stage.DECODE) > 1
            async with engine.stream() as stream:
                (session,) = engine._sessions.streams
                assert backend.stage(session.slot) is Stage.DECODE
                stream.cancel()

    run(test())


def test_errors_of_a_folder_are_those_of_the_backend_in_this_process(tmp_path: Path) -> None:
    async def error_message(**options: Any) -> str:
        with pytest.raises(BundleError) as error:
            await Engine.open(str(tmp_path / "nowhere"), **options)
        return str(error.value)

    async def test() -> None:
        assert await error_message(process=ProcessPolicy()) == await error_message()

    run(test())


SHORT_OF_MEMORY = """
from vivavoce.tts_engine.cosyvoice.loading import load_hosted_renderer

def hosted_with_room_for_two(folder, policy):
    made = load_hosted_renderer(folder, policy)
    lm = made.renderer._lm
    choose = lm.choose

    def chosen(turns):
        if len(turns) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return choose(turns)

    lm.choose = chosen
    return made
"""


def test_out_of_memory_in_the_child_ends_the_newest_sessions_and_stops_admission(
    v3_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short_of_memory.py").write_text(SHORT_OF_MEMORY)
    monkeypatch.syspath_prepend(tmp_path)
    load = importlib.import_module("short_of_memory").hosted_with_room_for_two
    policy = replace(BRIEF, slots=4)
    front = functools.partial(CosyVoiceFrontEnd.load, v3_folder, policy)
    refusals: list[Overloaded | None] = []

    async def speak(engine: Engine, seed: int) -> bool:
        try:
            async with engine.stream(seed=seed) as stream:
                stream.push_text(TEXT * 20)
                stream.end_input()
                return [chunk async for chunk in stream][-1].final
        except SynthesisFailed:
            refusals.append(engine.refusal())
            return False

    async def test() -> None:
        backend = ProcessBackend(BackendParts(functools.partial(load, v3_folder, policy), front))
        async with await Engine.open(backend=backend, config=UNLIMITED_LOAD) as engine:
            assert (backend.slots, backend.memory_slots) == (4, 4)
            completed = await asyncio.gather(*(speak(engine, seed) for seed in range(4)))
            assert completed == [True, True, False, False]
            assert [refusal and refusal.reason for refusal in refusals] == ["memory", "memory"]
            assert await speak(engine, 0)
            assert (backend.slots, backend.memory_slots) == (4, 4)  # since no session was open

    run(test())
