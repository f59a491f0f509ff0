"""Finds the fused kernels of a device, if it has any: see ``fused_kernels.py``, which needs Triton."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch

FusedKernels = ModuleType  # ``fused_kernels``, imported where Triton is installed
_MIN_CAPABILITY = (8, 0)  # of a card whose tensor cores take TF32


def fused_kernels(
    device: torch.device, powers: Sequence[int] = (), multiples: Sequence[int] = ()
) -> FusedKernels | None:
    """The module ``fused_kernels``; None on a CPU, on an older card, without Triton, or for other widths.

    powers: widths that must be powers of two, from 16 on. multiples: widths that must be multiples of 32.
    """
    if device.type == "cpu" or any(width % 32 for width in multiples):
        return None
    if any(width < 16 or width & (width - 1) for width in powers):
        return None
    return kernels_of(device)


@cache
def kernels_of(device: torch.device) -> FusedKernels | None:
    """As ``fused_kernels``, for any widths."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    if torch.cuda.get_device_capability(device) < _MIN_CAPABILITY:
        return None
    from . import fused_kernels as kernels

    return kernels
