"""Streams that arrive at random at a cluster of replicas, on a virtual clock.

Arrivals are a Poisson process. Four streams in five are short, one is twenty times as long; one in fifty
brings a recording that is not encoded yet. Each of several gateways routes its share of the streams; it knows
the replicas by their reports, which may be old, and counts what it has routed itself since.
"""

import functools
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from vivavoce.gateway.cluster.routing import ReplicaState, RoutingPolicy, RoutingTable, StreamWork
from vivavoce.tts_engine.errors import Overloaded

from .replica import ENCODE_S_PER_REFERENCE_S, SimulatedReplica, SimulatedStream

SHORT_S, LONG_S = 2.0, 40.0  # speech of a stream
LONG_SHARE = 0.2
FIRST_AUDIO_S = 0.4
REFERENCE_SHARE = 0.02
REFERENCE_RANGE_S = (3.0, 20.0)


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """A cluster, and the streams that arrive. Times are virtual seconds."""

    replicas: int
    seconds: float
    load: float = 0.8  # share of the compute time of all replicas
    seed: int = 0
    compute_s_per_audio_s: float = 0.05  # twenty streams in real time a replica
    is_in_order: bool = False  # a replica renders one stream to its end before the next
    slow_replicas: int = 0  # that need twice the time
    gateways: int = 1
    report_every_s: float = 0.0  # 0: reports are made for each choice
    report_delay_s: float = 0.0  # from the report's making to the gateways
    estimate_error: float = 1.0  # estimates are that factor too high or too low, at random


class Router(Protocol):
    """A routing policy in one gateway."""

    def report(self, state: ReplicaState, now: float) -> None:
        """Take a replica's report."""

    def route(self, work: StreamWork, now: float) -> ReplicaState:
        """Choose a replica, and count the stream there."""


class CountingRouter:
    """Chooses by the number of open streams, or in turn."""

    def __init__(self, choose: Callable[[list[str], Callable[[str], int]], str]) -> None:
        self._choose = choose
        self._replicas: dict[str, ReplicaState] = {}
        self._ids: list[str] = []

    def report(self, state: ReplicaState, now: float) -> None:
        """Take a replica's report."""
        if state.id not in self._replicas:
            self._ids.append(state.id)
        self._replicas[state.id] = state

    def route(self, work: StreamWork, now: float) -> ReplicaState:
        """Choose a replica, and count the stream there."""
        ids = [each for each in self._ids if not self._replicas[each].is_full]
        if not ids:
            raise Overloaded("every replica is full", reason="replicas", retry_after_s=1.0)
        chosen = self._replicas[self._choose(ids, lambda each: self._replicas[each].open_streams)]
        self._replicas[chosen.id] = replace(chosen, open_streams=chosen.open_streams + 1)
        return chosen


def round_robin(seed: int) -> Router:
    """A router that chooses in turn."""
    turns = itertools.count(seed)
    return CountingRouter(lambda ids, count: ids[next(turns) % len(ids)])


def least_outstanding(seed: int) -> Router:
    """A router that chooses the fewest open streams, at random among equals."""
    rng = random.Random(seed)
    return CountingRouter(lambda ids, count: min(ids, key=lambda each: (count(each), rng.random())))


def power_of_two(seed: int) -> Router:
    """A router that draws two replicas and takes the one with fewer open streams."""
    rng = random.Random(seed)
    return CountingRouter(lambda ids, count: min(rng.sample(ids, min(2, len(ids))), key=count))


def by_cost(seed: int) -> Router:
    """The product's router."""
    return RoutingTable(RoutingPolicy(reference_cost=ENCODE_S_PER_REFERENCE_S, max_load=math.inf), seed=seed)


def simulate(load: ClusterLoad, make_router: Callable[[int], Router]) -> list[SimulatedStream]:
    """The streams of a load, rendered to their ends."""
    cost = load.compute_s_per_audio_s
    replicas = {
        str(number): SimulatedReplica(
            str(number),
            cost * (2.0 if number < load.slow_replicas else 1.0),
            load.is_in_order,
            gateways=load.gateways,
        )
        for number in range(load.replicas)
    }
    routers = [make_router(load.seed * load.gateways + number) for number in range(load.gateways)]
    streams = list(_draw_streams(load))
    _Cluster(replicas, routers, load).run(streams)
    return streams


def replay(replicas: Sequence[SimulatedReplica], router: Router, streams: Sequence[SimulatedStream]) -> None:
    """Render given streams at given replicas, whose reports are fresh."""
    by_id = {replica.id: replica for replica in replicas}
    _Cluster(by_id, [router], ClusterLoad(len(by_id), 0.0)).run(streams)


def _draw_streams(load: ClusterLoad) -> Iterator[SimulatedStream]:
    rng = random.Random(load.seed)
    cost = load.compute_s_per_audio_s
    capacity = load.replicas - load.slow_replicas / 2
    audio_s = (1 - LONG_SHARE) * SHORT_S + LONG_SHARE * LONG_S
    encode_s = REFERENCE_SHARE * sum(REFERENCE_RANGE_S) / 2 * ENCODE_S_PER_REFERENCE_S
    rate = load.load * capacity / (audio_s * cost + encode_s)
    now = rng.expovariate(rate)
    while now < load.seconds:
        audio_s = LONG_S if rng.random() < LONG_SHARE else SHORT_S
        reference_s = rng.uniform(*REFERENCE_RANGE_S) if rng.random() < REFERENCE_SHARE else 0.0
        error = load.estimate_error ** rng.choice((-1, 1))
        work = StreamWork(FIRST_AUDIO_S, audio_s, reference_s)
        expected = StreamWork(FIRST_AUDIO_S * error, audio_s * error, reference_s * error)
        yield SimulatedStream(now, work, expected)
        now += rng.expovariate(rate)


class _Cluster:
    """The event loop of one simulation."""

    def __init__(
        self, replicas: dict[str, SimulatedReplica], routers: Sequence[Router], load: ClusterLoad
    ) -> None:
        self._replicas = replicas
        self._routers = routers
        self._load = load
        self._numbers = itertools.count()  # orders events of the same time
        self._events: list[tuple[float, int, Callable[[float], None]]] = []

    def run(self, streams: Sequence[SimulatedStream]) -> None:
        for router, stream in zip(itertools.cycle(self._routers), streams, strict=False):
            self._at(stream.arrived_at, functools.partial(self._arrive, router, stream))
        for number, replica in enumerate(self._replicas.values()):
            self._deliver(replica.state(0.0), 0.0, 0.0)
            if self._load.report_every_s:
                first_at = self._load.report_every_s * number / len(self._replicas)
                self._at(first_at, functools.partial(self._report, replica))
        while self._events:
            now, _, happen = heapq.heappop(self._events)
            happen(now)

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    def _arrive(self, router: Router, stream: SimulatedStream, now: float) -> None:
        if not self._load.report_every_s:
            for replica in self._replicas.values():
                router.report(replica.state(now), now)
        try:
            replica = self._replicas[router.route(stream.expected, now).id]
        except Overloaded:  # the stream is refused, and has no first audio
            return
        replica.waiting.append(stream)
        self._work(replica, now)

    def _work(self, replica: SimulatedReplica, now: float) -> None:
        """Begin a step if the replica is free."""
        if replica.running is None and (look_at := replica.begin_step(now)) is not None:
            act = self._work if replica.running is None else self._end_step
            self._at(look_at, functools.partial(act, replica))

    def _end_step(self, replica: SimulatedReplica, now: float) -> None:
        replica.end_step(now)
        self._work(replica, now)

    def _report(self, replica: SimulatedReplica, now: float) -> None:
        state = replica.state(now)
        self._at(now + self._load.report_delay_s, functools.partial(self._deliver, state, now))
        if now < self._load.seconds:
            self._at(now + self._load.report_every_s, functools.partial(self._report, replica))

    def _deliver(self, state: ReplicaState, made_at: float, _now: float) -> None:
        for router in self._routers:
            router.report(state, made_at)
