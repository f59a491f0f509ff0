"""A decode step in kernels computes what torch does, in Triton's interpreter, with few launches."""

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
from vivavoce.models.devices.execution import Precision
from vivavoce.models.networks import kernel_support
from vivavoce.models.xtts.config import XttsGptConfig
from vivavoce.models.xtts.gpt import TorchXttsGpt

_FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def printed() -> list[Any]:
    """Errors of the kernels, and launches of steps."""
    return outputs_of(_FOLDER / "interpreted_kernels.py", _FOLDER / "counted_launches.py")


def test_a_decode_step_in_kernels_computes_what_torch_does(printed: list[Any]) -> None:
    errors, _ = printed
    assert len(errors) == 15
    # Sums are in another order.
    assert [(name, error) for name, error in errors if not error <= (4e-3 if "fp16" in name else 1e-5)] == []


def test_a_decode_step_launches_few_kernels(printed: list[Any]) -> None:
    _, counts = printed
    assert counts["kernels"] <= 10


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@torch.inference_mode()
def test_a_decode_step_of_4_rows_has_registers(capability: int, tmp_path: Path) -> None:
    """In float32, which needs the most."""
    config = XttsGptConfig()
    with torch.device("meta"), patch.object(kernel_support, "runs_triton", return_value=True):
        gpt = TorchXttsGpt(config, 1, 2, Precision.FP32)
        draw_and_prepare(gpt)
        x, kv = torch.zeros(4, 1, config.hidden), gpt.init_state(4, config.max_positions).kv
        places = torch.zeros(2, 4, 1, dtype=torch.int64)
        missing = stack_bytes(
            lambda: gpt.run_fused_layers(x, kv, *places, config.max_positions), capability, tmp_path
        )
    assert missing == {"_decode_kernel": 0}
