"""Devices that the networks compute on, and copies between host and device. One GPU at most.

Sessions, their progress and their ids are known on the host; results of the networks stay on the device. A
step uploads a few numbers and downloads a few, each through pinned memory, which the GPU accesses directly.
The host does not wait for the upload, and waits for the download once a step:

    host      ids, places, draws ->|                                       |-> ids, samples
    device                         | embedding, layers, head, choice, mel |

On a CPU both copies do nothing.

Source: the notes on pinned memory and asynchronous copies of ``torch.cuda``.
"""

import re
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from .execution import DeviceError
from .host_memory import free_host_bytes

CPU = torch.device("cpu")


def find_device(name: str) -> torch.device:
    """The device called ``auto`` (the first usable GPU, else the CPU), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises DeviceError for any other name and for a GPU that torch cannot use.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return CPU
    found = re.fullmatch(r"cuda(?::(\d{1,3}))?", name)
    if not found:
        raise DeviceError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N")
    index, cards = int(found[1] or 0), torch.cuda.device_count()
    if index >= cards:
        raise DeviceError(f"device is {name!r}; torch can use {cards} such devices here")
    return torch.device("cuda", index)


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
