"""The weights for a CosyVoice bench, and its targets, which apply to weights of the released size only."""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from ....tts_engine.bundles import CheckedBundle, write_random_bundle
from ....tts_engine.cosyvoice.device_timings import Measurement
from .report import BenchFigure

_RELEASED_BYTES = 1_000_000_000  # a smaller bundle has reduced networks


@dataclass(frozen=True, slots=True)
class BenchWeights:
    """A bundle's weights, or random ones of a size and version, written for the bench."""

    bundle: Path | None = None
    size: str = "full"
    version: int = 2

    def __str__(self) -> str:
        return "of the bundle" if self.bundle else f"random, {self.size}"

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """The bundle's folder; random weights are deleted afterwards. Raises BundleError."""
        if self.bundle is not None:
            yield self.bundle
            return
        with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
            with Console(stderr=True).status("bench: making random weights"):
                write_random_bundle(Path(folder), self.version, self.size, seed=7)
            yield Path(folder)


@dataclass(frozen=True, slots=True)
class FigureTargets:
    """Targets of figures by name."""

    at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)

    def figures(self, measured: Iterable[Measurement]) -> tuple[BenchFigure, ...]:
        """The measurements as figures, with their targets."""
        return tuple(
            BenchFigure(
                one.name, one.value, one.unit, self.at_most.get(one.name), self.at_least.get(one.name)
            )
            for one in measured
        )


def is_released(checked: CheckedBundle) -> bool:
    """Whether a bundle has the released size."""
    return sum(file.size_bytes for file in checked.files) > _RELEASED_BYTES
