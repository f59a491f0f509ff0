"""Runs one part of a bench in its own process, because memory and threads of a part stay in its process.

The module is run as ``python -m MODULE FOLDER PART``; it prints a JSON line a figure, or one sentence on
standard error.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure
from vivavoce.tts_engine.errors import VivavoceError


def measure_in_process(
    module: str, folder: Path, part: str, environment: Mapping[str, str] | None = None
) -> list[BenchFigure]:
    """Run a part of a bench and return its figures. Raises BenchFailed with the last line of its errors.

    environment: variables of the process beside those of this one.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder), part],
        capture_output=True,
        text=True,
        # Idle OpenMP threads spin otherwise; they read this only when the process starts.
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"} | dict(environment or {}),
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it was ended"]
        raise BenchFailed(f"{part}: {lines[-1]}")
    return [BenchFigure(**json.loads(line)) for line in done.stdout.splitlines()]


def print_figures(figures: Iterable[BenchFigure]) -> int:
    """Print each figure as a line; returns the exit code, 1 after an error message on standard error."""
    try:
        for figure in figures:
            print(json.dumps(asdict(figure)), flush=True)
    except VivavoceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
