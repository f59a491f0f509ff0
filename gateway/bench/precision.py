"""The language model of CosyVoice in 16 and 8 bits beside float32: time a token, error, memory, many at once.

Every precision runs in a process of its own, with float32 beside it, steps taken in turns. Seconds are
processor seconds of all threads over two cores where a figure says nothing else.

Run as ``python -m vivavoce.gateway.bench.precision FOLDER PRECISION`` it is such a process, and prints a
JSON line a figure.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ...tts_engine.bundles import check_bundle
from ...tts_engine.cosyvoice_timings import Measured
from ...tts_engine.precision_timings import measure_precision
from .apart import measured_apart, print_figures
from .cosyvoice import bundle_folder, is_released
from .report import Figure, Report

DEFAULT_PRECISIONS = ("fp32", "bf16", "int8")
_MODULE = "vivavoce.gateway.bench.precision"

_AT_MOST: Mapping[str, float] = {
    "int8, a token against fp32": 0.5,
    "int8, mean KL to fp32": 0.01,
    "bf16, mean KL to fp32": 0.01,
}
_AT_LEAST: Mapping[str, float] = {
    "fp32, at once against one after another": 3,
    "int8, likeliest id as fp32's where it leads by 0.1": 99,
    "bf16, likeliest id as fp32's where it leads by 0.1": 99,
}


def measure(
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    *,
    size: str = "full",
    version: int = 2,
    bundle: Path | None = None,
    progress: Console | None = None,
) -> Report:
    """Measure a bundle, or one of random weights that is made for it; raises BundleError, BenchFailed."""
    console = progress or Console(stderr=True)
    figures: list[Figure] = []
    with bundle_folder(bundle, size, version, console) as folder:
        checked = check_bundle(folder)
        for precision in precisions:
            with console.status(f"bench precision: {precision}"):
                figures += map(_figure, measured_apart(_MODULE, precision, [str(folder), precision]))
    if not is_released(checked):
        figures = [replace(figure, at_most=None, at_least=None) for figure in figures]
    weights = "of the bundle" if bundle else f"random, {size}"
    return Report("precision", tuple(figures), {"version": checked.version, "weights": weights, "threads": 2})


def _figure(one: Measured) -> Figure:
    return Figure(one.name, one.value, one.unit, _AT_MOST.get(one.name), _AT_LEAST.get(one.name))


def main(arguments: Sequence[str]) -> int:
    """Measure one precision of one folder; 0, or 1 after one sentence on stderr."""
    folder, precision = arguments
    return print_figures(measure_precision(Path(folder), precision))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
