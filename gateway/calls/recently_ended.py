"""Values of calls that are kept for a while after their end, such as results."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

KEPT_S: Final = 600.0  # after the end of the call
MAX_KEPT: Final = 10_000

T = TypeVar("T")


class RecentlyEnded(Generic[T]):
    """Values by call id, of calls that ended within the last 10 minutes, 10,000 calls at most."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[str, tuple[float, T]] = {}  # with when each expires; oldest first

    def add(self, call_id: str, value: T) -> None:
        """Keep what is known of a call that ended; an earlier one of the same id is forgotten."""
        now = self._now()
        self._kept.pop(call_id, None)
        self._kept[call_id] = (now + KEPT_S, value)
        while len(self._kept) > MAX_KEPT or next(iter(self._kept.values()))[0] <= now:
            del self._kept[next(iter(self._kept))]

    def get(self, call_id: str) -> T | None:
        """Return what is kept of a call; None if no call of that id has ended lately."""
        expires_at, value = self._kept.get(call_id, (0.0, None))
        return value if expires_at > self._now() else None
