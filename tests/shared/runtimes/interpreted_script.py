"""Runs a script in Triton's interpreter, in a process of its own: Triton reads this when it is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def output_of(script: Path) -> Any:
    """The JSON that a script prints."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
