"""``vivavoce bench device``: the networks of a bundle on a graphics card, as their kind measures them.

Without a card a kind whose figures are only for one is not measured, and the report says so.
``vivavoce bench serve --device cuda`` measures how many streams a card serves.
"""

from dataclasses import astuple
from pathlib import Path

from rich.console import Console

from ....tts_engine.backends.kinds import find_kind
from .bundle_weights import BenchWeights, is_released, random_checkpoints, without_targets
from .report import BenchFigure, BenchReport


def measure(device: str, weights: BenchWeights, precision: str) -> BenchReport:
    """Measure on a device. Raises BundleError, BadRequest, MissingExtra."""
    card = random_checkpoints().card_name(device)
    figures: tuple[BenchFigure, ...] = ()
    if card or (weights.bundle and find_kind(str(weights.bundle)).measured_on_cpu):
        with weights.folder() as folder, Console(stderr=True).status("bench device"):
            figures = _measure_folder(folder, device, precision)
    settings: dict[str, str | int] = {
        "device": card or ("cpu" if figures else "no graphics card: unmeasured"),
        "version": weights.version,
        "weights": str(weights),
        "precision": precision,
    }
    return BenchReport("device", figures, settings)


def _measure_folder(folder: Path, device: str, precision: str) -> tuple[BenchFigure, ...]:
    kind = find_kind(str(folder))
    if kind.measure is None:
        return ()
    figures = tuple(BenchFigure(*astuple(each)) for each in kind.measure(folder, device, precision))
    if kind.checkpoints is not None and is_released(kind.checkpoints.check(folder)):
        return figures
    return without_targets(figures)
