"""Autoscaling on simulated traces: step load, flapping load, idle models, and replicas that speak."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from vivavoce.gateway.cluster.autoscaling import (
    AutoscalingPolicy,
    ScalingState,
    StageReport,
    decide_scale,
    retire_replicas,
)
from vivavoce.gateway.cluster.routing import ReplicaState

POLICY = AutoscalingPolicy(max_replicas=8)
CALM = StageReport(ready_replicas=2, starting_replicas=0, open_streams=5, load=0.6)
STREAMS_A_REPLICA = 10  # in real time
START_S = 5


@dataclass
class Stage:
    """A stage of which each replica renders ten streams, and takes five seconds to start."""

    policy: AutoscalingPolicy
    replicas: dict[int, ReplicaState] = field(default_factory=dict)
    ready_at: dict[int, int] = field(default_factory=dict)
    ended_while_speaking: int = 0
    counts: list[int] = field(default_factory=list)

    def run(self, demand: Callable[[int], int], seconds: int, ready: int = 1) -> None:
        numbers = itertools.count()
        state = ScalingState(ready)
        for _ in range(ready):
            self._start(next(numbers), -START_S)
        for now in range(seconds):
            serving = [n for n, at in self.ready_at.items() if at <= now]
            taking = [n for n in serving if not self.replicas[n].is_draining]
            self._place(now, demand(now), serving, taking)
            state = decide_scale(self._report(demand(now), taking, now), state, self.policy, float(now))
            self._apply(state.replicas, numbers, now)
            self.counts.append(len(self.replicas))

    def _start(self, number: int, now: int) -> None:
        self.replicas[number] = ReplicaState(str(number), 0, 1000, 1 / STREAMS_A_REPLICA)
        self.ready_at[number] = now + START_S

    def _place(self, now: int, streams: int, serving: list[int], taking: list[int]) -> None:
        """Every five seconds, one stream of each draining replica ends."""
        for number in set(serving) - set(taking):
            open_streams = self.replicas[number].open_streams
            kept = min(max(0, open_streams - (now % 5 == 0)), streams)
            self.replicas[number] = replace(self.replicas[number], open_streams=kept)
            streams -= kept
        for place, number in enumerate(taking):
            share = len(range(place, streams, len(taking)))
            self.replicas[number] = replace(self.replicas[number], open_streams=share)

    def _report(self, streams: int, taking: list[int], now: int) -> StageReport:
        load = streams / STREAMS_A_REPLICA / max(1, len(taking))
        starting = sum(at > now for at in self.ready_at.values())
        return StageReport(
            ready_replicas=len(taking),
            starting_replicas=starting,
            open_streams=streams,
            load=load if taking else 0.0,
            first_audio_p95_s=0.1 if load < 1 else 1.0,
            short_lead_share=max(0.0, 1 - 1 / load) if load else 0.0,
            refused_share=1.0 if streams and not taking else 0.0,
        )

    def _apply(self, target: int, numbers: "itertools.count[int]", now: int) -> None:
        retirement = retire_replicas(list(self.replicas.values()), target)
        for number, replica in list(self.replicas.items()):
            if replica.id in retirement.end:
                self.ended_while_speaking += replica.open_streams > 0
                del self.replicas[number], self.ready_at[number]
            elif replica.id in retirement.drain | retirement.resume:
                self.replicas[number] = replace(replica, is_draining=replica.id in retirement.drain)
        for _ in range(target - len(self.replicas)):
            self._start(next(numbers), now)


def run(demand: Callable[[int], int], seconds: int, policy: AutoscalingPolicy = POLICY) -> Stage:
    stage = Stage(policy)
    stage.run(demand, seconds)
    return stage


def test_a_step_load_goes_from_one_replica_to_three_and_back() -> None:
    stage = run(lambda now: 20 if 10 <= now < 100 else 4, 400)
    assert stage.counts[:10] == [1] * 10
    assert stage.counts[12] == 3  # asked for at once; they serve after their start
    assert stage.counts[60:100] == [3] * 40
    assert stage.counts[-1] == 1
    assert stage.ended_while_speaking == 0


def test_a_flapping_load_keeps_its_replicas() -> None:
    stage = run(lambda now: 20 if now // 15 % 2 else 4, 600)
    assert set(stage.counts[60:]) == {3}


def test_a_replica_that_speaks_is_drained_and_not_ended() -> None:
    busy = ReplicaState("busy", 3, 10, 0.1)
    busier = replace(busy, id="busier", open_streams=7)
    first = retire_replicas([busy, busier], 1)
    assert (first.drain, first.end) == ({"busy"}, set())
    draining = replace(busy, is_draining=True)
    assert retire_replicas([draining, busier], 1).end == set()
    assert retire_replicas([replace(draining, open_streams=0), busier], 1).end == {"busy"}


def test_a_draining_replica_resumes_when_it_is_needed_again() -> None:
    draining = ReplicaState("a", 3, 10, 0.1, is_draining=True)
    assert retire_replicas([draining], 1).resume == {"a"}


@pytest.mark.parametrize(
    "report",
    [
        replace(CALM, load=1.2),
        replace(CALM, first_audio_p95_s=0.4),
        replace(CALM, short_lead_share=0.03),
        replace(CALM, refused_share=0.1),
    ],
)
def test_whatever_listeners_notice_adds_replicas(report: StageReport) -> None:
    assert decide_scale(CALM, ScalingState(2), POLICY, 0.0).replicas == 2
    assert decide_scale(report, ScalingState(2), POLICY, 0.0).replicas in (3, 4)


def test_replicas_that_start_are_waited_for() -> None:
    late = replace(CALM, first_audio_p95_s=2.0)
    once = decide_scale(late, ScalingState(2), POLICY, 0.0)
    again = decide_scale(replace(late, starting_replicas=2), once, POLICY, 1.0)
    assert (once.replicas, again.replicas) == (4, 4)


def test_limits_of_the_policy_hold() -> None:
    assert decide_scale(replace(CALM, load=9.0), ScalingState(2), POLICY, 0.0).replicas == 8


def test_a_spare_model_ends_when_idle_and_starts_when_asked_for() -> None:
    policy = replace(POLICY, min_replicas=0, idle_after_s=100.0)
    stage = run(lambda now: 3 if now < 20 or now >= 300 else 0, 320, policy)
    assert stage.counts[50] == 1
    assert stage.counts[200] == 0
    assert stage.counts[301] == 1
    kept = run(lambda now: 3 if now < 20 else 0, 320, replace(policy, min_replicas=1))
    assert kept.counts[-1] == 1
