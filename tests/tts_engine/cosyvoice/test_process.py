"""A CosyVoice bundle in a process of its own, on small random weights: what it says here, voices included."""

import asyncio
import functools
import importlib
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from shared.tiny_cosyvoice import BRIEF, recording  # noqa: E402
from vivavoce.tts_engine.backends.base import Backend, Delivery, DeliveryMode, Stage  # noqa: E402
from vivavoce.tts_engine.backends.process import ProcessBackend, ProcessPolicy  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend, load_hosted_renderer  # noqa: E402
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices  # noqa: E402
from vivavoce.tts_engine.cosyvoice.front_end import CosyVoiceFrontEnd  # noqa: E402
from vivavoce.tts_engine.engine import Engine, EngineConfig  # noqa: E402
from vivavoce.tts_engine.errors import BadRequest, BundleError, Overloaded, SynthesisFailed  # noqa: E402
from vivavoce.tts_engine.scheduler import SchedulerPolicy  # noqa: E402

TEXT = "It is me."
PATIENT = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9))
# One slot, which a session that has ended must have given back there, too.
ALONE = replace(BRIEF, slots=1)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 300))


async def heard(engine: Engine, **how: Any) -> list[object]:
    async with engine.stream(**how) as stream:
        stream.push_text(TEXT)
        stream.end_input()
        return [(chunk.pcm, chunk.samples, chunk.text, chunk.words) async for chunk in stream]


async def everything(engine: Engine) -> list[object]:
    """What the bundle's speaker, an enrolled voice, one on file, and a recording said again sound like."""
    voices = engine.voices
    assert isinstance(voices, BundleVoices) and voices.store is not None
    enrolled = voices.enroll(recording(), 16_000, "a tone").id
    stored = voices.store.list([""])[0].id
    instructed = Delivery(instruction="Speak slowly.")
    with pytest.raises(BadRequest, match="an instruction goes with"):
        engine.stream(voice=enrolled, delivery=Delivery(mode=DeliveryMode.INSTRUCT))
    said = [
        await heard(engine, seed=3),
        await heard(engine, voice=enrolled),
        await heard(engine, voice=stored, speed=1.2, delivery=instructed),
    ]
    again = await engine.convert(recording(), 16_000, voice=enrolled)
    said.append([(chunk.pcm, chunk.samples) async for chunk in again])
    return said


@pytest.mark.parametrize("overlap", [False, True], ids=["one worker", "a worker a stage"])
def test_its_voices_are_here_and_what_it_says_is_bit_for_bit_the_same(
    v3_folder: Path, tmp_path: Path, overlap: bool
) -> None:
    async def said(backend: Backend) -> list[object]:
        async with await Engine.open(backend=backend) as engine:
            return await everything(engine)

    async def test() -> None:
        here = CosyVoiceBackend.load(v3_folder, ALONE, voices=tmp_path)
        assert here.voices.store is not None
        here.voices.store.add(
            here.voices.encode_prompt(recording() * 0.5, 16_000, "another tone"), name="anna"
        )
        elsewhere = ProcessBackend.start(
            functools.partial(load_hosted_renderer, v3_folder, replace(ALONE, overlap=overlap)),
            functools.partial(CosyVoiceFrontEnd.load, v3_folder, ALONE, tmp_path),
        )
        assert len(elsewhere.workers) == 1 + overlap
        assert await said(elsewhere) == await said(here)

    run(test())


def test_ids_and_sound_are_told_apart_from_the_first_step_on(v3_folder: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(v3_folder), process=ProcessPolicy()) as engine:
            backend = engine._backend
            assert isinstance(backend, ProcessBackend)
            assert backend.max_batch_size(Stage.DECODE) > 1
            async with engine.stream() as stream:
                (session,) = engine._streams
                assert backend.stage(session.slot) is Stage.DECODE
                stream.cancel()

    run(test())


def test_what_is_wrong_with_a_folder_is_said_as_here(tmp_path: Path) -> None:
    async def complaint(**how: Any) -> str:
        with pytest.raises(BundleError) as error:
            await Engine.open(str(tmp_path / "nowhere"), **how)
        return str(error.value)

    async def test() -> None:
        assert await complaint(process=ProcessPolicy()) == await complaint()

    run(test())


SHORT_OF_MEMORY = """
from vivavoce.tts_engine.cosyvoice.backend import hosted

def hosted_with_room_for_two(folder, policy):
    made = hosted(folder, policy)
    lm = made.renderer._lm
    choose = lm.choose

    def chosen(turns):
        if len(turns) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return choose(turns)

    lm.choose = chosen
    return made
"""


def test_where_memory_runs_out_there_calls_live_on_and_newcomers_are_refused_here(
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
        backend = ProcessBackend.start(functools.partial(load, v3_folder, policy), front)
        async with await Engine.open(backend=backend, config=PATIENT) as engine:
            assert (backend.slots, backend.memory_slots) == (4, 4)
            lived = await asyncio.gather(*(speak(engine, seed) for seed in range(4)))
            assert lived == [True, True, False, False]
            assert [refusal and refusal.reason for refusal in refusals] == ["memory", "memory"]
            assert await speak(engine, 0)
            assert (backend.slots, backend.memory_slots) == (4, 4)  # since nobody was there

    run(test())
