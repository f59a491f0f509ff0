"""The clock of all calls, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from vivavoce.adapters.media.clock import PERIOD_S, Clock


class Leg:
    def __init__(self) -> None:
        self.ticks: list[float] = []
        self.failure: Exception | None = None

    def tick(self, now: float) -> None:
        self.ticks.append(now)

    def fail(self, error: Exception) -> None:
        self.failure = error


class FaultyLeg(Leg):
    def tick(self, now: float) -> None:
        super().tick(now)
        raise ValueError("no packet")


def manual_clock(phases: int = 4) -> Clock:
    """Return a clock at second 0, which the test advances."""
    return Clock(phases=phases, now=lambda: 0.0)


async def run_for(seconds: float, clock: Clock) -> None:
    task = asyncio.create_task(clock.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait({task})


def intervals(leg: Leg) -> list[float]:
    return [round(after - before, 6) for before, after in zip(leg.ticks, leg.ticks[1:], strict=False)]


def test_legs_spread_evenly_over_the_phases() -> None:
    clock = manual_clock()
    legs = [Leg() for _ in range(10)]
    starts = [clock.join(leg) for leg in legs]
    phases = Counter(round(start * 1000) % 20 for start in starts)
    assert sorted(phases) == [0, 5, 10, 15]
    assert sorted(phases.values()) == [2, 2, 3, 3]


def test_a_phase_is_reused_after_its_leg_has_left() -> None:
    clock = manual_clock()
    legs = [Leg() for _ in range(4)]
    starts = [clock.join(leg) for leg in legs]
    clock.leave(legs[2])
    assert clock.join(Leg()) == starts[2]


def test_join_returns_the_time_of_the_first_tick(run_virtually: Callable) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        clock = Clock(now=loop.time)
        task = asyncio.create_task(clock.run())
        for _ in range(9):
            await asyncio.sleep(0.0031)
            leg = Leg()
            start = clock.join(leg)
            assert loop.time() < start <= loop.time() + PERIOD_S + 1e-9
            await asyncio.sleep(0.05)
            assert next(tick for tick in leg.ticks if tick >= start - 1e-9) == pytest.approx(start)
        task.cancel()
        await asyncio.wait({task})

    run_virtually(scenario())


def test_every_leg_ticks_once_a_period(run_virtually: Callable) -> None:
    async def scenario() -> None:
        clock = Clock(now=asyncio.get_running_loop().time)
        legs = [Leg() for _ in range(7)]
        for leg in legs:
            clock.join(leg)
        await run_for(1.0, clock)
        for leg in legs:
            assert set(intervals(leg)) == {PERIOD_S}
            assert len(leg.ticks) in (50, 51)

    run_virtually(scenario())


def test_sleep_errors_do_not_accumulate(run_virtually: Callable) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        async def oversleep(seconds: float) -> None:
            await asyncio.sleep(seconds + 0.0009)

        clock = Clock(now=loop.time, sleep=oversleep)
        leg = Leg()
        start = clock.join(leg)
        await run_for(20.0, clock)
        last = leg.ticks[-1]
        assert len(leg.ticks) == pytest.approx(1000, abs=1)
        assert (last - start) % PERIOD_S == pytest.approx(0.0009, abs=1e-6)

    run_virtually(scenario())


def test_a_stall_is_followed_by_one_tick_and_no_burst(run_virtually: Callable) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        clock = Clock(now=loop.time)
        legs = [Leg() for _ in range(4)]
        starts = [clock.join(leg) for leg in legs]
        loop.call_later(0.2005, loop.pass_time, 0.130)
        await run_for(0.6, clock)
        for leg, start in zip(legs, starts, strict=True):
            stalled = max(intervals(leg))
            assert 0.110 <= stalled <= 0.150
            assert intervals(leg).count(stalled) == 1
            assert min(intervals(leg)) > 0.0
            offset_s = (leg.ticks[-1] - start + 1e-6) % PERIOD_S
            assert offset_s == pytest.approx(0.0, abs=1e-5)

    run_virtually(scenario())


def test_after_a_stall_each_leg_is_ticked_once_at_the_current_time() -> None:
    clock = manual_clock()
    legs = [Leg() for _ in range(4)]
    for leg in legs:
        clock.join(leg)
    clock.advance(0.0)
    for leg in legs:
        leg.ticks.clear()
    clock.advance(10.0)
    assert [leg.ticks for leg in legs] == [[10.0]] * 4
    clock.advance(10.0)
    assert [leg.ticks for leg in legs] == [[10.0]] * 4


def test_a_leg_whose_tick_raises_is_failed_alone() -> None:
    clock = manual_clock(phases=1)
    before, faulty, after = Leg(), FaultyLeg(), Leg()
    for leg in (before, faulty, after):
        clock.join(leg)
    clock.advance(0.0)
    clock.advance(0.020)
    assert isinstance(faulty.failure, ValueError)
    assert faulty.ticks == [0.0]
    assert before.ticks == after.ticks == [0.0, 0.020]
    assert before.failure is after.failure is None


def test_a_leg_may_leave_while_it_is_ticked() -> None:
    clock = manual_clock(phases=1)

    class LeavingLeg(Leg):
        def tick(self, now: float) -> None:
            clock.leave(self)
            super().tick(now)

    leaving, staying = LeavingLeg(), Leg()
    clock.join(leaving)
    clock.join(staying)
    clock.advance(0.0)
    clock.advance(0.020)
    assert leaving.ticks == [0.0]
    assert staying.ticks == [0.0, 0.020]


def test_leaving_twice_is_no_error() -> None:
    clock = manual_clock()
    leg = Leg()
    clock.join(leg)
    clock.leave(leg)
    clock.leave(leg)


def test_a_clock_without_legs_does_not_wake_up(run_virtually: Callable) -> None:
    async def scenario() -> None:
        wakes = 0

        async def counted(seconds: float) -> None:
            nonlocal wakes
            wakes += 1
            await asyncio.sleep(seconds)

        clock = Clock(now=asyncio.get_running_loop().time, sleep=counted)
        await run_for(10.0, clock)
        assert wakes == 0
        leg = Leg()
        clock.join(leg)
        await run_for(0.1, clock)
        assert wakes > 0
        clock.leave(leg)
        wakes = 0
        await run_for(10.0, clock)
        assert wakes <= 1

    run_virtually(scenario())


def test_a_leg_that_joins_late_does_not_disturb_the_others(run_virtually: Callable) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        clock = Clock(now=loop.time)
        first = Leg()
        clock.join(first)
        # At the time of a tick, before that tick runs.
        loop.call_later(0.1, clock.join, Leg())
        await run_for(0.3, clock)
        assert set(intervals(first)) == {PERIOD_S}

    run_virtually(scenario())
