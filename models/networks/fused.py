"""Finds the fused kernels of a device, if it has any: see ``fused_kernels.py``, which needs Triton."""

from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch

FusedKernels = ModuleType  # ``fused_kernels``, imported where Triton is installed
_MIN_CAPABILITY = (8, 0)  # of a card whose tensor cores take TF32


def fused_kernels(device: torch.device, *widths: int) -> FusedKernels | None:
    """The module ``fused_kernels``; None on a CPU, on an older card, without Triton, or for other widths.

    widths: channels of rows and heads that are normed or attended as a whole; powers of two from 16 on.
    """
    if device.type == "cpu" or not all(width >= 16 and width & (width - 1) == 0 for width in widths):
        return None
    return _kernels_of(device)


@cache
def _kernels_of(device: torch.device) -> FusedKernels | None:
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    if torch.cuda.get_device_capability(device) < _MIN_CAPABILITY:
        return None
    from . import fused_kernels as kernels

    return kernels
