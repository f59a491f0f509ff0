"""Allocator of places in a pool, such as pages of memory, with a user count for each place."""

from collections import Counter, deque
from collections.abc import Iterable


class PageAllocator:
    """Allocates places 1 to ``count - 1``; place 0 is reserved.

    A place is free again when its last user releases it. One thread allocates and shares; any thread may
    release, for example in a finalizer.
    """

    def __init__(self, count: int, item_name: str) -> None:
        """item_name: plural, for the error message."""
        self._free = deque(range(1, count))
        self._count, self._item_name = count - 1, item_name
        self._user_counts: Counter[int] = Counter()
        # Releases wait here, so that a finalizer in another thread cannot change the counts mid-way.
        self._released: deque[Iterable[int]] = deque()

    @property
    def free(self) -> int:
        """Number of free places."""
        self._apply_releases()
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """``count`` free places. Raises MemoryError, and allocates nothing, if there are fewer."""
        self._apply_releases()
        if count > len(self._free):
            raise MemoryError(
                f"out of memory: {count} of {self._count} {self._item_name} wanted, {self.free} free"
            )
        return self.share([self._free.popleft() for _ in range(count)])

    def share(self, places: list[int]) -> list[int]:
        """Add a user to allocated places."""
        self._user_counts.update(places)
        return places

    def release(self, places: Iterable[int]) -> None:
        """Remove a user from places. Takes effect at the next ``allocate`` or ``free``."""
        self._released.append(places)

    def _apply_releases(self) -> None:
        while self._released:
            for place in self._released.popleft():
                self._user_counts[place] -= 1
                if not self._user_counts[place]:
                    self._free.append(place)
