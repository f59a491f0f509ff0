"""Weights that a bench of CosyVoice runs on; targets apply only to the released size. Not a bench."""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ....tts_engine.backends.kinds import kinds_with_checkpoints
from ....tts_engine.backends.voice_kind import CheckedBundle, Checkpoints
from .report import BenchFigure

_RELEASED_BYTES = 1_000_000_000  # a bundle with less is a reduced one


@dataclass(frozen=True, slots=True)
class BenchWeights:
    """Weights of a bundle, or random ones of a size and version, made for the bench."""

    bundle: Path | None = None
    size: str = "full"
    version: int = 2

    def __str__(self) -> str:
        return "of the bundle" if self.bundle else f"random, {self.size}"

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """The folder of the weights; random ones are deleted afterwards. Raises BundleError."""
        if self.bundle is not None:
            yield self.bundle
            return
        with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
            with Console(stderr=True).status("bench: making random weights"):
                random_checkpoints().write_random(Path(folder), self.version, self.size, seed=7)
            yield Path(folder)


def random_checkpoints() -> Checkpoints:
    """What makes random weights."""
    return kinds_with_checkpoints()["CosyVoice"]


def without_targets(figures: Iterable[BenchFigure]) -> tuple[BenchFigure, ...]:
    """The figures without their targets, which are only for weights of the released size."""
    return tuple(replace(figure, at_most=None, at_least=None) for figure in figures)


def is_released(checked: CheckedBundle) -> bool:
    """Whether a bundle has the released size, to which targets apply."""
    return sum(file.size_bytes for file in checked.files) > _RELEASED_BYTES
