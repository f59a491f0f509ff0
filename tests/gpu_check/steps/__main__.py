"""Runs one step of the check and prints its findings, a JSON object a line."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from gpu_check.findings import CheckOptions, Finding
from gpu_check.package_stand_ins import replace_absent_packages

# The function ``measure`` of each module; a step imports only its own.
_MODULES: Mapping[str, str] = {
    "machine": "gpu_check.steps.machine",
    "accuracy": "gpu_check.steps.accuracy",
    "bundle": "gpu_check.steps.loading",
    "graphs": "gpu_check.steps.graphs",
    "version3": "gpu_check.steps.version3",
    "xtts": "gpu_check.steps.xtts",
    "streams": "gpu_check.steps.streams",
    "serve": "gpu_check.steps.serving",
    "profile": "gpu_check.steps.replays",
    "limits": "gpu_check.steps.limits",
}


def main(arguments: list[str]) -> None:
    """Run the step that the first argument names."""
    parser = argparse.ArgumentParser(prog="python -m gpu_check.steps")
    parser.add_argument("step", choices=_MODULES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    replace_absent_packages()
    measure: Callable[[CheckOptions], Iterator[Finding]] = import_module(_MODULES[given.step]).measure
    for finding in measure(CheckOptions(given.device, given.out, given.quick)):
        print(json.dumps(asdict(finding)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
