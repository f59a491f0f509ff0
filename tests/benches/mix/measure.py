"""``python -m benches mix``: calls and API streams at random, and every hole that a listener hears.

Four processes: the gateway (``server``), the phones (``phones``), the API clients (``streams``), and one that
notes when a core stood still (``standstill``). All random times are Poisson processes from one seed.
"""

import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benches.mix import standstill
from benches.mix.standstill import has_standstill
from vivavoce.gateway.cli.bench.processes import READY_TIMEOUT_S, BenchProcess, CpuUsage, resident_mb
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.trace import percentile

_BLOCKS = 20  # that the samples of a slope are averaged to
_MAX_CORRELATION = 0.99  # of neighbouring blocks
WARM_UP_SHARE = 0.1  # of the samples; memory grows until every part has been used once
_END_TIMEOUT_S = 180.0
_MAX_HELD_SHOWN = 8
_MAX_HOLES_SHOWN = 20
_SAMPLE_INTERVAL_S = 5.0

Moment = tuple[str, float]  # call id, monotonic seconds
Sound = tuple[str, float, float]  # call id, arrivals of the first and the last audible packet


@dataclass(frozen=True, slots=True)
class MixOptions:
    """The load of one run."""

    calls: int = 40  # that are up on average
    calls_per_s: float = 4.0  # that begin, and end
    utterances_per_s: float = 15.0  # over all calls
    discards_per_s: float = 6.0
    streams_per_s: float = 1.0  # API requests
    seconds: float = 420.0
    stopped_s: float = 0.0  # the control process stands still for that long, halfway
    seed: int = 0


@dataclass(frozen=True, slots=True)
class HealthSample:
    """The state of the gateway at one moment."""

    at: float  # monotonic seconds
    resident_mb: float  # with the processes that it started
    files: int  # open descriptors
    threads: int

    @classmethod
    def now(cls, pid: int) -> "HealthSample":
        """Read the state of a process."""
        files, threads = (len(os.listdir(f"/proc/{pid}/{folder}")) for folder in ("fd", "task"))
        return cls(time.monotonic(), resident_mb(pid), files, threads)


def measure(options: MixOptions) -> BenchReport:
    """Run the mix and return its figures; raises BenchFailed if a process ends early."""
    with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder, ExitStack() as stack:

        def start(module: str, *arguments: str) -> BenchProcess:
            return stack.enter_context(BenchProcess(Path(folder), f"{__package__}.{module}", *arguments))

        machine = stack.enter_context(BenchProcess(Path(folder), standstill.__name__))

        gateway = start("server", *_flags(options, "calls", "utterances_per_s", "discards_per_s"))
        ports: dict[str, Any] = gateway.read_line(READY_TIMEOUT_S)
        phone_flags = _flags(options, "calls", "calls_per_s", "seconds", "seed")
        stream_flags = _flags(options, "streams_per_s", "seconds", "seed")
        phones = start("phones", "127.0.0.1", str(ports["audiosocket"]), *phone_flags)
        streams = start("streams", f"http://127.0.0.1:{ports['http']}", *stream_flags)
        usage, gateway_usage = CpuUsage.now(gateway.pid, phones.pid, streams.pid), CpuUsage.now(gateway.pid)
        with Console(stderr=True).status(f"bench mix: {options.seconds:g} s"):
            samples = _sample_health(gateway.pid, options.seconds / 2)
            _stop_process(gateway.pid, options.stopped_s)
            samples += _sample_health(gateway.pid, options.seconds / 2)
        gateway_share = CpuUsage.now(gateway.pid).share_since(gateway_usage)
        used = CpuUsage.now(gateway.pid, phones.pid, streams.pid)
        heard: dict[str, Any] = phones.read_line(_END_TIMEOUT_S)
        read: dict[str, Any] = streams.read_line(_END_TIMEOUT_S)
        machine.close_input()
        standstills: list[list[float]] | None = machine.read_line(_END_TIMEOUT_S)["standstills"]
        gateway.close_input()
        record: dict[str, Any] = gateway.read_line(_END_TIMEOUT_S)
        log = gateway.error_lines()
    _print_details(heard, record, read, log)
    if standstills is None:
        Console(stderr=True).print("when a core stood still is not known: real-time priority was refused")
    figures = [
        *_call_figures(heard, record, standstills or []),
        *_stream_figures(read),
        *_health_figures(samples, record["tasks"]),
        *(_standstill_figures(standstills) if standstills is not None else ()),
        BenchFigure("log lines above INFO", len(log), "", at_most=0),
        BenchFigure("processor of the gateway", 100 * gateway_share, "% of a core"),
        BenchFigure("processor of everything else", 100 * used.other_cpu_share_since(usage), "% of a core"),
        BenchFigure("processor that the host withheld", 100 * used.stolen_share_since(usage), "% of a core"),
    ]
    settings = {name: getattr(options, name) for name in MixOptions.__dataclass_fields__}
    return BenchReport("mix", tuple(figures), settings)


def _sample_health(pid: int, seconds: float) -> list[HealthSample]:
    """Sample a process every 5 s for so long, and at the end."""
    samples, until = [HealthSample.now(pid)], time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0:
        time.sleep(min(_SAMPLE_INTERVAL_S, left_s))
        samples.append(HealthSample.now(pid))
    return samples


def _stop_process(pid: int, seconds: float) -> None:
    if seconds:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)


def _flags(options: MixOptions, *names: str) -> list[str]:
    return [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]


def _call_figures(
    heard: dict[str, Any], record: dict[str, Any], standstills: Sequence[Sequence[float]]
) -> list[BenchFigure]:
    holes = heard["hole_ends"]
    own_holes = [at for at in holes if not has_standstill(standstills, at, at)]
    return [
        BenchFigure("calls", heard["calls"], ""),
        BenchFigure("calls ended by the gateway", heard["lost_calls"], "", at_most=0),
        BenchFigure("utterances on calls", record["utterances"], ""),
        BenchFigure("utterances that failed", record["failed"], "", at_most=0),
        BenchFigure("utterances discarded", len(record["discarded_at"]), ""),
        *_delay_figures(heard["sounds"], record, standstills),
        BenchFigure("packets at the phones", heard["packets"], ""),
        BenchFigure("holes over 60 ms at the phones", len(holes), ""),
        BenchFigure("holes over 60 ms but while a core stood still", len(own_holes), "", at_most=0),
        BenchFigure("holes over 200 ms at the phones", heard["long_holes"], "", at_most=0),
        BenchFigure("longest hole at the phones", heard["max_hole_ms"], "ms"),
        BenchFigure("most packets of a call in 200 ms", heard["max_burst"], ""),
        BenchFigure("packets sent that no phone received", record["packets"] - heard["packets"], ""),
        BenchFigure("underruns in the gateway", record["underruns"], "", at_most=0),
        BenchFigure("late packets in the gateway", record["late_packets"], ""),
        BenchFigure("latest timer of the gateway", record["max_loop_delay_ms"], "ms"),
        BenchFigure("processor of the phones", 100 * heard["cpu_share"], "% of a core"),
    ]


def _delay_figures(
    sounds: Sequence[Sound], record: dict[str, Any], standstills: Sequence[Sequence[float]]
) -> list[BenchFigure]:
    cuts = discard_delays_ms(record["discarded_at"], sounds, standstills)
    firsts = first_sound_delays_ms(record["first_clause_at"], sounds)
    return [
        BenchFigure("discards of audible speech", len(cuts), ""),
        BenchFigure("discard to the last audible packet, p99", percentile(cuts, 99) if cuts else 0.0, "ms"),
        BenchFigure("discard to the last audible packet, worst", max(cuts, default=0.0), "ms", at_most=20.0),
        BenchFigure("calls whose first sound was measured", len(firsts), ""),
        BenchFigure(
            "first clause to the first sound of a call, p95",
            percentile(firsts, 95) if firsts else 0.0,
            "ms",
            at_most=80.0,
        ),
    ]


def discard_delays_ms(
    discards: Sequence[Moment], sounds: Sequence[Sound], standstills: Sequence[Sequence[float]] = ()
) -> list[float]:
    """Return how long each call was audible after a discard.

    Discards in silence are left out, and those while a core stood still.
    """
    sounds_of_call: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for call, first, last in sounds:
        sounds_of_call[call].append((first, last))
    return [
        1000 * (last - at)
        for call, at in discards
        for first, last in sounds_of_call[call]
        if first <= at < last and not has_standstill(standstills, at, last)
    ]


def first_sound_delays_ms(clauses: Sequence[Moment], sounds: Sequence[Sound]) -> list[float]:
    """Return the time from each clause to the first sound of its call."""
    first_sounds: dict[str, float] = {}
    for call, first, _ in sounds:
        first_sounds[call] = min(first, first_sounds.get(call, first))
    return [max(0.0, 1000 * (first_sounds[call] - at)) for call, at in clauses if call in first_sounds]


def _stream_figures(read: dict[str, Any]) -> list[BenchFigure]:
    return [
        BenchFigure("API streams", read["streams"], ""),
        BenchFigure("API streams at once, most", read["max_open"], ""),
        BenchFigure("API streams refused", read["refused"], ""),
        BenchFigure("API streams that failed", sum(read["failures"].values()), "", at_most=0),
        BenchFigure("API streams read whole", read["healthy_streams"], ""),
        BenchFigure("holes over 60 ms in them", read["holes"], "", at_most=0),
        BenchFigure("longest hole in them", read["max_hole_ms"], "ms"),
        BenchFigure("processor of the API clients", 100 * read["cpu_share"], "% of a core"),
    ]


def _standstill_figures(standstills: Sequence[Sequence[float]]) -> list[BenchFigure]:
    longest_s = max((stop - start for start, stop in standstills), default=0.0)
    return [
        BenchFigure("standstills of a core", len(standstills), ""),
        BenchFigure("longest standstill of a core", 1000 * longest_s, "ms"),
    ]


def _health_figures(samples: Sequence[HealthSample], tasks: Sequence[tuple[float, int]]) -> list[BenchFigure]:
    series: list[tuple[str, list[tuple[float, float]]]] = [
        ("resident memory, MB", [(each.at, each.resident_mb) for each in samples]),
        ("open descriptors", [(each.at, each.files) for each in samples]),
        ("threads", [(each.at, each.threads) for each in samples]),
        ("tasks", [(at, number) for at, number in tasks]),
    ]
    figures = []
    for name, values in series:
        times, steady = zip(*values[int(len(values) * WARM_UP_SHARE) :], strict=True)
        slope, half_width = slope_per_hour(times, steady)
        figures += [
            BenchFigure(f"{name}, last", steady[-1], ""),
            BenchFigure(f"{name}, slope", slope, f"an hour, +- {half_width:.3g}"),
        ]
    return figures


def slope_per_hour(times_s: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Least-squares slope per hour and half of its 95 % interval; zeros for fewer than three samples.

    Memory jumps from one sample to the next, and besides it wanders for minutes. The wandering is what
    misleads a slope, and the jumps hide it, so the samples are averaged to ``_BLOCKS`` values. These resemble
    the ones before them, so that many say as much as a few independent ones: with a correlation r of
    neighbours, n values count as n (1 - r) / (1 + r).

    Source: Santer et al. 2000, doi:10.1029/1999JD901105, section 3.3, on trends of correlated series.
    """
    if len(times_s) < 3:
        return 0.0, 0.0
    blocks = min(_BLOCKS, len(times_s))
    hours, means = (
        np.array([block.mean() for block in np.array_split(np.asarray(each, float), blocks)])
        for each in (np.asarray(times_s) / 3600, values)
    )
    slope, intercept = np.polyfit(hours, means, 1)
    residuals = means - (slope * hours + intercept)
    squares = float(residuals @ residuals)
    spread = float(((hours - hours.mean()) ** 2).sum())
    if squares <= np.finfo(float).eps * float(np.square(means).sum()):
        return float(slope), 0.0  # a straight line but for rounding
    correlation = min(max(float(residuals[1:] @ residuals[:-1]) / squares, 0.0), _MAX_CORRELATION)
    freedom = max(blocks * (1 - correlation) / (1 + correlation) - 2, 1.0)
    return float(slope), _student_quantile(freedom) * (squares / freedom / spread) ** 0.5


def _student_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's distribution, by the first terms of its series in 1 / freedom."""
    return 1.96 + 2.372 / freedom + 2.823 / freedom**2


def _print_details(
    heard: dict[str, Any], record: dict[str, Any], read: dict[str, Any], log: Sequence[str]
) -> None:
    console = Console(stderr=True)
    for at in heard["hole_ends"][:_MAX_HOLES_SHOWN]:
        console.print(f"a call had a hole until {at:.2f} s of the machine's clock")
    held = sorted(record["held"].items(), key=lambda item: -item[1][1])[:_MAX_HELD_SHOWN]
    for name, (times, total_ms, longest_ms) in held:
        console.print(
            f"held the event loop over 5 ms: {name}: {times:g} times, {total_ms:.0f} ms in all, "
            f"longest {longest_ms:.0f} ms"
        )
    for stream in read["faulty"]:
        console.print(f"API stream {stream}")
    for kind, count in read["failures"].items():
        console.print(f"{count} API streams failed: {kind}")
    for line in log[:20]:
        console.print(f"log: {line}")
