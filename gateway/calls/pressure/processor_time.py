"""Processor time as Linux counts it: of the machine, of processes, and what a control group may use.

Source: proc(5), ``/proc/stat``, ``/proc/PID/stat`` and ``/proc/self/cgroup``; cgroups(7), ``cpu.max``.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ....tts_engine.process_limits import available_cores

_COUNTERS: Final = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class MachineTime:
    """Processor seconds since the machine started.

    busy_s: of all programs. stolen_s: that this virtual machine wanted and did not get.
    """

    busy_s: float
    stolen_s: float

    @classmethod
    def read(cls, cores: Iterable[int] | None = None, counters: Path = _COUNTERS) -> Self:
        """Read the counters of some cores, None: of all; zeros without /proc."""
        try:
            rows = [line.split() for line in counters.read_text(encoding="ascii").splitlines()]
        except OSError:
            return cls(0.0, 0.0)
        names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
        counted = [list(map(int, row[1:])) for row in rows if row[0] in names]
        # user, nice, system, irq, softirq
        busy_ticks = sum(row[field] for row in counted for field in (0, 1, 2, 5, 6))
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        return cls(busy_ticks * tick_s, sum(row[7] for row in counted) * tick_s)


def process_s(pid: int) -> float:
    """Return the processor seconds of a process; 0 if it has ended, and without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """Processor seconds used so far.

    own_s: by this server. machine_s: by all programs on its cores, and by the host, which withheld them.
    """

    own_s: float
    machine_s: float

    @classmethod
    def read(cls, pids: Iterable[int] = (), counters: Path = _COUNTERS) -> Self:
        """Read the counters; pids: processes of this server beside this one.

        Without ``/proc``, only the time of this process is known.
        """
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        machine = MachineTime.read(cores, counters)
        return cls(time.process_time() + sum(map(process_s, pids)), machine.busy_s + machine.stolen_s)


@dataclass(frozen=True, slots=True)
class ProcessorQuota:
    """The cores that this process may use. is_shared: with other programs; else they are its own quota."""

    cores: float
    is_shared: bool

    @classmethod
    def of_process(cls, groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Self:
        """Read the affinity, and the quotas of the control group and of those above it."""
        cores = available_cores()
        try:
            path = own.read_text(encoding="utf-8").rpartition("::/")[2].strip()
        except OSError:
            path = ""
        folders = (groups / path, *(groups / path).parents)
        quota = min(_quota(folder) for folder in folders if folder.is_relative_to(groups))
        return cls(min(cores, quota), is_shared=quota >= cores)


def _quota(folder: Path) -> float:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    except OSError:
        return float("inf")
    return float("inf") if quota == "max" else int(quota) / int(period)
