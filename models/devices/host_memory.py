"""Memory of the host that can be allocated, within the limits of machine and control group. No torch."""

import ctypes
import mmap
import os
import re
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def free_host_bytes() -> int:
    """Memory that can be allocated now."""
    try:
        free_kb = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        free_kb = None
    if free_kb is None:  # not Linux: half of the physical memory
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return min(1024 * int(free_kb[1]), _cgroup_free_bytes())


def _cgroup_free_bytes(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Limit of the control group less its anonymous memory; sys.maxsize without a limit.

    Source: the kernel's admin-guide/cgroup-v2, "Memory Interface Files".
    """
    try:
        limit, stat = ((group / name).read_text().strip() for name in ("memory.max", "memory.stat"))
    except OSError:
        return sys.maxsize
    # File caches do not count: the system evicts them when memory is needed.
    anonymous_bytes = dict(line.split() for line in stat.splitlines())["anon"]
    return sys.maxsize if limit == "max" else int(limit) - int(anonymous_bytes)


def release_free_heap() -> None:
    """Return memory that the process has freed to the system, where the C library is glibc."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def release_array_pages(memory: NDArray[np.float32], slots: int) -> None:
    """``release_pages`` for a contiguous array (..., W, D)."""
    release_pages(memory.ctypes.data, memory.nbytes, memory.shape[-2:], memory.itemsize, slots)


def release_pages(begin: int, total: int, buffer_shape: tuple[int, ...], item_size: int, slots: int) -> None:
    """Return the memory pages after the first ``slots`` slots of each buffer to the system, under Linux.

    begin: address. total: bytes. buffer_shape: slots and numbers a slot. The contents are lost; a page costs
    nothing until it is written again. Raises OSError if the system refuses.
    """
    slot = buffer_shape[1] * item_size
    size = buffer_shape[0] * slot
    page = mmap.PAGESIZE
    madvise = ctypes.CDLL(None, use_errno=True).madvise  # one look-up costs as much as several calls
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for buffer in range(begin, begin + total, size):
        # Only pages that lie wholly in the unused part: round its start up and its end down.
        first, last = -(-(buffer + slots * slot) // page) * page, (buffer + size) // page * page
        if first < last and madvise(first, last - first, mmap.MADV_DONTNEED):
            raise OSError(ctypes.get_errno(), "madvise")


def release_file_pages(path: Path) -> None:
    """Drop the pages of a mapped file that this process has read, under Linux; they can be read again.

    For files that are mapped to be read only.
    """
    try:
        mappings = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for mapping in mappings:
        addresses, *_, name = mapping.split(maxsplit=5)
        if name == str(path.resolve()):
            begin, end = (int(address, 16) for address in addresses.split("-"))
            madvise(begin, end - begin, mmap.MADV_DONTNEED)
