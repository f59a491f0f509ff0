"""``python -m benches ways-in --over audiosocket --over rtp ...``: the ways in, each against the first one.

For each way in, one call is measured for its first sound, and calls that speak at once for packets and
processor time, with the gateway and the phones started anew. Late packets are those of ``bench.call``, and
are counted where the gateway paces the playout; with the others, the simulated peer's own clock does. A way
in that cannot be measured is reported as such, and the others are measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from rich.console import Console

from vivavoce.gateway.cli.bench.call import (
    MAX_LATE_SHARE,
    LoadResult,
    LoadSetup,
    measure_onsets,
    run_load,
    simultaneous_setup,
    summarize_simultaneous_calls,
)
from vivavoce.gateway.cli.bench.call_server import SpeechPattern
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport, run_parts
from vivavoce.gateway.cli.bench.trace import percentile
from vivavoce.gateway.cli.phones.wires import AUDIOSOCKET

PACED_BY_GATEWAY: Final = frozenset({AUDIOSOCKET, "rtp"})
MAX_TTFA_ABOVE_MS: Final = 10.0
MAX_COST_RATIO: Final = 1.3


@dataclass(frozen=True, slots=True)
class WayIn:
    """What was measured over one wire."""

    over: str
    ttfa_ms: tuple[float, ...]  # of the utterances that were heard
    not_heard: int  # utterances
    late_share: float  # of the packets
    underruns: int  # counted by the gateway
    failed: int  # utterances
    cost_ms: float  # processor time of the gateway for a second of a call that speaks
    refused: int = 0  # calls that were refused and dialled again


def measure(*, overs: Sequence[str], utterances: int, calls: int, seconds: float) -> BenchReport:
    """Measure each wire of ``shared.calls.peers.wires``; the first one is what the others are compared with.

    Args:
        utterances: of the single call.
        calls: that speak at once.
        seconds: for which they are measured.

    Raises BenchFailed if no way in can be measured.
    """
    parts = [(over, partial(_measure_way_in, over, utterances, calls, seconds)) for over in overs]
    ways, failures = run_parts(parts, Console(stderr=True))
    return BenchReport(
        "call",
        tuple(compare(ways, overs[0])),
        {"over": " ".join(overs), "utterances": utterances, "calls": calls, "seconds": seconds},
        failures,
    )


def compare(ways: Sequence[WayIn], reference: str) -> list[BenchFigure]:
    """Return the figures of each way in, and those of all but the reference also against it, if it is one."""
    first = next((way for way in ways if way.over == reference), None)
    figures: list[BenchFigure] = []
    for way in ways:
        figures += _figures_of(way)
        if first is not None and way is not first:
            figures += _figures_against(first, way)
    return figures


def _figures_of(way: WayIn) -> list[BenchFigure]:
    over = way.over
    figures = [
        BenchFigure(f"{over}: TTFA, 1 call, p50", percentile(way.ttfa_ms, 50), "ms"),
        BenchFigure(f"{over}: TTFA, 1 call, p95", percentile(way.ttfa_ms, 95), "ms"),
        BenchFigure(f"{over}: utterances not heard, 1 call", way.not_heard, "", at_most=0),
        BenchFigure(f"{over}: underruns in the gateway", way.underruns, "", at_most=0),
        BenchFigure(f"{over}: utterances that failed", way.failed, "", at_most=0),
        BenchFigure(f"{over}: calls refused and dialled again", way.refused, ""),
        BenchFigure(f"{over}: processor time for a second of a call", way.cost_ms, "ms"),
    ]
    if over in PACED_BY_GATEWAY:
        late = 100 * way.late_share
        figures.append(
            BenchFigure(f"{over}: packets late or never sent", late, "%", at_most=100 * MAX_LATE_SHARE)
        )
    return figures


def _figures_against(first: WayIn, way: WayIn) -> list[BenchFigure]:
    above_ms = percentile(way.ttfa_ms, 50) - percentile(first.ttfa_ms, 50) if first.ttfa_ms else inf
    ratio = way.cost_ms / first.cost_ms if first.cost_ms else inf
    return [
        BenchFigure(f"{way.over}: TTFA p50 above {first.over}", above_ms, "ms", MAX_TTFA_ABOVE_MS),
        BenchFigure(f"{way.over}: processor time against {first.over}", ratio, "", MAX_COST_RATIO),
    ]


def _run(setup: LoadSetup) -> LoadResult:
    return run_load(replace(setup, phones_module=f"{__package__}.load_generator"))


def _measure_way_in(over: str, utterances: int, calls: int, seconds: float) -> WayIn:
    alone = _run(LoadSetup(SpeechPattern.ALONE, utterances, 1, 0.0, 60.0 + 8.0 * utterances, over))
    onsets = [onset.from_clause_s for onset in measure_onsets(alone)]
    heard_ms = tuple(1000 * onset_s for onset_s in onsets if onset_s is not None)
    at_once = _run(simultaneous_setup(calls, seconds, over))
    summary = summarize_simultaneous_calls(at_once)
    return WayIn(
        over,
        heard_ms,
        len(onsets) - len(heard_ms),
        summary.late_share,
        summary.underruns,
        at_once.record.failed,
        1000 * at_once.cpu_share / calls,
        alone.phones.refused + at_once.phones.refused,
    )
