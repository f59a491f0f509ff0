"""The fused kernels compute what torch does, in Triton's interpreter, and are launched seldom."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch (EXTRAS=cosyvoice)")
pytest.importorskip("triton", reason="needs Triton (EXTRAS=triton)")

# Sums are in another order. Pages are float16: a rounding differs where a value lies between two of them.
_TOLERANCES = {
    "halves": 1.0,
    "pages in torch.float16": 2e-3,
    "layers in fp16": 4e-3,
    "memory in fp16": 4e-3,
    # Factors that differ by the order of sums may be rounded to neighbours in float16.
    "velocity, one product": 2e-4,
    "pages in torch.float16, one product": 2e-3,
    "pages in torch.float32, one product": 2e-3,
    "contexts, one product": 4e-3,
}
# What a step may launch; a chunk of the vocoder is one step.
_MAX_LAUNCHES = {
    "a token": 8,
    "a solver step of version 2": 165,
    "a solver step of version 3": 100,
    "a chunk": 200,
}


def test_fused_kernels_compute_what_torch_does() -> None:
    errors = output_of("interpreted_kernels.py")
    assert len(errors) == 56
    assert [(name, error) for name, error in errors if not error <= _TOLERANCES.get(name, 1e-5)] == []


def test_a_step_launches_few_kernels() -> None:
    counts = output_of("counted_launches.py")
    assert len(counts) == 6
    limits = {
        name: limit for name in counts for step, limit in _MAX_LAUNCHES.items() if name.startswith(step)
    }
    assert {name: count for name, count in counts.items() if count > limits[name]} == {}


def output_of(script: str) -> Any:
    """What a script of this folder prints, in Triton's interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, Path(__file__).with_name(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
