"""Cancelling at any moment: how many steps it takes until a slot is free, here and with a voice elsewhere."""

import asyncio
import functools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from shared.simulated_backend import SimulatedBackend, StepCostModel
from vivavoce.tts_engine.backends.base import SlotTurn, Stage, StepResult
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream import Stream

TEXT = "one two three four five six seven eight nine ten eleven twelve. " * 50
PATIENT = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9, max_unread_s=1e9))
VICTIMS = 60

SIMULATED = functools.partial(
    SimulatedBackend,
    StepCostModel(decode_s=0.0005, render_s=0.005),
    rows={Stage.DECODE: 4, Stage.RENDER: 2},
    slots=8,
    sleep=time.sleep,
)


def elsewhere() -> ProcessBackend:
    return ProcessBackend.start_backend(SIMULATED)


class Watched:
    """Notes the steps of a backend, and how many were over when a slot was given back."""

    def __init__(self, backend: SimulatedBackend | ProcessBackend) -> None:
        self.backend = backend
        self.steps: list[tuple[Stage, set[int]]] = []
        self.over = 0
        self.free_after: dict[int, int] = {}
        self._step, self._close_slot = backend.step, backend.close_slot
        backend.step = self.step  # type: ignore[method-assign]
        backend.close_slot = self.close_slot  # type: ignore[method-assign]

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        self.steps.append((self.backend.stage(turns[0].slot), {turn.slot for turn in turns}))
        results = self._step(worker, turns)
        self.over += 1
        return results

    def close_slot(self, slot: int) -> None:
        self.free_after[slot] = self.over
        self._close_slot(slot)


async def cancel_at_any_moment(engine: Engine, watched: Watched, victim: Stream) -> tuple[Stage | None, int]:
    """The stage in which a stream was cancelled, None in neither; and the steps until its slot was free."""
    victim.push_text(TEXT)
    await asyncio.sleep(random.Random(victim._session.slot).random() * 0.06)
    slot = victim._session.slot
    with engine.lock:
        in_step = victim._session.running
        over, begun = watched.over, len(watched.steps)
        victim.cancel()
    while slot not in watched.free_after:
        await asyncio.sleep(0.0005)
    with_it = [stage for stage, slots in watched.steps[watched.free_after[slot] :] if slot in slots]
    assert with_it == []
    assert sum(slot in slots for _, slots in watched.steps[begun:]) <= 1  # chosen, but not begun yet
    *_, stage = [None, *(stage for stage, slots in watched.steps if slot in slots)]
    return stage if in_step else None, watched.free_after[slot] - over


@pytest.mark.parametrize("make", [SIMULATED, elsewhere], ids=["here", "elsewhere"])
def test_a_cancelled_slot_is_free_when_the_step_under_way_is_over(
    make: Callable[[], SimulatedBackend | ProcessBackend],
) -> None:
    async def test() -> None:
        backend = make()
        watched = Watched(backend)
        told: Counter[tuple[Stage | None, int]] = Counter()
        async with await Engine.open(backend=backend, config=PATIENT) as engine:
            others = [engine.stream() for _ in range(3)]
            for stream in others:
                stream.push_text(TEXT)
            while told.total() < VICTIMS or not {stage for stage, _ in told} >= {Stage.DECODE, Stage.RENDER}:
                told[await cancel_at_any_moment(engine, watched, engine.stream())] += 1
            over = watched.over
            while watched.over < over + 2:
                await asyncio.sleep(0.001)
        print(f"\ncancelled in a step of, and steps until free: {dict(told)}")
        assert {steps for _, steps in told} <= {0, 1}
        assert all(steps == 0 for stage, steps in told if stage is None)

    asyncio.run(asyncio.wait_for(test(), 120))
