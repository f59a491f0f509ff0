"""Resources of this process, which tests and benches compare to find leaks."""

import asyncio
import ctypes
import gc
import os
import threading
from dataclasses import dataclass


class _AllocatorInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc's malloc.h."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
        *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
    )]  # fmt: skip


def allocated_mb() -> float:
    """Memory that glibc's allocator has given to this process and not got back, MB."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _AllocatorInfo
    info = libc.mallinfo2()
    return float(info.uordblks + info.hblkhd) / 1e6


@dataclass(frozen=True, slots=True)
class ProcessFootprint:
    """Resources of this process."""

    tasks: int
    files: int
    threads: int
    resident_mb: float

    @classmethod
    def now(cls) -> "ProcessFootprint":
        """Count after a garbage collection; without the executor's threads, which never end."""
        gc.collect()
        threads = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        return cls(
            tasks=len(asyncio.all_tasks()),
            files=len(os.listdir("/proc/self/fd")),
            threads=len(threads),
            resident_mb=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        )

    def is_at_most(self, other: "ProcessFootprint") -> bool:
        """Whether tasks, files and threads are no more than those of ``other``; memory is not compared."""
        return self.tasks <= other.tasks and self.files <= other.files and self.threads <= other.threads
