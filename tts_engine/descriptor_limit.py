"""The number of descriptors that a process may open: each connection, call and file takes one."""

import contextlib
import resource


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
