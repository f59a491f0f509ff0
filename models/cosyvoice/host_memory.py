"""Memory of the host that can be allocated, within the limits of machine and control group. No torch."""

import os
import re
import sys
from pathlib import Path


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
