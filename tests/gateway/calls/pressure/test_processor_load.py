"""Refusal of calls for which the machine has no processor time."""

import pytest

from vivavoce.gateway.calls.pressure.processor_load import MAX_LOAD, WINDOW_S, ProcessorLoad
from vivavoce.gateway.calls.pressure.processor_time import ProcessorQuota, ProcessorUse

_STEP_S = 0.25


class Machine:
    """Four cores, and calls that speak all the time. Costs are processor seconds for a second of speech."""

    def __init__(self, *, calls: int, cost: float, others: float = 0.0, is_shared: bool = True) -> None:
        self.calls, self.cost, self.others = calls, cost, others
        self.request_streams = 0.0  # speech of requests, in seconds a second
        self.now = 1_000.0
        self.use = ProcessorUse(50.0, 900.0)
        self._rendered_s = 0.0
        self.load = ProcessorLoad(
            lambda: self.use, lambda: self._rendered_s, lambda: self.calls, ProcessorQuota(4.0, is_shared)
        )

    def run(self, seconds: float) -> ProcessorLoad:
        for _ in range(round(seconds / _STEP_S)):
            self.now += _STEP_S
            rendered_s = (self.calls + self.request_streams) * _STEP_S
            own_s = rendered_s * self.cost
            self._rendered_s += rendered_s
            self.use = ProcessorUse(
                self.use.own_s + own_s, self.use.machine_s + own_s + self.others * _STEP_S
            )
            self.load.sample(self.now)
        return self.load

    def share(self, further_calls: int) -> float:
        return self.load.share(further_calls, self.now)

    @property
    def refuses(self) -> bool:
        return self.load.refusal(self.now) is not None


def test_the_share_is_the_time_of_the_server_over_that_of_the_cores() -> None:
    machine = Machine(calls=100, cost=0.02)
    machine.run(10.0)
    assert machine.share(0) == pytest.approx(0.5)
    assert machine.share(50) == pytest.approx(0.75)
    assert not machine.refuses


def test_a_call_for_which_no_time_is_left_is_refused_with_the_reason() -> None:
    most = int(MAX_LOAD * 4.0 / 0.02)
    fits = Machine(calls=most - 2, cost=0.02)
    fits.run(10.0)
    assert not fits.refuses
    full = Machine(calls=most + 1, cost=0.02)
    refusal = full.run(10.0).refusal(full.now)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_s) == ("processor", 2.0)
    assert "96%" in str(refusal)


def test_calls_that_came_just_now_are_counted_before_their_time_is_measured() -> None:
    machine = Machine(calls=60, cost=0.02)
    machine.run(10.0)
    machine.calls = 191
    assert machine.refuses
    machine.calls = 189
    assert not machine.refuses


def test_requests_take_time_and_do_not_make_a_call_dearer() -> None:
    machine = Machine(calls=4, cost=0.02)
    machine.request_streams = 160.0
    machine.run(10.0)
    assert machine.share(0) == pytest.approx(0.82)
    assert machine.share(1) == pytest.approx(0.825)
    assert not machine.refuses


def test_the_time_of_other_programs_is_not_left_for_calls_but_half_of_the_machine_is() -> None:
    one_core = Machine(calls=100, cost=0.02, others=1.0)
    one_core.run(10.0)
    assert one_core.share(0) == pytest.approx(2.0 / 3.0)
    most_cores = Machine(calls=50, cost=0.02, others=3.0)
    most_cores.run(10.0)
    assert most_cores.share(0) == pytest.approx(1.0 / 2.0)
    own_quota = Machine(calls=50, cost=0.02, others=60.0, is_shared=False)
    own_quota.run(10.0)
    assert own_quota.share(0) == pytest.approx(1.0 / 4.0)


def test_beside_little_speech_the_time_is_not_known() -> None:
    machine = Machine(calls=3, cost=1.3)
    machine.run(10.0)
    assert not machine.refuses


def test_the_share_follows_the_last_seconds_and_is_forgotten() -> None:
    machine = Machine(calls=100, cost=0.04)
    machine.run(10.0)
    assert machine.refuses
    machine.cost = 0.02
    machine.run(WINDOW_S + _STEP_S)
    assert machine.share(0) == pytest.approx(0.5)
    machine.now += WINDOW_S
    assert machine.share(0) == 0.0


def test_after_the_end_of_a_process_the_measurement_begins_anew() -> None:
    machine = Machine(calls=100, cost=0.04)
    machine.run(10.0)
    machine.use = ProcessorUse(machine.use.own_s - 20.0, machine.use.machine_s)
    machine.run(_STEP_S)
    assert machine.share(0) == 0.0
    machine.run(1.0)
    assert machine.share(0) == pytest.approx(1.0)
    assert machine.refuses
