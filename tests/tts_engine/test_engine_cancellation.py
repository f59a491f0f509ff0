"""Tests of cancelling at any time: steps until the slot is free, in this process and in a child."""

import asyncio
import functools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from shared.engine.simulated_backend import SimulatedBackend, StepCostModel
from vivavoce.tts_engine.backends.base import SlotTurn, Stage, StepResult
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream import Stream

TEXT = "one two three four five six seven eight nine ten eleven twelve. " * 50
UNLIMITED = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9, max_unread_s=1e9))
VICTIMS = 60

SIMULATED = functools.partial(
    SimulatedBackend,
    StepCostModel(decode_s=0.0005, render_s=0.005),
    rows={Stage.DECODE: 4, Stage.RENDER: 2},
    slots=8,
    sleep=time.sleep,
)


def simulated_in_child() -> ProcessBackend:
    return ProcessBackend.start_backend(SIMULATED)


class StepRecorder:
    """Records the steps of a backend, and how many had ended when a slot was closed."""

    def __init__(self, backend: SimulatedBackend | ProcessBackend) -> None:
        self.backend = backend
        self.steps: list[tuple[Stage, set[int]]] = []
        self.ended_steps = 0
        self.free_after: dict[int, int] = {}
        self._step, self._close_slot = backend.step, backend.close_slot
        backend.step = self.step  # type: ignore[method-assign]
        backend.close_slot = self.close_slot  # type: ignore[method-assign]

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        self.steps.append((self.backend.stage(turns[0].slot), {turn.slot for turn in turns}))
        results = self._step(worker, turns)
        self.ended_steps += 1
        return results

    def close_slot(self, slot: int) -> None:
        self.free_after[slot] = self.ended_steps
        self._close_slot(slot)


async def cancel_at_any_moment(
    engine: Engine, recorder: StepRecorder, victim: Stream
) -> tuple[Stage | None, int]:
    """The stage of the step in which a stream was cancelled, or None; the steps until its slot closed."""
    victim.push_text(TEXT)
    await asyncio.sleep(random.Random(victim._session.slot).random() * 0.06)
    slot = victim._session.slot
    with engine._sessions.lock:
        in_step = victim._session.running
        ended_steps, begun = recorder.ended_steps, len(recorder.steps)
        victim.cancel()
    while slot not in recorder.free_after:
        await asyncio.sleep(0.0005)
    with_it = [stage for stage, slots in recorder.steps[recorder.free_after[slot] :] if slot in slots]
    assert with_it == []
    assert sum(slot in slots for _, slots in recorder.steps[begun:]) <= 1  # chosen, but not begun yet
    *_, stage = [None, *(stage for stage, slots in recorder.steps if slot in slots)]
    return stage if in_step else None, recorder.free_after[slot] - ended_steps


@pytest.mark.parametrize("make", [SIMULATED, simulated_in_child], ids=["this process", "child process"])
def test_a_cancelled_slot_is_free_when_the_running_step_ends(
    make: Callable[[], SimulatedBackend | ProcessBackend],
) -> None:
    async def test() -> None:
        backend = make()
        recorder = StepRecorder(backend)
        counts: Counter[tuple[Stage | None, int]] = Counter()
        async with await Engine.open(backend=backend, config=UNLIMITED) as engine:
            others = [engine.stream() for _ in range(3)]
            for stream in others:
                stream.push_text(TEXT)
            while counts.total() < VICTIMS or not {stage for stage, _ in counts} >= {
                Stage.DECODE,
                Stage.RENDER,
            }:
                counts[await cancel_at_any_moment(engine, recorder, engine.stream())] += 1
            ended_steps = recorder.ended_steps
            while recorder.ended_steps < ended_steps + 2:
                await asyncio.sleep(0.001)
        print(f"\ncancelled in a step of, and steps until free: {dict(counts)}")
        assert {steps for _, steps in counts} <= {0, 1}
        assert all(steps == 0 for stage, steps in counts if stage is None)

    asyncio.run(asyncio.wait_for(test(), 120))
