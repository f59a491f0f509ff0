"""CosyVoice on a graphics card: a token of one session, and chunks of the flow in one step, by the clock.

Without a card nothing is measured, and that is said: a CPU's figures would tell nothing of a card's. How many
streams a card serves is ``vivavoce bench serve --device cuda``.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ...tts_engine.bundles import check_bundle
from ...tts_engine.cosyvoice_timings import Measured
from ...tts_engine.device_timings import card, measure_device
from .cosyvoice import bundle_folder, is_released
from .report import Figure, Report

# On an H100, at the released size.
_AT_MOST: Mapping[str, float] = {"LM, a token of one session, context 120": 1.5}
_AT_LEAST: Mapping[str, float] = {"flow, one after another against in one step": 3}


def measure(
    device: str = "auto",
    *,
    size: str = "full",
    version: int = 2,
    bundle: Path | None = None,
    precision: str = "fp32",
    progress: Console | None = None,
) -> Report:
    """Measure a bundle, or one of random weights; raises BundleError, MissingExtra."""
    name = card(device)
    settings: dict[str, str | int] = {
        "device": name or "no graphics card: unmeasured",
        "version": version,
        "weights": "of the bundle" if bundle else f"random, {size}",
        "precision": precision,
    }
    if not name:
        return Report("device", (), settings)
    console = progress or Console(stderr=True)
    with bundle_folder(bundle, size, version, console) as folder, console.status("bench device"):
        checked = check_bundle(folder)
        figures = tuple(_figure(one) for one in measure_device(folder, device, precision))
    if not is_released(checked):
        figures = tuple(replace(figure, at_most=None, at_least=None) for figure in figures)
    return Report("device", figures, settings)


def _figure(measured: Measured) -> Figure:
    return Figure(
        measured.name,
        measured.value,
        measured.unit,
        at_most=_AT_MOST.get(measured.name),
        at_least=_AT_LEAST.get(measured.name),
    )
