"""Compares the time to first audio and the underruns of ``scheduler.schedule`` with two other orders.

Requests arrive at random (Poisson, open loop), their text at the pace of a language model. Steps have a
modelled cost on a virtual clock. The other orders are first come first served and round robin. Rates are 80 %
of the rate at which first come first served saturates, and above.

Two changes of the order were simulated and rejected, with these costs, chunks of 25, 50, 50 ids, and 1,000
requests from each of 2 or 3 seeds:

- A first chunk of 50 ids under load. A listener then waits for twice the ids, which costs more than the
  smaller number of render steps saves, and it reduces underruns only where there are some.
- One Euler step of the flow in each engine step, so that a new stream waits for a tenth of a render step. New
  streams come first already, and mostly wait for other new streams. Each further step costs a round of the
  engine and a gather of the flow's state: 0.2 to 0.6 ms for 1 to 8 rows on a CPU.

    first audio p95, ms (listeners with an underrun)    13.6/s      17/s        20.4/s      24/s
    current order                                       139         198         338         535 (18 %)
    50 ids first where 8 or more wait                   351         464         756         1,145 (6 %)
    50 ids first, always                                384         476         747         1,136 (5 %)
    one Euler step at a time, at no cost                144         197         344         535 (18 %)
    one Euler step at a time, 0.3 ms each               164         251         474 (2 %)   616 (66 %)

At 24 requests/s the server is overloaded, and the order only decides which listeners have underruns.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence

from shared.engine.scheduling_simulation import (
    SessionChooser,
    SimulatedListener,
    SimulatedLoad,
    first_come,
    round_robin,
    simulate,
)
from shared.engine.simulated_backend import SimulatedBackend, StepCostModel
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.backends.base import Stage
from vivavoce.tts_engine.scheduler import SchedulerPolicy, schedule

ORDERS: dict[str, Callable[[], SessionChooser]] = {
    "deadline": lambda: schedule,
    "first come": lambda: first_come,
    "round robin": round_robin,
}
ROWS = {Stage.DECODE: 64, Stage.RENDER: 8}
MAX_RATE = 50  # requests/s
_UNLIMITED_STREAMS = 1_000_000  # no request is refused, so that the waits show the effect of the order
_POLICY = SchedulerPolicy(max_streams=_UNLIMITED_STREAMS)
_FALLING_BEHIND_S = 1.0


def measure(rates: Sequence[float] | None = None, *, requests: int = 1000, seed: int = 0) -> BenchReport:
    """Simulate rates in requests/s, by default 0.8, 1 and 1.2 times ``saturation_rate``."""
    cost = StepCostModel()
    saturation = saturation_rate(cost, requests=requests, seed=seed)
    rates = rates or [round(share * saturation, 2) for share in (0.8, 1.0, 1.2)]
    figures = [BenchFigure("first come first served saturates", saturation, "requests/s")]
    for rate in rates:
        figures += _compare_orders(
            SimulatedLoad(rate, requests=requests, seed=seed), cost, has_targets=rate == rates[0]
        )
    return BenchReport(
        "schedule",
        tuple(figures),
        {"requests": requests, "seed": seed, "rows": ROWS[Stage.RENDER], "speech": "5 s each"},
    )


def saturation_rate(cost: StepCostModel, *, requests: int, seed: int) -> float:
    """The lowest whole rate at which first come first served falls behind, at most MAX_RATE."""
    low, high = 0, MAX_RATE
    while high - low > 1:
        middle = (low + high) // 2
        listeners = _simulate_listeners(SimulatedLoad(middle, requests=requests, seed=seed), cost, first_come)
        low, high = (low, middle) if _falls_behind(listeners) else (middle, high)
    return float(high)


def _falls_behind(listeners: Sequence[SimulatedListener]) -> bool:
    """Whether the last quarter of the listeners waits over 1 s longer than the first quarter."""
    quarter = len(listeners) // 4
    waits = _waits(listeners)
    return statistics.median(waits[-quarter:]) > statistics.median(waits[:quarter]) + _FALLING_BEHIND_S


def _compare_orders(load: SimulatedLoad, cost: StepCostModel, *, has_targets: bool) -> Iterator[BenchFigure]:
    results = {name: _simulate_listeners(load, cost, order()) for name, order in ORDERS.items()}
    first_come_p95 = _percentile(_waits(results["first come"]), 95)
    for name, listeners in results.items():
        has_target = has_targets and name == "deadline"
        at = f"{load.rate:g}/s, {name}"
        waits = _waits(listeners)
        yield BenchFigure(f"{at}: first audio p50", 1000 * _percentile(waits, 50), "ms")
        yield BenchFigure(
            f"{at}: first audio p95",
            1000 * _percentile(waits, 95),
            "ms",
            at_most=500 * first_come_p95 if has_target else None,
        )
        yield BenchFigure(f"{at}: first audio p99", 1000 * _percentile(waits, 99), "ms")
        underruns = sum(listener.underruns for listener in listeners)
        yield BenchFigure(
            f"{at}: listeners with an underrun", underruns, "", at_most=0 if has_target else None
        )
        yield BenchFigure(f"{at}: fairness of the waits (Jain)", _fairness(waits), "")


def _simulate_listeners(
    load: SimulatedLoad, cost: StepCostModel, choose: SessionChooser
) -> list[SimulatedListener]:
    return simulate(load, SimulatedBackend(cost, rows=ROWS, slots=_UNLIMITED_STREAMS), choose, _POLICY)


def _waits(listeners: Sequence[SimulatedListener]) -> list[float]:
    return [listener.first_s for listener in listeners if listener.first_s is not None]


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _fairness(values: Sequence[float]) -> float:
    """1 if all values are equal, 1/n if one is the sum. Source: Jain, Chiu, Hawe, DEC-TR-301, 1984."""
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))
