"""The fused kernels compute what torch does, in Triton's interpreter, which needs no card."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (EXTRAS=cosyvoice)")
pytest.importorskip("triton", reason="needs Triton (EXTRAS=triton)")

# Sums are in another order. Pages are float16: a rounding differs where a value lies between two of them.
_TOLERANCES = {
    "halves": 1.0,
    "pages": 2e-3,
    "pages in torch.float16": 2e-3,
    "layer in fp16": 2e-3,
    "memory in fp16": 2e-3,
}


def test_fused_kernels_compute_what_torch_does() -> None:
    script = Path(__file__).with_name("interpreted_kernels.py")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) == 43
    assert [(name, error) for name, error in errors if not error <= _TOLERANCES.get(name, 1e-5)] == []
