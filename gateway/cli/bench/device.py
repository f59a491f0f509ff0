"""CosyVoice on a graphics card: a token of one session, and chunks of the flow in one step, by the clock.

Without a card nothing is measured, and that is said: a CPU's figures would tell nothing of a card's. How many
streams a card serves is ``vivavoce bench serve --device cuda``.
"""

from rich.console import Console

from ....tts_engine.bundles import check_bundle
from ....tts_engine.cosyvoice.device_timings import card_name_of, measure_device
from .bundle_weights import BenchWeights, FigureTargets, is_released
from .report import BenchFigure, BenchReport

# On an H100, at the released size.
_TARGETS = FigureTargets(
    at_most={"LM, a token of one session, context 120": 1.5},
    at_least={"flow, one after another against in one step": 3},
)


def measure(device: str, weights: BenchWeights, precision: str) -> BenchReport:
    """Measure them on a device; raises BundleError, MissingExtra."""
    name = card_name_of(device)
    figures: tuple[BenchFigure, ...] = ()
    if name:
        with weights.folder() as folder, Console(stderr=True).status("bench device"):
            targets = _TARGETS if is_released(check_bundle(folder)) else FigureTargets()
            figures = targets.figures(measure_device(folder, device, precision))
    return BenchReport(
        "device",
        figures,
        {
            "device": name or "no graphics card: unmeasured",
            "version": weights.version,
            "weights": str(weights),
            "precision": precision,
        },
    )
