"""Devices that the networks compute on, and copies between host and device. One GPU at most.

Sessions, their progress and their ids are known on the host; results of the networks stay on the device. A
step uploads a few numbers and downloads a few, each through pinned memory, which the GPU accesses directly.
The host does not wait for the upload, and waits for the download once a step:

    host      ids, places, draws ->|                                       |-> ids, samples
    device                         | embedding, layers, head, choice, mel |

On a CPU both copies do nothing.

Source: the notes on pinned memory and asynchronous copies of ``torch.cuda``.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from .execution import DeviceError
from .host_memory import free_host_bytes

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")


def find_device(name: str) -> torch.device:
    """The device called ``auto`` (the first usable GPU, else the CPU), ``cpu``, ``cuda`` or ``cuda:N``.

    ``cuda:N`` is the N-th GPU, or MIG slice of one, that the process may see (``CUDA_VISIBLE_DEVICES``). Logs
    why the CPU is taken where there is a GPU. Raises DeviceError for any other name and for a GPU that torch
    cannot use.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cpu" and torch.cuda.device_count():
            logger.warning("the CPU computes, because torch cannot use the graphics card: %s", _cuda_fault())
    if name == "cpu":
        return CPU
    found = re.fullmatch(r"cuda(?::(\d{1,3}))?", name)
    if not found:
        raise DeviceError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N")
    if fault := _cuda_fault():
        raise DeviceError(f"device is {name!r}, and torch cannot use a graphics card here: {fault}")
    index, cards = int(found[1] or 0), torch.cuda.device_count()
    if index >= cards:
        usable = ", ".join(f"cuda:{card} ({torch.cuda.get_device_name(card)})" for card in range(cards))
        raise DeviceError(f"device is {name!r}; torch can use {usable} here")
    return torch.device("cuda", index)


def _cuda_fault() -> str:
    """Why torch cannot use any GPU, such as a driver that is too old; empty if it can."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        reason = _first_sentence(error)
        remedy = "; update it, or install a build of torch for its version of CUDA"
        return reason + remedy if "too old" in reason else reason
    return ""


def _first_sentence(error: Exception) -> str:
    return str(error).splitlines()[0].partition(". ")[0].rstrip(".")


@contextmanager
def loading_onto(device: torch.device, weight_bytes: int) -> Iterator[None]:
    """Log which GPU networks are loaded onto, and with how much free memory. Does nothing on a CPU.

    weight_bytes: of the weights on file. Raises DeviceError if the GPU has too little memory, or fails.
    """
    if device.type != "cuda":
        yield
        return
    card = f"{device} ({card_name(device)})"
    try:
        free, total = (each / 1e9 for each in torch.cuda.mem_get_info(device))
        logger.info("networks are loaded onto %s, %.1f of %.1f GB are free", card, free, total)
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{card} has too little memory: {free:.1f} of {total:.1f} GB were free, the weights have "
            f"{weight_bytes / 1e9:.1f} GB on file and streams need some more; end what else uses the card, "
            "or name another device (bundle.device), or 16 bits (bundle.precision: bf16)"
        ) from error
    except RuntimeError as error:
        if not any(library in str(error) for library in ("CUDA", "cuDNN", "cuFFT")):
            raise
        raise DeviceError(
            f"{card} cannot be used: {_first_sentence(error)}; 'nvidia-smi' shows its state and its processes"
        ) from error


def compute_exactly(device: torch.device) -> None:
    """Switch TF32 off on a GPU: torch's default is on for convolutions and off for products of matrices.

    TF32 keeps 10 bits of a factor, and the reference vectors are compared to more.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def card_name(device: torch.device) -> str:
    """Product name of the GPU; empty for a CPU."""
    return "" if device.type == "cpu" else torch.cuda.get_device_name(device)


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device, asynchronously: later operations on the device wait for the copy."""
    if device.type == "cpu":
        return host
    return as_pinned(host).to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Tensor:
    """Copy a tensor to the host, after waiting for the device. The only place that waits for it."""
    if tensor.device.type == "cpu":
        return tensor
    return new_pinned(tensor.shape, tensor.dtype).copy_(tensor)


def new_pinned(shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Uninitialized host memory, pinned if torch can use a GPU."""
    return torch.empty(shape, dtype=dtype, pin_memory=torch.cuda.is_available())


def as_pinned(host: Tensor) -> Tensor:
    """The tensor in pinned memory if torch can use a GPU, otherwise unchanged."""
    return host.pin_memory() if torch.cuda.is_available() else host


def separate_stream(device: torch.device) -> AbstractContextManager[object]:
    """A context in which a thread's operations do not wait for other threads' operations.

    It may be entered repeatedly, and tensors that exist already may be used in it. Does nothing on a CPU,
    where threads are independent.
    """
    if device.type != "cuda":
        return nullcontext()
    torch.cuda.synchronize(device)
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def free_bytes(device: torch.device) -> int:
    """Memory that can be allocated now; on the host, within the limits of machine and control group."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return free_host_bytes()
