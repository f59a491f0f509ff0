"""Compares routing by cost with round robin, least outstanding and power of two, on a virtual clock.

First audio is the wait from a stream's arrival to its first chunk, in two kinds of replicas: those that share
their time between streams as the engine does, and those that render one stream to its end before the next.
The ratio is the p95 by cost over the smaller of those of power of two and round robin. Old reports are made
every 0.1 s, arrive 0.1 s later, and are read by four gateways.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

from .simulation import (
    LONG_S,
    ClusterLoad,
    Router,
    by_cost,
    least_outstanding,
    power_of_two,
    round_robin,
    simulate,
)

POLICIES: dict[str, Callable[[int], Router]] = {
    "by cost": by_cost,
    "power of two": power_of_two,
    "round robin": round_robin,
    "least outstanding": least_outstanding,
}
WARM_UP_S = LONG_S  # until as many long streams end as begin; their streams are not counted
MAX_RATIO = 0.7  # of the better of power of two and round robin
_STALE = replace(ClusterLoad(16, 0.0), gateways=4, report_every_s=0.1, report_delay_s=0.1)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load, and whether it has the target."""

    name: str
    load: ClusterLoad
    has_target: bool = False


def scenarios(seconds: float) -> list[Scenario]:
    """The loads to compare; seconds: virtual, of 16 replicas."""
    fresh = ClusterLoad(16, WARM_UP_S + seconds)
    stale = replace(_STALE, seconds=fresh.seconds)
    return [
        Scenario("16 replicas", fresh, has_target=True),
        Scenario("16, estimates 2x off", replace(fresh, estimate_error=2.0)),
        Scenario("16, reports 0.15 s old", stale),
        Scenario("16, 8 of them slow", replace(fresh, slow_replicas=8)),
        Scenario("16, load 0.95", replace(fresh, load=0.95)),
        Scenario("2 replicas", replace(fresh, replicas=2, seconds=WARM_UP_S + 8 * seconds)),
        Scenario("100 replicas", replace(fresh, replicas=100, seconds=WARM_UP_S + seconds / 6)),
        Scenario("16 in order", replace(fresh, is_in_order=True), has_target=True),
        Scenario("16 in order, estimates 2x off", replace(fresh, is_in_order=True, estimate_error=2.0)),
        Scenario("16 in order, reports 0.15 s old", replace(stale, is_in_order=True)),
    ]


def large_scenario(seconds: float) -> Scenario:
    """A thousand replicas, which takes minutes."""
    load = replace(_STALE, replicas=1000, seconds=WARM_UP_S + seconds / 20)
    return Scenario("1,000 replicas, reports 0.15 s old", load)


def measure(seconds: float = 120.0, *, seeds: int = 3, large: bool = False) -> BenchReport:
    """Simulate every scenario with every policy. seconds: virtual, of 16 replicas."""
    chosen = [*scenarios(seconds), *([large_scenario(seconds)] if large else [])]
    figures = [figure for scenario in chosen for figure in compare(scenario, seeds)]
    return BenchReport(
        "routing",
        tuple(figures),
        {"load": 0.8, "short to long": "4:1", "seeds": seeds, "seconds": seconds},
    )


def compare(scenario: Scenario, seeds: int) -> Iterator[BenchFigure]:
    """The figures of one scenario, policy by policy."""
    p95_s: dict[str, list[float]] = {}
    for name, policy in POLICIES.items():
        results = [_waits(replace(scenario.load, seed=seed), policy) for seed in range(seeds)]
        p95_s[name] = [_percentile(waits, 95) for waits, _ in results]
        every_wait = [wait for waits, _ in results for wait in waits]
        at = f"{scenario.name}, {name}"
        yield BenchFigure(f"{at}: p95", 1000 * _percentile(every_wait, 95), "ms")
        underruns = sum(count for _, count in results)
        yield BenchFigure(f"{at}: underruns", 100 * underruns / len(every_wait), "% of listeners")
    ratios = [
        ours / min(of_two, in_turn)
        for ours, of_two, in_turn in zip(
            p95_s["by cost"], p95_s["power of two"], p95_s["round robin"], strict=True
        )
    ]
    yield BenchFigure(
        f"{scenario.name}: ratio, worst seed",
        max(ratios),
        "",
        at_most=MAX_RATIO if scenario.has_target else None,
    )


def _waits(load: ClusterLoad, policy: Callable[[int], Router]) -> tuple[list[float], int]:
    """Waits in seconds, and the listeners with an underrun."""
    streams = [each for each in simulate(load, policy) if each.arrived_at >= WARM_UP_S]
    waits = [each.first_audio_at - each.arrived_at for each in streams if each.first_audio_at is not None]
    return waits, sum(each.has_underrun for each in streams)


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
