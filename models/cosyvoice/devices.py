"""Where the networks compute, and the way of numbers there and back. One graphics card at most.

What a session is, how far it is and which id it said is known on the host; what is computed stays on the
device. So a step takes a few numbers there and gives a few back, each through memory that the card can read
and write by itself (pinned): the way there is not waited for, and the way back is waited for once a step.

    host      ids, places, draws ->|                                 |-> ids, samples
    device                         |embed, layers, head, choice, mel |

On a CPU both are nothing.

Source: ``torch.cuda`` on pinned memory and asynchronous copies.
"""

import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

CPU = torch.device("cpu")


class DeviceError(ValueError):
    """A device that is not known, or that this machine does not have."""


def find_device(name: str) -> torch.device:
    """``auto`` (the first card that torch can use, else the CPU), ``cpu``, ``cuda`` or ``cuda:1``.

    Raises DeviceError.
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


def card_name(device: torch.device) -> str:
    """What the card calls itself; empty for a CPU."""
    return "" if device.type == "cpu" else torch.cuda.get_device_name(device)


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """The same numbers there; they may be under way still, but what is computed with them waits."""
    if device.type == "cpu":
        return host
    return as_pinned(host).to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Tensor:
    """The same numbers here, once everything before has been computed; nothing else ever waits for that."""
    if tensor.device.type == "cpu":
        return tensor
    return new_pinned(tensor.shape, tensor.dtype).copy_(tensor)


def new_pinned(shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Room that a card reads and writes by itself, where there is a card."""
    return torch.empty(shape, dtype=dtype, pin_memory=torch.cuda.is_available())


def as_pinned(host: Tensor) -> Tensor:
    """The same numbers where a card can read them by itself."""
    return host.pin_memory() if torch.cuda.is_available() else host


def separate_stream(device: torch.device) -> AbstractContextManager[object]:
    """To be entered by a thread, again and again: what it computes there waits for no other thread's.

    What is there already may be used. Nothing on a CPU, where each thread computes by itself.
    """
    if device.type != "cuda":
        return nullcontext()
    torch.cuda.synchronize(device)
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def free_bytes(device: torch.device) -> int:
    """Memory that can be had there now; of the host, what its machine and its control group leave."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        free_kb = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        free_kb = None
    if free_kb is None:  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return min(1024 * int(free_kb[1]), _cgroup_free_bytes())


def _cgroup_free_bytes(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Source: the kernel's admin-guide/cgroup-v2, "Memory Interface Files"."""
    try:
        limit, stat = ((group / name).read_text().strip() for name in ("memory.max", "memory.stat"))
    except OSError:
        return sys.maxsize
    anonymous_bytes = dict(line.split() for line in stat.splitlines())["anon"]  # caches of files give way
    return sys.maxsize if limit == "max" else int(limit) - int(anonymous_bytes)
