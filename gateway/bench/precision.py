"""The language model of CosyVoice in 16 and 8 bits beside float32: time a token, error, memory, many at once.

Every precision runs in a process of its own, with float32 beside it, steps taken in turns. Seconds are
processor seconds of all threads over two cores where a figure says nothing else. "Peaked": all logits
multiplied, so that the likeliest id has half of the probability at the median position.

Run as ``python -m vivavoce.gateway.bench.precision FOLDER PRECISION POSITIONS`` it is such a process, and
prints a JSON line a figure.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from ...tts_engine.bundles import check_bundle
from ...tts_engine.cosyvoice_timings import Measured
from ...tts_engine.errors import VivavoceError
from ...tts_engine.precision_timings import Effort, measure_precision
from .cosyvoice import BenchFailed, bundle_folder
from .report import Figure, Report

DEFAULT_PRECISIONS = ("fp32", "bf16", "int8")

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
    positions: int = 1000,
    progress: Console | None = None,
) -> Report:
    """Measure a bundle, or one of random weights that is made for it; raises BundleError, BenchFailed.

    Targets are of the released size.
    """
    console = progress or Console(stderr=True)
    figures: list[Figure] = []
    with bundle_folder(bundle, size, version, console) as folder:
        version = check_bundle(folder).version
        for precision in precisions:
            with console.status(f"bench precision: {precision}"):
                figures += map(_figure, _measured_apart(folder, precision, positions))
    if bundle is None and size == "tiny":
        figures = [Figure(figure.name, figure.value, figure.unit) for figure in figures]
    weights = "of the bundle" if bundle else f"random, {size}"
    return Report("precision", tuple(figures), {"version": version, "weights": weights, "threads": 2})


def _figure(one: Measured) -> Figure:
    return Figure(one.name, one.value, one.unit, _AT_MOST.get(one.name), _AT_LEAST.get(one.name))


def _measured_apart(folder: Path, precision: str, positions: int) -> list[Measured]:
    done = subprocess.run(
        [sys.executable, "-m", "vivavoce.gateway.bench.precision", str(folder), precision, str(positions)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
    )
    if done.returncode:
        raise BenchFailed(f"{precision}: {(done.stderr.strip() or 'it was ended').splitlines()[-1]}")
    return [Measured(**json.loads(line)) for line in done.stdout.splitlines()]


def main(arguments: Sequence[str]) -> int:
    """Measure one precision of one folder; 0, or 1 after one sentence on stderr."""
    folder, precision, positions = arguments
    try:
        for measured in measure_precision(Path(folder), precision, Effort(positions=int(positions))):
            print(json.dumps(asdict(measured)), flush=True)
    except VivavoceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
