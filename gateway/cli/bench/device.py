"""``vivavoce bench device``: CosyVoice on a graphics card: a token of the language model, chunks of the flow.

Nothing is measured without a card. ``vivavoce bench serve --device cuda`` measures how many streams a card
serves.
"""

from rich.console import Console

from ....tts_engine.bundles import check_bundle
from ....tts_engine.cosyvoice.device_timings import card_name_of, measure_device
from .bundle_weights import BenchWeights, FigureTargets, is_released
from .report import BenchFigure, BenchReport

# For an H100 and the released size.
_TARGETS = FigureTargets(
    at_most={"LM, a token of one session, context 120": 1.5},
    at_least={"flow, one after another against in one step": 3},
)


def measure(device: str, weights: BenchWeights, precision: str) -> BenchReport:
    """Measure on ``device``; raises BundleError, MissingExtra."""
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
