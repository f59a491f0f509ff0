"""Routing on a real Ray cluster: three replicas, one of them three times slower, by each policy in turns.

Four texts in five are short, one is five times as long; they arrive at random at 80 % of what the replicas
can render. A replica renders a word in each step and takes the time that it costs, so two cores are enough.
All policies get the same arrivals. Then the simulator gets the arrivals and costs of the live run, and
its waits are compared with those that listeners had.
"""

import asyncio
import itertools
import random
import statistics
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benches.cluster.deployed_cluster import voice_replicas
from shared.cluster.ray_replicas import CostlySettings, NotedStep, join_here, read_steps
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.replicas.cluster_engine import CLUSTER_ROUTING, ClusterEngine, StreamRouter
from vivavoce.gateway.cluster.replicas.cluster_stream import ClusterStream
from vivavoce.gateway.cluster.routing import ReplicaState, RoutingTable, StreamWork
from vivavoce.tts_engine.errors import Overloaded, VivavoceError
from vivavoce.tts_engine.scheduler import SchedulerPolicy

from .replica import SimulatedReplica, SimulatedStream
from .simulation import power_of_two, replay, round_robin

SHORT_WORDS, LONG_WORDS, LONG_SHARE = 10, 50, 0.2
STEP_S = 0.03  # of the fast replicas, for a word of 0.2 s: six to seven streams in real time
SLOWNESS = 3.0
LOAD = 0.8
MAX_RATIO, MAX_SIMULATION_ERROR = 0.7, 0.15
_LEAD_S = 0.6  # of speech that a listener keeps
_MAX_LEAD_S = _LEAD_S + 2.0  # with what is on its way, and what the engine renders ahead
_GAP_S = 0.06


@dataclass(frozen=True, slots=True)
class Arrival:
    """A stream that comes. at_s: after the beginning of its turn."""

    at_s: float
    words: int

    @property
    def text(self) -> str:
        """Words in clauses of five, as long as ``SpeechRate`` expects of a word of 0.2 s."""
        return " ".join("on," if number % 5 == 4 else "is" for number in range(self.words))


@dataclass(slots=True)
class PolicyRun:
    """What listeners had with one policy."""

    waits_s: list[float] = field(default_factory=list)
    heard_at: dict[str, list[float]] = field(default_factory=dict)  # first audio of the last turn, by replica
    chunks_s: list[float] = field(default_factory=list)  # of speech, pauses included
    refused: int = 0
    underruns: int = 0


class PlainRouter:
    """A router that knows nothing but the number of streams it has opened; for comparison."""

    def __init__(self, choose: Callable[[Sequence[str], Callable[[str], int]], str]) -> None:
        self._choose = choose
        self._known: dict[str, ReplicaState] = {}

    def report(self, state: ReplicaState, now: float) -> None:
        self._known[state.id] = state

    def remove(self, replica_id: str) -> None:
        self._known.pop(replica_id, None)

    def age_s(self, replica_id: str, now: float) -> float:
        return 0.0

    def route(self, work: StreamWork, now: float, among: Iterable[str] | None = None) -> ReplicaState:
        ids = sorted(self._known.keys() & set(self._known if among is None else among))
        if not ids:
            raise Overloaded("no replica has room", reason="replicas", retry_after_s=1.0)
        return self._known[self._choose(ids, lambda each: self._known[each].open_streams)]


class _Turns:
    """A router that passes each choice to the policy whose turn it is."""

    def __init__(self) -> None:
        turns, rng = itertools.count(), random.Random(0)
        self.policies: dict[str, StreamRouter] = {
            "by cost": RoutingTable(CLUSTER_ROUTING),
            "round robin": PlainRouter(lambda ids, _: ids[next(turns) % len(ids)]),
            "power of two": PlainRouter(lambda ids, count: min(rng.sample(ids, min(2, len(ids))), key=count)),
        }
        self.policy = "by cost"
        self.works: list[StreamWork] = []  # as they were routed

    def report(self, state: ReplicaState, now: float) -> None:
        for each in self.policies.values():
            each.report(state, now)

    def remove(self, replica_id: str) -> None:
        for each in self.policies.values():
            each.remove(replica_id)

    def age_s(self, replica_id: str, now: float) -> float:
        return self.policies["by cost"].age_s(replica_id, now)

    def route(self, work: StreamWork, now: float, among: Iterable[str] | None = None) -> ReplicaState:
        self.works.append(work)
        return self.policies[self.policy].route(work, now, among)


def measure(seconds: float = 40.0, rounds: int = 2) -> BenchReport:
    """Measure on a Ray cluster of this process. seconds: of a turn."""
    with tempfile.TemporaryDirectory() as folder:
        settings = CostlySettings(
            step_s=STEP_S,
            max_batch_size=1,
            reports_cost=True,
            slow_marker=Path(folder) / "slow",
            slowness=SLOWNESS,
            steps=Path(folder) / "steps",
        )
        (Path(folder) / "steps").mkdir()
        with voice_replicas(settings, {"voice": {"num_replicas": 3}}):
            figures = asyncio.run(_measure(seconds, rounds, Path(folder) / "steps"))
    settings_shown: dict[str, str | float] = {
        "load": LOAD,
        "short to long": "4:1",
        "seconds": seconds,
        "rounds": rounds,
    }
    return BenchReport("live-routing", figures, settings_shown)


async def _measure(seconds: float, rounds: int, noted: Path) -> tuple[BenchFigure, ...]:
    router = _Turns()
    runs = {name: PolicyRun() for name in router.policies}
    simulated: dict[str, list[float]] = {name: [] for name in runs}
    async with await join_here(router) as engine:
        while len(engine.replicas) < 3:
            await asyncio.sleep(0.1)
        await asyncio.gather(*(_warm_up(engine) for _ in range(12)))
        for number, name in itertools.product(range(rounds), runs):
            arrivals = _draw_arrivals(seconds, seed=number)
            router.policy, router.works = name, []
            runs[name].heard_at.clear()
            begins = time.monotonic()
            await _play(engine, arrivals, runs[name])
            costs = {each.replica: each.load.compute_s_per_audio_s for each in engine._links.values()}
            steps = await asyncio.to_thread(read_steps, noted, begins)
            begins_at = len(simulated[name])  # round robin goes on where it was
            simulated[name] += _simulated_waits(
                arrivals, router.works, costs, steps, runs[name], name, begins_at
            )
    return (*_figures(runs), *_comparison(runs, simulated))


async def _warm_up(engine: ClusterEngine) -> None:
    """Speak until each replica has measured its cost."""
    async with engine.stream() as stream:
        stream.push_text(Arrival(0.0, 60).text)
        stream.end_input()
        async for _ in stream:
            pass


def _draw_arrivals(seconds: float, seed: int) -> list[Arrival]:
    rng = random.Random(seed)
    words = (1 - LONG_SHARE) * SHORT_WORDS + LONG_SHARE * LONG_WORDS
    rate = LOAD * (2 + 1 / SLOWNESS) / (words * STEP_S)
    times = itertools.takewhile(
        lambda at: at < seconds, itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())
    )
    return [Arrival(at, LONG_WORDS if rng.random() < LONG_SHARE else SHORT_WORDS) for at in times]


async def _play(engine: ClusterEngine, arrivals: Sequence[Arrival], run: PolicyRun) -> None:
    begins = time.monotonic()
    async with asyncio.TaskGroup() as listeners:
        for arrival in arrivals:
            await asyncio.sleep(begins + arrival.at_s - time.monotonic())
            listeners.create_task(_listen(engine, arrival, run))


async def _listen(engine: ClusterEngine, arrival: Arrival, run: PolicyRun) -> None:
    begins, dry_at, waited_s = time.monotonic(), 0.0, None
    try:
        async with engine.stream() as stream:
            stream.push_text(arrival.text)
            stream.end_input()
            async for chunk in stream:
                now = time.monotonic()
                assert isinstance(stream, ClusterStream)
                (replica, *_) = stream.tried
                if waited_s is None:
                    waited_s = now - begins
                    run.heard_at.setdefault(replica, []).append(now)
                else:
                    run.underruns += now > dry_at + _GAP_S
                run.chunks_s.append(chunk.seconds)
                dry_at = max(now, dry_at) + chunk.seconds
                stream.set_deadline(dry_at)
                await asyncio.sleep(max(0.0, dry_at - time.monotonic() - _LEAD_S))
    except VivavoceError:
        run.refused += 1
    else:
        assert waited_s is not None
        run.waits_s.append(waited_s)


def _simulated_waits(
    arrivals: Sequence[Arrival],
    works: Sequence[StreamWork],
    costs: Mapping[str, float],
    steps: Mapping[str, Sequence[NotedStep]],
    run: PolicyRun,
    policy: str,
    seed: int,
) -> list[float]:
    """Waits of the same streams at simulated replicas, with the costs, steps and links of the live ones."""
    links_s, rng, chunk_s = _links_s(steps, run.heard_at), random.Random(0), statistics.mean(run.chunks_s)
    streams = [
        SimulatedStream(
            arrival.at_s + rng.choice(links_s), StreamWork(chunk_s, arrival.words * chunk_s), work
        )
        for arrival, work in zip(arrivals, works, strict=False)
    ]
    replicas = [
        SimulatedReplica(
            replica,
            cost,
            step_s=chunk_s,
            max_lead_s=_MAX_LEAD_S,
            max_load=SchedulerPolicy().max_load,
            logged_steps_s=itertools.cycle([each.ends - each.begins for each in steps[replica]]),
        )
        for replica, cost in sorted(costs.items())
    ]
    make = {"by cost": _cluster_router, "round robin": round_robin, "power of two": power_of_two}[policy]
    replay(replicas, make(seed), streams)
    return [
        each.first_audio_at - arrival.at_s + rng.choice(links_s)
        for each, arrival in zip(streams, arrivals, strict=False)
        if each.first_audio_at is not None
    ]


def _links_s(
    steps: Mapping[str, Sequence[NotedStep]], heard_at: Mapping[str, Sequence[float]]
) -> list[float]:
    """How long first audio took from its replica's step to its listener. The text's way took the like.

    The step is the last first one that had ended: of a stream that is moved, two replicas render the first.
    """
    links_s = []
    for replica, times in heard_at.items():
        ends = sorted(each.ends for each in steps[replica] if each.is_first)
        links_s += [heard - ends[index - 1] for heard in times if (index := bisect_right(ends, heard))]
    return links_s


def _cluster_router(seed: int) -> RoutingTable:
    return RoutingTable(CLUSTER_ROUTING, seed=seed)


def _p95_ms(waits_s: Sequence[float]) -> float:
    return 1000 * statistics.quantiles(waits_s, n=100, method="inclusive")[94]


def _figures(runs: dict[str, PolicyRun]) -> tuple[BenchFigure, ...]:
    p95_ms = {name: _p95_ms(run.waits_s) for name, run in runs.items()}
    others = min(p95_ms["round robin"], p95_ms["power of two"])
    return (
        *(BenchFigure(f"{name}, first audio p95", value, "ms") for name, value in p95_ms.items()),
        *(
            BenchFigure(f"{name}, first audio p50", 1000 * statistics.median(run.waits_s), "ms")
            for name, run in runs.items()
        ),
        *(BenchFigure(f"{name}, streams", len(run.waits_s), "") for name, run in runs.items()),
        *(BenchFigure(f"{name}, refused", run.refused, "") for name, run in runs.items()),
        *(BenchFigure(f"{name}, underruns", run.underruns, "") for name, run in runs.items()),
        BenchFigure(
            "by cost over the better of the others, p95", p95_ms["by cost"] / others, "", at_most=MAX_RATIO
        ),
    )


def _comparison(runs: dict[str, PolicyRun], simulated: dict[str, list[float]]) -> tuple[BenchFigure, ...]:
    figures = []
    for name, waits_s in simulated.items():
        live_ms, virtual_ms = _p95_ms(runs[name].waits_s), _p95_ms(waits_s)
        figures.append(BenchFigure(f"{name}, simulated from the live inputs, p95", virtual_ms, "ms"))
        error = abs(virtual_ms - live_ms) / live_ms
        figures.append(
            BenchFigure(
                f"{name}, the simulator is off by",
                error,
                "",
                at_most=MAX_SIMULATION_ERROR,
            )
        )
    return tuple(figures)
