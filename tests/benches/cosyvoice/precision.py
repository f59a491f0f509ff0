"""The language model of CosyVoice in 16 and 8 bits beside float32: time a token, error, memory, many at once.

Every precision runs in a process of its own, with float32 beside it, steps taken in turns. Seconds are
processor seconds of all threads over two cores where a figure says nothing else.

Run as ``python -m benches.cosyvoice.precision FOLDER PRECISION`` it is such a process, and prints a
JSON line a figure.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benches.cosyvoice.measuring_process import measure_in_process, print_measurements
from benches.cosyvoice.precision_timings import measure_precision
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights, FigureTargets, is_released
from vivavoce.gateway.cli.bench.report import BenchReport
from vivavoce.tts_engine.bundles import check_bundle
from vivavoce.tts_engine.cosyvoice.device_timings import Measurement

DEFAULT_PRECISIONS = ("fp32", "bf16", "int8")
_MODULE = "benches.cosyvoice.precision"

_TARGETS = FigureTargets(
    at_most={
        "int8, a token against fp32": 0.5,
        "int8, mean KL to fp32": 0.01,
        "bf16, mean KL to fp32": 0.01,
    },
    at_least={
        "fp32, at once against one after another": 3,
        "int8, likeliest id as fp32's where it leads by 0.1": 99,
        "bf16, likeliest id as fp32's where it leads by 0.1": 99,
    },
)


def measure(precisions: Sequence[str], weights: BenchWeights) -> BenchReport:
    """Measure them in each precision; raises BundleError, BenchFailed."""
    measured: list[Measurement] = []
    with weights.folder() as folder:
        checked = check_bundle(folder)
        for precision in precisions:
            with Console(stderr=True).status(f"bench precision: {precision}"):
                measured += measure_in_process(_MODULE, folder, precision)
    targets = _TARGETS if is_released(checked) else FigureTargets()
    return BenchReport(
        "precision",
        targets.figures(measured),
        {"version": checked.version, "weights": str(weights), "threads": 2},
    )


def main(arguments: Sequence[str]) -> int:
    """Measure one precision of one folder; 0, or 1 after one sentence on stderr."""
    folder, precision = arguments
    return print_measurements(measure_precision(Path(folder), precision))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
