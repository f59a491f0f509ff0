"""``vivavoce bench call``: time to first audio, simultaneous calls and barge-in, measured at the phones.

The gateway (``call_server``) and the phones (``load_generator``) are two processes; this one starts them,
samples the gateway's memory, and computes the figures when both have ended. All three use the same monotonic
clock.

TTFA is the time from the push of the text that completes the first clause to the first audible sample at the
phone: its packet's arrival plus its offset. A comma completes a clause; a full stop does so with the token
after it, because "2." may become "2.5". The time from the punctuation itself is reported as well.

A packet is late if it arrives over 20 ms after its slot in the fitted schedule, or never. An underrun is more
than 60 ms without audio inside an utterance; the gateway's playout counts these, because it can tell a pause
of the speaker from an empty queue, and the phones count gaps between arrivals independently. Barge-in is
measured from discard() to the arrival of the last audible packet.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, pairwise
from pathlib import Path
from uuid import UUID

import numpy as np
from rich.console import Console

from ..phones.wires import AUDIOSOCKET
from . import call_server, load_generator
from .processes import READY_TIMEOUT_S, BenchProcess, CpuUsage, peak_resident_mb
from .report import BenchFailed, BenchFigure, BenchReport, run_parts
from .trace import (
    PACKET_S,
    OnsetDelay,
    PacketTrace,
    UtteranceTimes,
    correlation,
    count_arrival_gaps,
    mean_calls_speaking,
    measure_barge_in,
    measure_lateness,
    measure_onset,
    percentile,
    samples_after,
)

END_TIMEOUT_S = 60.0  # to write what was heard
DIAL_INTERVAL_S = 0.05  # twenty new calls a second
SETTLE_S = 2.0  # after the last call was dialled, until the calls are measured
CALL_COUNTS = (25, 50, 75, 100, 125, 150, 175, 200, 250, 300)
MAX_LATE_SHARE = 0.001  # share of packets
MIN_CORRELATION = 0.98  # below this an utterance contains part of another one


class CallBenchPart(StrEnum):
    """A part that can be measured alone."""

    TTFA = "ttfa"
    LOAD = "load"
    CALLS = "calls"
    KNEE = "knee"
    OVERLOAD = "overload"
    BARGE_IN = "barge-in"


DEFAULT_PARTS = (CallBenchPart.TTFA, CallBenchPart.LOAD, CallBenchPart.CALLS, CallBenchPart.BARGE_IN)


@dataclass(frozen=True, slots=True)
class LoadSetup:
    """One run of the gateway and the phones."""

    part: call_server.SpeechPattern
    count: int  # as in ``call_server.make_load_agent``
    phones: int
    ramp_s: float  # time over which the phones dial
    seconds: float  # after the last phone has dialled
    over: str = AUDIOSOCKET  # wire of the phones
    redials: bool = True  # the calls that are refused
    phones_module: str = load_generator.__name__  # run as the phones


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The results of one run."""

    traces: tuple[PacketTrace, ...]
    utterances: tuple[UtteranceTimes, ...]
    record: call_server.LoadRecord
    phones: load_generator.PhoneLoadResult
    peak_rss_mb: float  # resident memory of the gateway while all phones were connected
    other_cpu_share: float  # cores used by other processes meanwhile
    stolen_cpu_share: float  # cores that the host withheld meanwhile
    cpu_share: float = 0.0  # cores used by the gateway while all phones were connected

    @property
    def cost_ms(self) -> float:
        """Processor time of the gateway, with all it does for its calls, for a second of audible speech."""
        start, stop = self.phones.connected, self.phones.ended
        audible_s = PACKET_S * sum(int(np.sum(trace.between(start, stop).audible)) for trace in self.traces)
        return 1000 * self.cpu_share * (stop - start) / audible_s if audible_s else 0.0

    def utterances_by_call(self) -> dict[UUID, list[UtteranceTimes]]:
        """The utterances of each call in the order of their starts."""
        by_call: dict[UUID, list[UtteranceTimes]] = {}
        for utterance in self.utterances:
            by_call.setdefault(utterance.call, []).append(utterance)
        return by_call

    def measured_utterances(self) -> Iterator[tuple[PacketTrace, UtteranceTimes, float]]:
        """Each measured utterance with its call's trace and the start of the next utterance."""
        traces = {trace.call: trace for trace in self.traces}
        for call, utterances in self.utterances_by_call().items():
            nexts = [following.started for _, following in pairwise(utterances)]
            for utterance, before in zip(utterances, [*nexts, self.phones.ended], strict=True):
                if utterance.number >= 0 and call in traces:
                    yield traces[call], utterance, before


def measure(
    *,
    parts: Sequence[CallBenchPart] = DEFAULT_PARTS,
    utterances: int = 30,
    speaking: int = 50,
    calls: int = 100,
    seconds: float = 30.0,
    over: str = AUDIOSOCKET,
) -> BenchReport:
    """Run the parts over a wire of ``phones.wires`` and return their figures.

    ``utterances`` counts those of the single call, ``speaking`` the calls under load, ``calls`` those at
    once; ``seconds`` is the length of a part. Raises BenchFailed if no part can be measured.
    """
    console = Console(stderr=True)
    steps: dict[CallBenchPart, Callable[[], list[BenchFigure]]] = {
        CallBenchPart.TTFA: lambda: _measure_one_call(utterances, over),
        CallBenchPart.LOAD: lambda: _measure_under_load(speaking, seconds, over),
        CallBenchPart.CALLS: lambda: _measure_simultaneous_calls(calls, seconds, over),
        CallBenchPart.KNEE: lambda: _find_capacity(calls, seconds, over, console),
        CallBenchPart.OVERLOAD: lambda: _measure_overload(calls, seconds, over),
        CallBenchPart.BARGE_IN: lambda: _measure_barge_in(over),
    }
    figures, failures = run_parts([(part, steps[part]) for part in parts], console)
    return BenchReport(
        "call",
        tuple(chain.from_iterable(figures)),
        {"parts": " ".join(parts), "over": over, "calls": calls, "speaking": speaking, "seconds": seconds},
        failures,
    )


# Parts


def _measure_one_call(utterances: int, over: str) -> list[BenchFigure]:
    seconds = 60.0 + 8.0 * utterances
    run = run_load(LoadSetup(call_server.SpeechPattern.ALONE, utterances, 1, 0.0, seconds, over))
    onsets = measure_onsets(run)
    return [
        *_ttfa_figures("TTFA, 1 call", onsets, {50: 45.0, 95: 90.0}),
        *_from_punctuation_figures("TTFA from the punctuation, 1 call", onsets),
        BenchFigure("utterances, 1 call", len(onsets), ""),
    ]


def _measure_under_load(speaking: int, seconds: float, over: str) -> list[BenchFigure]:
    phones = speaking + max(10, speaking * 4 // 5)  # some calls are always between two utterances
    seconds = max(seconds, 30.0) + SETTLE_S
    run = run_load(LoadSetup(call_server.SpeechPattern.RANDOM, speaking, phones, 1.0, seconds, over))
    onsets = measure_onsets(run)
    mean_speaking = mean_calls_speaking(run.utterances, run.phones.ended)
    name = f"{speaking} calls speaking"
    return [
        *_ttfa_figures(f"TTFA, {name}", onsets, {95: 200.0}),
        *_from_punctuation_figures(f"TTFA from the punctuation, {name}", onsets),
        BenchFigure(f"utterances, {name}", len(onsets), ""),
        BenchFigure(f"utterances that failed, {name}", run.record.failed, "", at_most=0),
        BenchFigure("calls speaking at once, mean", mean_speaking, ""),
        BenchFigure("utterances for which no call was free", run.record.unassigned, ""),
        *_cost_figures(name, run),
    ]


def _measure_simultaneous_calls(calls: int, seconds: float, over: str) -> list[BenchFigure]:
    run = run_load(simultaneous_setup(calls, seconds, over))
    at_once = summarize_simultaneous_calls(run)
    name = f"{calls} calls"
    return [
        BenchFigure(
            "calls speaking at once without an underrun",
            calls if at_once.meets_targets else 0,
            "",
            at_least=calls,
        ),
        BenchFigure(
            f"packets late or never sent, {name}", 100 * at_once.late_share, "%", at_most=100 * MAX_LATE_SHARE
        ),
        BenchFigure(f"underruns in the gateway, {name}", at_once.underruns, "", at_most=0),
        BenchFigure(f"gaps over 60 ms at the phones, {name}", at_once.arrival_gaps, "", at_most=0),
        BenchFigure(f"utterances that failed, {name}", run.record.failed, "", at_most=0),
        BenchFigure(f"worst packet, {name}", 1000 * at_once.max_lateness_s, "ms"),
        BenchFigure(f"packets with speech, {name}, quietest call", 100 * at_once.min_speech_share, "%"),
        BenchFigure(f"resident memory, {name}", run.peak_rss_mb, "MB", at_most=600.0),
        *_cost_figures(name, run),
    ]


def _measure_overload(calls: int, seconds: float, over: str) -> list[BenchFigure]:
    run = run_load(replace(simultaneous_setup(calls, seconds, over), redials=False))
    admitted = summarize_simultaneous_calls(run)
    name = f"{calls} calls offered"
    return [
        BenchFigure(f"calls admitted, {name}", admitted.calls, ""),
        BenchFigure(f"underruns in the gateway, {name}", admitted.underruns, "", at_most=0),
        BenchFigure(f"gaps over 60 ms at the phones, {name}", admitted.arrival_gaps, "", at_most=0),
        BenchFigure(f"utterances that failed, {name}", admitted.failed, "", at_most=0),
        BenchFigure(f"packets with speech, {name}, quietest call", 100 * admitted.min_speech_share, "%"),
        *_cost_figures(name, run),
    ]


def _find_capacity(calls: int, seconds: float, over: str, console: Console) -> list[BenchFigure]:
    capacity = 0
    for call_count in (call_count for call_count in CALL_COUNTS if call_count >= calls):
        try:
            run = run_load(simultaneous_setup(call_count, seconds, over))
        except BenchFailed as error:
            console.print(f"{call_count} calls: {error}")
            break
        at_once = summarize_simultaneous_calls(run)
        console.print(f"{call_count} calls: {at_once.underruns} underruns, {at_once.late_share:.3%} late")
        if not at_once.meets_targets:
            break
        capacity = call_count
    return [BenchFigure("most calls at once without an underrun", capacity, "")]


def _measure_barge_in(over: str) -> list[BenchFigure]:
    run = run_load(LoadSetup(call_server.SpeechPattern.BARGE_IN, 12, 8, 4.0, 120.0, over))
    barge_ins = [
        measure_barge_in(trace, utterance.discarded, before=before)
        for trace, utterance, before in run.measured_utterances()
        if utterance.discarded is not None
    ]
    last_ms = [1000 * barge_in.last_audible_s for barge_in in barge_ins]
    return [
        BenchFigure(
            "barge-in, discard to last audible packet, worst", max(last_ms, default=float("inf")), "ms", 25.0
        ),
        BenchFigure("barge-in, discard to last audible packet, p50", percentile(last_ms, 50), "ms"),
        BenchFigure("barge-ins", len(barge_ins), ""),
        BenchFigure(
            "audible packets over 25 ms after a discard",
            sum(barge_in.stale_packets for barge_in in barge_ins),
            "",
            at_most=0,
        ),
        BenchFigure(
            "utterances that contain part of the discarded one", count_mixed_utterances(run), "", at_most=0
        ),
    ]


def simultaneous_setup(calls: int, seconds: float, over: str) -> LoadSetup:
    """Calls that speak without a pause for ``seconds`` after the last one was dialled."""
    return LoadSetup(
        call_server.SpeechPattern.AT_ONCE, calls, calls, calls * DIAL_INTERVAL_S, seconds + SETTLE_S, over
    )


# Sums


def measure_onsets(run: LoadResult) -> list[OnsetDelay]:
    """The onset of each measured utterance that was complete before the phones hung up."""
    return [
        measure_onset(trace, utterance, before=before)
        for trace, utterance, before in run.measured_utterances()
        if utterance.ended is not None
    ]


@dataclass(frozen=True, slots=True)
class SimultaneousCalls:
    """Figures of calls that speak at once."""

    late_share: float  # of all slots
    max_lateness_s: float
    underruns: int  # counted by the gateway
    arrival_gaps: int  # over 60 ms, counted at the phones
    min_speech_share: float  # share of audible packets of the quietest call
    failed: int  # utterances
    calls: int
    audible_calls: int  # calls with over half of their packets audible

    @property
    def meets_targets(self) -> bool:
        """Whether every call was audible, none had an underrun or gap, and packets were in time."""
        whole = self.audible_calls == self.calls and self.failed == 0
        return whole and self.underruns == 0 and self.arrival_gaps == 0 and self.late_share < MAX_LATE_SHARE


def summarize_simultaneous_calls(run: LoadResult) -> SimultaneousCalls:
    """Figures over all calls from two seconds after the last connection to the end."""
    window = (run.phones.connected + SETTLE_S, run.phones.ended)
    traces = [trace.between(*window) for trace in run.traces]
    schedules = [measure_lateness(trace.arrived) for trace in traces]
    slots = sum(schedule.packets + schedule.skipped for schedule in schedules)
    missed = sum(schedule.late + schedule.skipped for schedule in schedules)
    speech = [float(np.mean(trace.audible)) if len(trace.arrived) else 0.0 for trace in traces]
    return SimultaneousCalls(
        late_share=missed / slots if slots else 1.0,
        max_lateness_s=max((schedule.max_s for schedule in schedules), default=0.0),
        underruns=sum(call.underruns for call in run.record.calls),
        arrival_gaps=sum(count_arrival_gaps(trace.arrived) for trace in traces),
        min_speech_share=min(speech, default=0.0),
        failed=run.record.failed,
        calls=len(run.record.calls),
        audible_calls=sum(share > 0.5 for share in speech),
    )


def count_mixed_utterances(run: LoadResult) -> int:
    """Utterances after a barge-in that differ at their start from the whole reading of the same text."""
    clean = {
        utterance.text: samples_after(trace, utterance.started, 3.0)
        for trace, utterance, _ in run.measured_utterances()
        if utterance.discarded is None
    }
    mixed_count = 0
    for trace, utterance, _ in run.measured_utterances():
        if utterance.discarded is None or utterance.clause_pushed is None:
            continue
        heard = samples_after(trace, utterance.started, utterance.discarded - utterance.clause_pushed - 0.1)
        mixed_count += correlation(heard, clean[utterance.text]) < MIN_CORRELATION
    return mixed_count


def _ttfa_figures(name: str, onsets: Sequence[OnsetDelay], targets_ms: dict[int, float]) -> list[BenchFigure]:
    heard = [1000 * onset.from_clause_s for onset in onsets if onset.from_clause_s is not None]
    return [
        *(
            BenchFigure(f"{name}, p{percent}", percentile(heard, percent), "ms", targets_ms.get(percent))
            for percent in (50, 95)
        ),
        BenchFigure(f"{name}, not heard", len(onsets) - len(heard), "", at_most=0),
    ]


def _from_punctuation_figures(name: str, onsets: Sequence[OnsetDelay]) -> list[BenchFigure]:
    heard = [1000 * onset.from_punctuation_s for onset in onsets if onset.from_punctuation_s is not None]
    return [BenchFigure(f"{name}, p{percent}", percentile(heard, percent), "ms") for percent in (50, 95)]


def _cost_figures(name: str, run: LoadResult) -> list[BenchFigure]:
    return [
        BenchFigure(f"processor time for a second of speech, {name}", run.cost_ms, "ms"),
        BenchFigure(f"calls refused, {name}", run.phones.refused, ""),
        BenchFigure(f"processor of the gateway, {name}", 100 * run.cpu_share, "% of a core"),
        BenchFigure(f"processor of the phones, {name}", 100 * run.phones.cpu_share, "% of a core"),
        BenchFigure(f"processor of everything else, {name}", 100 * run.other_cpu_share, "% of a core"),
        BenchFigure(f"processor that the host withheld, {name}", 100 * run.stolen_cpu_share, "% of a core"),
    ]


# Processes


def run_load(setup: LoadSetup) -> LoadResult:
    """Start the gateway, then the phones; wait for both; read their files. Raises BenchFailed."""
    with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder, contextlib.ExitStack() as stack:
        notes, heard = Path(folder, "notes.json"), Path(folder, "heard.npz")
        gateway = stack.enter_context(BenchProcess(Path(folder), *_gateway_arguments(setup, notes)))
        ready = gateway.read_line(READY_TIMEOUT_S)
        port = int(ready["port" if setup.over == AUDIOSOCKET else "http_port"])
        phones = stack.enter_context(BenchProcess(Path(folder), *_phone_arguments(setup, port, heard)))
        connected = phones.read_line(setup.ramp_s + READY_TIMEOUT_S)["connected"]
        usage, gateway_usage = CpuUsage.now(gateway.pid, phones.pid), CpuUsage.now(gateway.pid)
        rss_mb = peak_resident_mb(gateway.pid, connected + setup.seconds, phones)
        used, gateway_used = CpuUsage.now(gateway.pid, phones.pid), CpuUsage.now(gateway.pid)
        done = load_generator.PhoneLoadResult(**phones.read_line(END_TIMEOUT_S))
        gateway.finish(END_TIMEOUT_S)
        book, utterances = call_server.read_load_record(notes)
        return LoadResult(
            tuple(load_generator.load_traces(heard)),
            tuple(utterances),
            book,
            done,
            rss_mb,
            used.other_cpu_share_since(usage),
            used.stolen_share_since(usage),
            gateway_used.share_since(gateway_usage),
        )


def _gateway_arguments(setup: LoadSetup, notes: Path) -> list[str]:
    limits = ["--count", str(setup.count), "--calls", str(setup.phones)]
    return ["vivavoce.gateway.cli.bench.call_server", setup.part, *limits, "--out", str(notes)]


def _phone_arguments(setup: LoadSetup, port: int, heard: Path) -> list[str]:
    times = ["--ramp", str(setup.ramp_s), "--seconds", str(setup.seconds)]
    calls = ["--calls", str(setup.phones)]
    wire = ["--over", setup.over, "--out", str(heard)]
    once = [] if setup.redials else ["--once"]
    return [setup.phones_module, "127.0.0.1", str(port), *calls, *times, *wire, *once]
