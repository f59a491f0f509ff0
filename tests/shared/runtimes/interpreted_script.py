"""Runs scripts in Triton's interpreter, in a process of its own: Triton reads this when it is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_RUN = "import runpy, sys; [runpy.run_path(script, run_name='__main__') for script in sys.argv[1:]]"


def outputs_of(*scripts: Path) -> list[Any]:
    """The JSON that each script prints, a line each."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *scripts], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
