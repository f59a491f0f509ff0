"""Whose weights a bench of CosyVoice runs, and the targets that are held to those of the released size.

Not a bench.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from ....tts_engine.bundles import CheckedBundle, write_random_bundle
from ....tts_engine.cosyvoice.device_timings import Measurement
from .report import BenchFigure

_RELEASED_BYTES = 1_000_000_000  # a bundle with less is a reduced one


@dataclass(frozen=True, slots=True)
class BenchWeights:
    """Those of a bundle, or without one random ones of a size and version, made for the bench."""

    bundle: Path | None = None
    size: str = "full"
    version: int = 2

    def __str__(self) -> str:
        return "of the bundle" if self.bundle else f"random, {self.size}"

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Where they are; random ones are gone afterwards. Raises BundleError."""
        if self.bundle is not None:
            yield self.bundle
            return
        with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
            with Console(stderr=True).status("bench: making random weights"):
                write_random_bundle(Path(folder), self.version, self.size, seed=7)
            yield Path(folder)


@dataclass(frozen=True, slots=True)
class FigureTargets:
    """Bounds of figures, by name."""

    at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)

    def figures(self, measured: Iterable[Measurement]) -> tuple[BenchFigure, ...]:
        """What was measured, each with its bound where it has one."""
        return tuple(
            BenchFigure(
                one.name, one.value, one.unit, self.at_most.get(one.name), self.at_least.get(one.name)
            )
            for one in measured
        )


def is_released(checked: CheckedBundle) -> bool:
    """Whether a bundle has the released size, which targets are of."""
    return sum(file.size_bytes for file in checked.files) > _RELEASED_BYTES
