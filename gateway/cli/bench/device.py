"""``vivavoce bench device``: CosyVoice on a graphics card, an id of one session and chunks of the flow.

Without a card nothing of CosyVoice is measured and the report says so; a bundle of XTTS is measured on a CPU
too. ``vivavoce bench serve --device cuda`` measures how many streams a card serves.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ....tts_engine.backends.kinds import checkpoints_of
from ....tts_engine.cosyvoice.checkpoints import card_name_of, measure_on_device
from ....tts_engine.xtts.kind import XTTS
from .bundle_weights import BenchWeights, is_released, without_targets
from .report import BenchFigure, BenchReport

if TYPE_CHECKING:
    from ....tts_engine.xtts.benchmark import XttsBenchmarkSize


def measure(device: str, weights: BenchWeights, precision: str) -> BenchReport:
    """Measure on a device. Raises BundleError, BadRequest, MissingExtra."""
    if weights.bundle is not None and XTTS.matches(str(weights.bundle)):
        return measure_xtts_bundle(weights.bundle, device)
    name = card_name_of(device)
    figures: tuple[BenchFigure, ...] = ()
    if name:
        with weights.folder() as folder, Console(stderr=True).status("bench device"):
            timings = measure_on_device(folder, device, precision)
            figures = figures_of(
                timings.size.context,
                timings.size.chunks,
                token_s=timings.token_s,
                batched_s=timings.batched_s,
                sequential_s=timings.sequential_s,
            )
            if not is_released(checkpoints_of(folder).check(folder)):
                figures = without_targets(figures)
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


def measure_xtts_bundle(folder: Path, device: str, size: "XttsBenchmarkSize | None" = None) -> BenchReport:
    """Measure XTTS on a device, a CPU included. Raises BundleError, MissingExtra."""
    name = card_name_of(device)
    from ....tts_engine.xtts.benchmark import measure_xtts  # needs torch

    with Console(stderr=True).status("bench device"):
        timings = measure_xtts(folder, device, size)
    sessions = timings.size.sessions
    figures: tuple[BenchFigure, ...] = (
        BenchFigure(f"GPT, an id at context {timings.size.context}", 1000 * timings.id_s, "ms"),
        BenchFigure(
            f"GPT, {sessions} sessions in one step against one after another",
            sessions * timings.id_s / timings.batched_id_s,
            "x",
            at_least=3,
        ),
        BenchFigure("first chunk of 20 ids", timings.first_chunk_s, "s"),
        BenchFigure(f"vocoder, {timings.size.latents} latents at once", timings.offline_s, "s"),
        BenchFigure(
            "vocoder, streamed against at once", timings.streamed_s / timings.offline_s, "x", at_most=1.1
        ),
        BenchFigure("memory at its highest", timings.peak_bytes / 1e9, "GB"),
    )
    if not is_released(checkpoints_of(folder).check(folder)):
        figures = without_targets(figures)
    return BenchReport("device", figures, {"device": name or "cpu", "weights": "of the bundle"})


def figures_of(
    context: int, chunks: int, *, token_s: float, batched_s: float, sequential_s: float
) -> tuple[BenchFigure, ...]:
    """The figures with their targets, which are for an H100 at the released size."""
    token_name = f"LM, a token of one session, context {context}"
    gain_name = "flow, one after another against in one step"
    return (
        BenchFigure(token_name, 1000 * token_s, "ms", at_most=1.5),
        BenchFigure(f"flow, {chunks} chunks of 1 s in one step", 1000 * batched_s, "ms"),
        BenchFigure(f"flow, {chunks} one after another", 1000 * sequential_s, "ms"),
        BenchFigure(gain_name, sequential_s / batched_s, "x", at_least=3),
    )
