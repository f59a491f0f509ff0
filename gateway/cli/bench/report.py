"""The result of a bench: figures with units and targets, as a table or as JSON.

Every bench module has ``measure(...) -> BenchReport``. Load generators run in a process of their own.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console
from rich.table import Table

from ....tts_engine.errors import VivavoceError

Result = TypeVar("Result")

# The first one that a processor has. Flags of Linux' /proc/cpuinfo, of x86-64 and of aarch64
_PROCESSOR_KINDS: Final[Mapping[str, Set[str]]] = {
    "AMX": {"amx_int8"},
    "VNNI": {"avx512_vnni", "avx_vnni"},
    "AVX-512 without VNNI": {"avx512bw"},
    "AVX2": {"avx2"},
    "I8MM": {"i8mm"},
    "dot product": {"asimddp"},
}


class BenchFailed(VivavoceError):
    """A bench's process or server failed; the message is its last error line."""


@dataclass(frozen=True, slots=True)
class BenchFigure:
    """One measured number."""

    name: str
    value: float
    unit: str  # "" for a count or ratio
    at_most: float | None = None  # upper target; None without one
    at_least: float | None = None  # lower target; None without one

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.at_most is not None:
            return bool(self.value <= self.at_most)
        if self.at_least is not None:
            return bool(self.value >= self.at_least)
        return None


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The figures of one bench run."""

    bench: str  # name of the command
    figures: tuple[BenchFigure, ...]
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    failures: tuple[str, ...] = ()  # parts that could not be measured, and why

    @property
    def has_missed(self) -> bool:
        """Whether a target was missed, or a part could not be measured."""
        return bool(self.failures) or any(figure.reached is False for figure in self.figures)

    def as_json(self) -> str:
        """One JSON object: bench, machine, settings, figures with ``reached``, failures."""
        return json.dumps(
            {
                "bench": self.bench,
                "machine": {
                    "processor": processor_kind(),
                    "cores": os.cpu_count(),
                    "python": platform.python_version(),
                },
                "settings": dict(self.settings),
                "figures": [
                    asdict(figure) | {"value": float(figure.value), "reached": figure.reached}
                    for figure in self.figures
                ],
                "failures": list(self.failures),
            },
            indent=2,
        )

    def print_table(self, console: Console) -> None:
        """Print a table with a verdict for each figure that has a target, and for each failure."""
        settings = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        machine = f"{os.cpu_count()} cores of {processor_kind()}"
        table = Table(title=f"bench {self.bench} ({machine}; {settings})", title_justify="left")
        for heading in ("figure", "measured", "must reach", ""):
            table.add_column(heading, justify="right" if heading == "measured" else "left")
        for figure in self.figures:
            table.add_row(
                figure.name, f"{figure.value:,.4g} {figure.unit}", _target_text(figure), _verdict_text(figure)
            )
        for failure in self.failures:
            table.add_row(failure, "", "", "FAILED")
        console.print(table)


def processor_kind(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name and what decides its speed here: how it multiplies numbers of 8 bits.

    Where there is no cpuinfo: the architecture alone.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    kind = next((kind for kind, names in _PROCESSOR_KINDS.items() if flags & names), "")
    return ", ".join(filter(None, [fields.get("model name", platform.machine()), kind]))


def run_parts(
    parts: Iterable[tuple[str, Callable[[], Result]]], console: Console
) -> tuple[list[Result], tuple[str, ...]]:
    """Run the parts of a bench in order; return their results, and a line for each part that failed.

    Raises BenchFailed if every part failed.
    """
    results: list[Result] = []
    failures: list[str] = []
    for name, run in parts:
        try:
            with console.status(f"bench: {name}"):
                results.append(run())
        except BenchFailed as error:
            failures.append(f"{name} was not measured: {error}")
    if failures and not results:
        raise BenchFailed("; ".join(failures))
    return results, tuple(failures)


def _target_text(figure: BenchFigure) -> str:
    if figure.at_most is not None:
        return f"<= {figure.at_most:,.4g} {figure.unit}"
    if figure.at_least is not None:
        return f">= {figure.at_least:,.4g} {figure.unit}"
    return ""


def _verdict_text(figure: BenchFigure) -> str:
    match figure.reached:
        case None:
            return ""
        case True:
            return "reached"
        case False:
            return "MISSED"
