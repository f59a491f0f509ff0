"""The report of ``vivavoce phone``: the figures of each call as a table or as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from .call_summary import ReceivedCallSummary


@dataclass(frozen=True, slots=True)
class PhoneReport:
    """The figures of all calls of one run."""

    calls: tuple[ReceivedCallSummary, ...]

    def as_json(self) -> str:
        """One JSON object with the list ``calls``."""
        return f'{{"calls": [{", ".join(summary.as_json() for summary in self.calls)}]}}'

    def print_table(self, console: Console) -> None:
        """Print a table: every figure of a single call, or one row for each of several."""
        if len(self.calls) == 1:
            console.print(_one_call_table(self.calls[0]))
        else:
            console.print(_many_calls_table(self.calls))
        for summary in self.calls:
            if summary.recording is not None:
                console.print(f"recorded to {summary.recording}", soft_wrap=True)


def _one_call_table(summary: ReceivedCallSummary) -> Table:
    table = Table(title=f"call {summary.call}", title_justify="left", show_header=False)
    for name, value in (
        ("ended", f"{summary.reason}, after {summary.duration_s:.1f} s"),
        ("first packet", _ms(summary.first_packet_ms)),
        ("first audible sample", _ms(summary.first_audible_ms)),
        ("speech", f"{summary.speech_s:.1f} s"),
        ("packets", f"{summary.packets} at {summary.sample_rate or 0} Hz"),
        ("between packets, p50 / p99", _inter_arrival(summary)),
        ("gaps over 40 / 60 / 100 ms", _gaps(summary)),
    ):
        table.add_row(name, value)
    return table


def _many_calls_table(summaries: Sequence[ReceivedCallSummary]) -> Table:
    table = Table(title=f"{len(summaries)} calls", title_justify="left")
    for heading in ("call", "audible after", "speech", "packets", "gaps >40/60/100 ms", "ended"):
        table.add_column(heading)
    for summary in summaries:
        table.add_row(
            summary.call[:8],
            _ms(summary.first_audible_ms),
            f"{summary.speech_s:.1f} s",
            str(summary.packets),
            _gaps(summary),
            summary.reason,
        )
    return table


def _inter_arrival(summary: ReceivedCallSummary) -> str:
    return f"{_ms(summary.inter_arrival_p50_ms)} / {_ms(summary.inter_arrival_p99_ms)}"


def _gaps(summary: ReceivedCallSummary) -> str:
    return f"{summary.gaps_over_40_ms} / {summary.gaps_over_60_ms} / {summary.gaps_over_100_ms}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
