"""Times at which a core of the machine stood still, as those of a virtual machine do that its host pauses.

``python -m benches.mix.standstill`` watches until its input is closed, and prints one
JSON line: ``standstills``, pairs of monotonic seconds, or null where it may not watch. A process on each
core, at a real-time priority that no program has, wakes every 10 ms. Where it is late, no program ran on
that core, and what had begun there waited. Linux does not count such a pause as stolen time.

    wake-ups    | | | |           | | | |
    standstill         <-------->
"""

import ctypes
import json
import multiprocessing
import os
import select
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

_INTERVAL_S: Final = 0.010
_LOCK_ALL: Final = 3  # MCL_CURRENT | MCL_FUTURE of mman.h
_MIN_LATE_S: Final = 0.010  # of a wake-up that counts
_AFTER_S: Final = 0.060  # in which packets that were due go out, at most two of a call at once

Standstill = tuple[float, float]  # from the time at which a process should have woken to that at which it did


def watch_core(core: int, stop: int) -> list[Standstill] | None:
    """Return the late wake-ups of one core until descriptor ``stop`` is readable; None: it may not watch."""
    try:
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO) - 1))
    except OSError:
        return None
    ctypes.CDLL(None).mlockall(_LOCK_ALL)  # so that no page of this process has to be read again
    standstills: list[Standstill] = []
    due = time.monotonic()
    while True:
        due += _INTERVAL_S
        if select.select([stop], [], [], max(0.0, due - time.monotonic()))[0]:
            return standstills
        now = time.monotonic()
        if now - due > _MIN_LATE_S:
            standstills.append((due, now))
            due = now


def has_standstill(standstills: Sequence[Sequence[float]], start: float, stop: float) -> bool:
    """Return whether a core stood still between two monotonic times, or just before the first."""
    return any(begin <= stop and start <= end + _AFTER_S for begin, end in standstills)


def main() -> int:
    """Watch until the input is closed, and print the standstills."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    stop, stop_writer = os.pipe()  # inherited by the processes
    with ProcessPoolExecutor(max(1, len(cores)), multiprocessing.get_context("fork")) as processes:
        watches = [processes.submit(watch_core, core, stop) for core in cores]
        sys.stdin.read()
        os.write(stop_writer, b"\0")
        found = [watch.result() for watch in watches]
    watched = [each for each in found if each is not None]
    is_known = bool(watched) and len(watched) == len(found)
    standstills = sorted(standstill for each in watched for standstill in each) if is_known else None
    print(json.dumps({"standstills": standstills}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
