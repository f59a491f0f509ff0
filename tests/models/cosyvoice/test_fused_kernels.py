"""The fused kernels compute what torch does, in Triton's interpreter, and are launched seldom."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from shared.runtimes.interpreted_script import outputs_of

pytest.importorskip("torch", reason="needs torch (EXTRAS=cosyvoice)")
pytest.importorskip("triton", reason="needs Triton (EXTRAS=triton)")

import torch

from shared.runtimes.compiled_kernels import CAPABILITIES, stack_bytes
from shared.runtimes.drawn_networks import draw_and_prepare
from vivavoce.models.cosyvoice.config import SpeechLmConfig
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm, make_lm_step_plan
from vivavoce.models.decoding.kv_memory import plan_kv_step_for_kernels
from vivavoce.models.devices.execution import Precision
from vivavoce.models.networks import kernel_support

_FOLDER = Path(__file__).parent
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


@pytest.fixture(scope="module")
def printed() -> list[Any]:
    """Errors of the kernels, and launches of steps."""
    return outputs_of(_FOLDER / "interpreted_kernels.py", _FOLDER / "counted_launches.py")


def test_fused_kernels_compute_what_torch_does(printed: list[Any]) -> None:
    errors, _ = printed
    assert len(errors) == 56
    assert [(name, error) for name, error in errors if not error <= _TOLERANCES.get(name, 1e-5)] == []


def test_a_step_launches_few_kernels(printed: list[Any]) -> None:
    _, counts = printed
    assert len(counts) == 6
    limits = {
        name: limit for name in counts for step, limit in _MAX_LAUNCHES.items() if name.startswith(step)
    }
    assert {name: count for name, count in counts.items() if count > limits[name]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@torch.inference_mode()
def test_a_token_of_4_rows_has_registers(capability: int, tmp_path: Path) -> None:
    """In float32, which needs the most."""
    config = SpeechLmConfig()
    with torch.device("meta"), patch.object(kernel_support, "runs_triton", return_value=True):
        lm = SpeechLm(config, Precision.FP32)
        draw_and_prepare(lm)
        state, positions = lm.init_state(4, 2048), torch.zeros(4, 1, dtype=torch.int64)
        plan = make_lm_step_plan(plan_kv_step_for_kernels(positions, state.capacity), positions, config)
        x = torch.zeros(4, 1, config.hidden)
        missing = stack_bytes(lambda: lm.run_layers(x, state.kv, plan), capability, tmp_path)
    assert missing == {"_decode_kernel": 0, "_add_and_norm_kernel": 0}
