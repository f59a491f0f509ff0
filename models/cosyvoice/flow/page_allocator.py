"""TODO."""

from collections import Counter, deque
from collections.abc import Iterable


class PageAllocator:
    """Which places of a pool are taken; the first is nobody's. Places may have several users."""

    def __init__(self, count: int, item_name: str) -> None:
        self._free = deque(range(1, count))
        self._count, self._item_name = count - 1, item_name
        self._user_counts: Counter[int] = Counter()
        self._released: deque[Iterable[int]] = deque()

    @property
    def free(self) -> int:
        """Places to be had."""
        self._apply_releases()
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """So many places that nobody uses; raises MemoryError, with nothing taken."""
        self._apply_releases()
        if count > len(self._free):
            raise MemoryError(
                f"out of memory: {count} of {self._count} {self._item_name} wanted, {self.free} free"
            )
        return self.share([self._free.popleft() for _ in range(count)])

    def share(self, places: list[int]) -> list[int]:
        """Use places that another user has."""
        self._user_counts.update(places)
        return places

    def release(self, places: Iterable[int]) -> None:
        """Use them no more; from any thread, and looked at with the next ``take``."""
        self._released.append(places)

    def _apply_releases(self) -> None:
        while self._released:
            for place in self._released.popleft():
                self._user_counts[place] -= 1
                if not self._user_counts[place]:
                    self._free.append(place)
