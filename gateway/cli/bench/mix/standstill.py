"""Times at which the whole machine stood still, as a virtual machine does that its host pauses.

``python -m vivavoce.gateway.cli.bench.mix.standstill`` watches until its input is closed, and prints one JSON
line: ``standstills``, pairs of monotonic seconds, or null where it may not watch. A thread on each core, at a
real-time priority that no program has, wakes every 10 ms. Where all of them are late at once, nothing ran.
Linux does not count such a pause as stolen time.

    core 0    | | | |           | | | |
    core 1     | | | |           | | | |
    standstill        <-------->
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

_INTERVAL_S: Final = 0.010
MIN_LATE_S: Final = 0.010  # of a wake-up that counts
_AFTER_S: Final = 0.060  # in which packets that were due go out, at most two of a call at once

Pause = tuple[float, float]  # from the time at which a thread should have woken to that at which it did


class CoreWatch(threading.Thread):
    """Notes the late wake-ups of one core. ``may_watch`` is known once ``started_watching`` is set."""

    def __init__(self, core: int) -> None:
        super().__init__(daemon=True)
        self.pauses: list[Pause] = []
        self.may_watch = False
        self.started_watching = threading.Event()
        self._core = core

    def run(self) -> None:
        """Watch for as long as the process lives."""
        try:
            os.sched_setaffinity(0, {self._core})  # 0 is this thread
            priority = os.sched_get_priority_max(os.SCHED_FIFO) - 1
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
            self.may_watch = True
        except OSError:
            return
        finally:
            self.started_watching.set()
        due = time.monotonic()
        while True:
            due += _INTERVAL_S
            time.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if now - due > MIN_LATE_S:
                self.pauses.append((due, now))
                due = now


def common_pauses(pauses_of_cores: Sequence[Sequence[Pause]]) -> list[Pause]:
    """Return the times in which every core had a pause, in order."""
    common = list(pauses_of_cores[0])
    for pauses in pauses_of_cores[1:]:
        common = [
            (max(start, other_start), min(stop, other_stop))
            for start, stop in common
            for other_start, other_stop in pauses
            if max(start, other_start) < min(stop, other_stop)
        ]
    return common


def has_standstill(standstills: Sequence[Sequence[float]], start: float, stop: float) -> bool:
    """Return whether the machine stood still between two monotonic times, or just before the first."""
    return any(begin <= stop and start <= end + _AFTER_S for begin, end in standstills)


def main() -> int:
    """Watch until the input is closed, and print the standstills."""
    watches = [CoreWatch(core) for core in sorted(os.sched_getaffinity(0))] if sys.platform == "linux" else []
    for watch in watches:
        watch.start()
    for watch in watches:
        watch.started_watching.wait()
    sys.stdin.read()
    is_known = bool(watches) and all(watch.may_watch for watch in watches)
    standstills = common_pauses([watch.pauses for watch in watches]) if is_known else None
    print(json.dumps({"standstills": standstills}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
