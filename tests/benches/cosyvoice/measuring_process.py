"""A bench module run as a program: its figures, from a process that has measured nothing else.

Not a bench. The module prints a JSON line a figure, or one sentence on standard error.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from vivavoce.gateway.cli.bench.report import BenchFailed
from vivavoce.tts_engine.cosyvoice.device_timings import Measurement
from vivavoce.tts_engine.errors import VivavoceError


def measure_in_process(module: str, folder: Path, part: str) -> list[Measurement]:
    """The figures that a module prints of a part of a bundle; raises BenchFailed."""
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder), part],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},  # idle threads must not spin on two cores
    )
    if done.returncode:
        raise BenchFailed(f"{part}: {(done.stderr.strip() or 'it was ended').splitlines()[-1]}")
    return [Measurement(**json.loads(line)) for line in done.stdout.splitlines()]


def print_measurements(figures: Iterable[Measurement]) -> int:
    """What such a module does: a line a figure as they come; 0, or 1 after a sentence on standard error."""
    try:
        for measured in figures:
            print(json.dumps(asdict(measured)), flush=True)
    except VivavoceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
