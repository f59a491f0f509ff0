"""Limits of the process: processor cores, and descriptors, which connections, calls and files take."""

import contextlib
import os
import resource


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open descriptors to the hard one; processes started later inherit it.

    Service managers keep the soft limit at 1,024 for programs that use select(2), which this one does not.
    """
    _, max_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_descriptors, max_descriptors))


def descriptor_limit() -> int:
    """Return how many descriptors this process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if limit == resource.RLIM_INFINITY else limit
