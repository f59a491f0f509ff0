"""Says whether a device can run the kernels in Triton; ``kernels.fused_kernels`` says what they are for."""

import logging
import shutil
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch

logger = logging.getLogger(__name__)

MAX_FUSED_ROWS = 4  # of a step whose layers are one kernel; more have no registers there

_C_COMPILERS = ("gcc", "clang")  # that Triton looks for
_MIN_CAPABILITY = (8, 0)  # of a card that copies to shared memory asynchronously
_EARLY_LAUNCH_CAPABILITY = (9, 0)


def has_fused_kernels(
    device: torch.device, powers: Sequence[int] = (), multiples: Sequence[int] = ()
) -> bool:
    """Whether the kernels can be used: not on a CPU, on an older card, without Triton, or for other widths.

    powers: widths that must be powers of two, from 16 on. multiples: widths that must be multiples of 32.
    """
    if any(width % 32 for width in multiples):
        return False
    if any(width < 16 or width & (width - 1) for width in powers):
        return False
    return runs_triton(device)


@cache
def runs_triton(device: torch.device) -> bool:
    """Whether Triton is installed and compiles for the device; without a C compiler it starts no kernel."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    if not any(map(shutil.which, _C_COMPILERS)):
        logger.warning("no C compiler is installed, so that slower torch replaces the kernels for cards")
        return False
    return torch.cuda.get_device_capability(device) >= _MIN_CAPABILITY


@cache
def launches_early(device: torch.device) -> bool:
    """Whether a kernel can be launched before the kernel before it has ended."""
    if device.type != "cuda" or not runs_triton(device):
        return False
    if torch.cuda.get_device_capability(device) < _EARLY_LAUNCH_CAPABILITY:
        return False
    from triton.language.extra import cuda

    return hasattr(cuda, "gdc_wait")
