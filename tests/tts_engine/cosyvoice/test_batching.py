"""Tests of many CosyVoice sessions in a step: equal samples, no waiting, isolated failures, no leaks."""

import asyncio
import contextlib
import ctypes
import gc
import os
import random
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.tiny_cosyvoice import BRIEF, recording  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow_graphs import FlowGraphs  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule  # noqa: E402
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, Stage, StepResult  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.flow_runner import GraphFlowRunner  # noqa: E402
from vivavoce.tts_engine.engine import Engine, EngineConfig  # noqa: E402
from vivavoce.tts_engine.scheduler import SchedulerPolicy  # noqa: E402
from vivavoce.tts_engine.segmenter import Segment  # noqa: E402

TEXTS = (
    "Well, who is it, at night? It is me.",
    "It is me.",
    "Nobody said so, and so I went home.",
    "And then? Then it was late.",
)


pytestmark = pytest.mark.usefixtures("one_thread")


class SessionDriver:
    """Steps the sessions of a backend by hand. ``late``: rounds before a session takes part."""

    def __init__(self, backend: CosyVoiceBackend) -> None:
        self.backend = backend
        self.segments: dict[int, list[Segment]] = {}
        self.late: dict[int, int] = {}
        self.samples: dict[int, list[np.ndarray]] = {}
        self.failures: dict[int, Exception] = {}
        self._open: list[int] = []
        self._current: dict[int, Segment] = {}

    def add(self, text: str, voice: str = "nobody", seed: int = 0, late: int = 0) -> int:
        request = SlotRequest(voice, 1.0, seed)
        slot = self.backend.open_slot(request)
        segmenter = self.backend.segmenter(request)
        self.segments[slot] = [*segmenter.push(text), *segmenter.flush()]
        self.samples[slot], self.late[slot] = [], late
        self._open.append(slot)
        return slot

    def remove(self, slot: int) -> None:
        self._open.remove(slot)
        self._current.pop(slot, None)
        self.backend.close_slot(slot)

    def round(self) -> None:
        """Run one step of each stage."""
        for slot in self._open:
            self.late[slot] -= 1
        for stage in Stage:
            ready = [slot for slot in self._open if self.late[slot] < 0]
            chosen_slots = [slot for slot in ready if self.backend.stage(slot) is stage]
            chosen_slots = chosen_slots[: self.backend.max_batch_size(stage)]
            if chosen_slots:
                self._step(chosen_slots)

    def speak(self) -> None:
        while self._open:
            self.round()

    def _step(self, slots: Sequence[int]) -> None:
        turns = [self._turn(slot) for slot in slots]
        for slot, result in zip(slots, self.backend.step(0, turns), strict=True):
            if isinstance(result, Exception):
                self.failures[slot] = result
                self.remove(slot)
            else:
                self._note(slot, result)
        # Sessions that were stepped go to the end of the queue.
        self._open = [slot for slot in self._open if slot not in slots] + [
            slot for slot in slots if slot in self._open
        ]

    def _turn(self, slot: int) -> SlotTurn:
        if slot in self._current:
            return SlotTurn(slot, None)
        self._current[slot] = self.segments[slot].pop(0)
        return SlotTurn(slot, self._current[slot])

    def _note(self, slot: int, result: StepResult) -> None:
        self.samples[slot].append(result.samples)
        if result.segment_done:
            del self._current[slot]
            if not self.segments[slot]:
                self.remove(slot)


@dataclass(frozen=True)
class Spoken:
    """What a session rendered."""

    ids: list[int]
    samples: np.ndarray


def render_together(backend: CosyVoiceBackend, sessions: Sequence[Mapping[str, Any]]) -> list[Spoken]:
    """What sessions render together, in their order."""
    driver = SessionDriver(backend)
    choose = backend._lm.choose
    ids: defaultdict[int, list[int]] = defaultdict(list)

    def recorded_choose(turns: Mapping[int, Any]) -> dict[int, int]:
        chosen = choose(turns)
        for slot, row in backend._rows.items():
            if row in chosen:
                ids[slot].append(chosen[row])
        return chosen

    backend._lm.choose = recorded_choose  # type: ignore[method-assign]
    try:
        slots = [driver.add(**session) for session in sessions]
        driver.speak()
    finally:
        backend._lm.choose = choose  # type: ignore[method-assign]
    assert driver.failures == {}
    assert backend.open_slots == 0
    return [Spoken(ids[slot], np.concatenate(driver.samples[slot])) for slot in slots]


def test_a_session_renders_alone_what_it_renders_among_seven_others(folder: Path) -> None:
    backend = CosyVoiceBackend.load(folder, replace(BRIEF, prefill_chunk=40, max_render_rows=4))
    mine = backend.voices.enroll(recording(), 16_000, "a tone that wobbles, and goes on and on").id
    other = backend.voices.enroll(recording(317.0), 16_000, "another").id
    sessions = [
        {
            "text": TEXTS[index % len(TEXTS)],
            "voice": ("nobody", mine, other)[index % 3],
            "seed": index,
            "late": 3 * index,
        }
        for index in range(8)
    ]
    together = render_together(backend, sessions)
    for session, among in zip(sessions, together, strict=True):
        [alone] = render_together(backend, [session])
        assert among.ids == alone.ids
        assert among.samples.shape == alone.samples.shape
        assert np.abs(among.samples - alone.samples).max() < 1e-4


def test_a_session_goes_on_decoding_while_a_long_prompt_is_prefilled(v2_folder: Path) -> None:
    policy = replace(BRIEF, prefill_chunk=16, length=SpeechLengthRule(20, 20))
    backend = CosyVoiceBackend.load(v2_folder, policy)
    long_prompt_voice = backend.voices.enroll(recording(), 16_000, "a tone that wobbles " * 10).id
    driver = SessionDriver(backend)
    lengths = backend._lm._state.lengths

    def fed(slot: int) -> int:
        return int(lengths[backend._rows[slot]]) if slot in backend._rows else 0

    speaker = driver.add(TEXTS[0])
    while not fed(speaker):
        driver.round()
    new_session = driver.add(TEXTS[1], voice=long_prompt_voice)
    before, waited = fed(speaker), 0
    while not fed(new_session):
        driver.round()
        waited += 1
    # In a round in which a chunk of it is rendered, it decodes no ids.
    assert fed(speaker) >= before + policy.ids_per_decode_step * (waited - 2)
    assert waited > 3  # 16 ids of the prompt at a time
    prefix = backend._lm.prompt_prefix(backend._sessions[new_session].conditioning.prompt)
    assert prefix.is_prefilled
    assert len(prefix.units) > 3 * policy.prefill_chunk


def test_more_voices_than_are_kept_prepared_all_render(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, max_prepared_voices=1, prefill_chunk=8))
    voices = [backend.voices.enroll(recording(200.0 + 30 * index), 16_000, "a tone").id for index in range(3)]
    together = render_together(backend, [{"text": TEXTS[1], "voice": voice} for voice in voices])
    assert all(len(spoken.samples) for spoken in together)


def test_memory_slots_count_sessions_with_their_expected_size(
    v2_folder: Path,
) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, slots=6, expected_ids=100))
    backend._memory_ids = 480
    driver = SessionDriver(backend)
    driver.add(TEXTS[1])
    assert backend.memory_slots == 4
    tone = backend.voices.enroll(recording(), 16_000, "a tone").id  # of 3 s
    driver.add(TEXTS[1], voice=tone)
    assert backend.memory_slots == 3  # a new session is expected to have a voice of the same length
    voiced = len(backend._sessions[2].conditioning.flow_prompt.ids)
    assert 2 * (100 + voiced) + 100 <= 480 < 3 * (100 + voiced) + 100
    driver.speak()
    backend._memory_ids = 300  # prepared voices take some of them
    backend.close_slot(backend.open_slot(SlotRequest("nobody", 1.0, 0)))
    assert backend.memory_slots == 2


def test_a_sentence_longer_than_expected_reduces_the_memory_slots(v2_folder: Path) -> None:
    policy = replace(BRIEF, slots=6, expected_ids=10, length=SpeechLengthRule(20, 20))
    backend = CosyVoiceBackend.load(v2_folder, policy)
    backend._memory_ids = 85
    driver = SessionDriver(backend)
    driver.add(TEXTS[2])
    rooms = [backend.memory_slots]
    while driver._open:
        driver.round()
        rooms.append(backend.memory_slots)
    assert rooms[0] == 6
    assert min(rooms) == 1  # the open session is rendered to its end
    assert rooms[-1] == 6
    assert not driver.failures


class FailingCall:
    """Makes the ``method`` of a runner raise where ``applies`` to the rows that it is given."""

    def __init__(
        self, runner: Any, method: str, applies: Callable[[set[int]], bool], error: Exception
    ) -> None:
        self.work, self.applies, self.error = getattr(runner, method), applies, error
        setattr(runner, method, self)

    def __call__(self, parts: Mapping[int, Any]) -> Any:
        if self.applies(set(parts)):
            raise self.error
        return self.work(parts)


@pytest.mark.parametrize("work", ["choose", "run_flow", "run_vocoder"])
def test_a_failing_device_call_ends_only_the_session_at_fault(v2_folder: Path, work: str) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, max_render_rows=4))
    sessions = [{"text": text, "seed": seed} for seed, text in enumerate(TEXTS)]
    expected = render_together(backend, sessions)
    driver = SessionDriver(backend)
    slots = [driver.add(**session) for session in sessions]
    bad = slots[1]
    runner = backend._lm if work == "choose" else backend._render_runner
    FailingCall(runner, work, lambda rows: backend._rows.get(bad) in rows, RuntimeError("bad row"))
    driver.speak()
    assert [str(failure) for failure in driver.failures.values()] == ["bad row"]
    assert [*driver.failures] == [bad]
    for slot, whole in zip(slots, expected, strict=True):
        if slot != bad:
            assert np.abs(np.concatenate(driver.samples[slot]) - whole.samples).max() < 1e-4
    assert backend.open_slots == 0


@pytest.mark.parametrize("method", ["begin", "decoding_turn", "answer", "render_result", "empty_result"])
def test_a_failure_of_a_session_on_the_host_ends_only_that_session(v2_folder: Path, method: str) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("bad session")

    backend = CosyVoiceBackend.load(v2_folder, BRIEF)
    driver = SessionDriver(backend)
    good, bad = (driver.add(TEXTS[1], seed=seed) for seed in range(2))
    setattr(backend._sessions[bad], method, fail)
    driver.speak()
    assert {slot: str(failure) for slot, failure in driver.failures.items()} == {bad: "bad session"}
    assert np.concatenate(driver.samples[good]).any()


def test_out_of_memory_ends_the_newest_sessions_and_stops_admission(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, slots=6))
    driver = SessionDriver(backend)
    slots = [driver.add(text, late=index) for index, text in enumerate(TEXTS)]
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    FailingCall(backend._lm, "choose", lambda rows: len(rows) > 2, error)
    fewest = backend.memory_slots
    while driver._open:
        driver.round()
        fewest = min(fewest, backend.memory_slots)
    assert slots[0] not in driver.failures
    assert slots[1] not in driver.failures
    assert set(driver.failures) <= set(slots[2:])
    assert driver.failures
    assert 2 <= fewest <= 3
    assert backend.memory_slots == 6  # no session is open
    assert backend.open_slots == 0


def test_pages_of_a_dropped_session_serve_the_others_in_the_same_step(
    v2_folder: Path,
) -> None:
    policy = replace(BRIEF, slots=3, max_render_rows=3, length=SpeechLengthRule(10, 10))

    def render(sessions: int, pages: int) -> tuple[SessionDriver, int]:
        """Render that many sessions of equal length; the lowest number of free pages."""
        backend = CosyVoiceBackend.load(v2_folder, policy)
        flow = backend._render_runner._flow
        recorded = GraphFlowRunner(flow, 0.1, rows=3, sentences=3, max_prompt_ids=25, max_hop=50)
        recorded._graphs = FlowGraphs(flow, rows=3, slots=3, pages=pages)
        backend._render_runner._flow_runner = recorded
        driver = SessionDriver(backend)
        for _ in range(sessions):
            driver.add(TEXTS[2])
        free = pages
        while driver._open:
            driver.round()
            free = min(free, recorded._graphs._pages.free)
        assert recorded._graphs._pages.free == pages
        return driver, free

    alone, free = render(1, 40)
    needed = 40 - free
    assert needed > 4
    together, _ = render(3, 3 * needed - 3)
    assert [*together.failures] == [3]
    assert "out of memory" in str(together.failures[3])
    whole = np.concatenate(alone.samples[1])
    for slot in (1, 2):
        assert np.abs(np.concatenate(together.samples[slot]) - whole).max() < 1e-4


SESSIONS = int(os.environ.get("VIVAVOCE_FUZZ", "60"))  # 2,000 before a release


@dataclass(frozen=True)
class Resources:
    """What an idle engine holds."""

    streams: int
    slots: int
    rows: int
    tasks: int
    threads: int
    objects: int  # of classes of vivavoce
    tensor_bytes: int  # of all tensors
    memory_mb: float  # of the process, after malloc_trim; it settles after some hundred sessions


def measure_resources(engine: Engine, backend: CosyVoiceBackend) -> Resources:
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    alive = gc.get_objects()
    tensors = (each for each in alive if issubclass(type(each), torch.Tensor))
    storages = [each.untyped_storage() for each in tensors if each.layout is torch.strided]
    status = Path("/proc/self/status").read_text()
    return Resources(
        streams=engine.active_streams,
        slots=backend.open_slots,
        rows=len(backend._rows) + len(backend._lm._state.lengths) - len(backend._free_rows),
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        objects=sum("vivavoce" in repr(type(each)) for each in alive),
        tensor_bytes=sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values()),
        memory_mb=sum(int(size) for size in re.findall(r"(?:RssAnon|VmSwap):\s+(\d+) kB", status)) / 1024,
    )


async def settled_resources(engine: Engine, backend: CosyVoiceBackend) -> Resources:
    """The resources once they stay equal: a worker frees its last step shortly after the session ended."""
    now = measure_resources(engine, backend)
    while True:
        await asyncio.sleep(0.05)
        before, now = now, measure_resources(engine, backend)
        if replace(now, memory_mb=0) == replace(before, memory_mb=0):
            return now


@pytest.mark.parametrize("overlap", [False, True], ids=["one worker", "a worker a stage"])
def test_nothing_is_left_behind_by_many_sessions_of_which_a_third_are_cancelled(
    v2_folder: Path, overlap: bool
) -> None:
    policy = replace(BRIEF, slots=8, max_render_rows=4, overlap=overlap)
    backend = CosyVoiceBackend.load(v2_folder, policy)
    rng = random.Random(5)

    async def session(engine: Engine, permits: asyncio.Semaphore, seed: int) -> None:
        # The slots are all in use: a cancelled session must free its slot at once.
        async with permits, engine.stream(seed=seed) as stream:
            stream.push_text(TEXTS[1])
            stream.end_input()
            if rng.random() < 1 / 3:
                await asyncio.sleep(rng.random() * 0.1)
            else:
                assert [chunk async for chunk in stream][-1].final

    async def crowd(engine: Engine, seeds: range) -> Resources:
        permits = asyncio.Semaphore(8)
        await asyncio.gather(*(session(engine, permits, seed) for seed in seeds))
        while backend.open_slots:
            await asyncio.sleep(0.001)
        return await settled_resources(engine, backend)

    async def test() -> None:
        config = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9))
        async with await Engine.open(backend=backend, config=config) as engine:
            before = await crowd(engine, range(24))
            after = await crowd(engine, range(24, 24 + SESSIONS))
            print(f"\nbefore: {before}\nafter {SESSIONS} sessions: {after}")
            assert replace(after, memory_mb=0) == replace(before, memory_mb=0)
            assert (after.streams, after.slots, after.rows) == (0, 0, 0)
            assert after.memory_mb - before.memory_mb < 40  # what torch keeps for shapes is half of it

    asyncio.run(asyncio.wait_for(test(), 3_000))


def test_a_cancelled_session_is_in_no_step_after_the_running_one(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, BRIEF)
    steps: list[set[int]] = []
    step = backend.step

    def recorded_step(worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        steps.append({turn.slot for turn in turns})
        return step(worker, turns)

    backend.step = recorded_step  # type: ignore[method-assign]

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            streams = [engine.stream(seed=seed) for seed in range(3)]
            for stream in streams:
                stream.push_text(TEXTS[0] * 20)
            victim = streams[1]
            await anext(victim)
            victim.cancel()
            begun = len(steps)
            slot = victim._session.slot
            await anext(streams[0])
            await anext(streams[0])
            assert all(slot not in turns for turns in steps[begun + 1 :])
            assert slot not in backend._sessions
            for stream in streams:
                stream.cancel()

    asyncio.run(asyncio.wait_for(test(), 120))


def test_text_that_stops_inside_a_word_takes_a_bounded_number_of_steps(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, BRIEF)
    request = SlotRequest("nobody", 1.0, 0)
    slot = backend.open_slot(request)
    results: list[StepResult | Exception] = []
    for segment in backend.segmenter(request).push("Nobody said so, and so I went home, to the ol"):
        turn = SlotTurn(slot, segment)
        while True:
            [result] = backend.step(0, [turn])
            assert isinstance(result, StepResult)
            results.append(result)
            turn = SlotTurn(slot, None)
            if result.segment_done:  # the engine gives it no turn before the next segment
                break
    assert len(results) < 50
    assert backend._sessions[slot].sentence is not None
    backend.close_slot(slot)
