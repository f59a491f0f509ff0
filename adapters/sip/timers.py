"""Timers of a core: what is due when. Its owner has the clock, and calls ``advance``."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count


@dataclass(slots=True, eq=False)
class Timer:
    """A timer that is set."""

    run: Callable[[], None] | None

    def cancel(self) -> None:
        """Do not run it; no error if it has run."""
        self.run = None


class TimerQueue:
    """Timers, in the order of their times.

    Args:
        now: returns monotonic seconds.
        wake: called with the time of a new timer that is due before all others.
    """

    def __init__(self, now: Callable[[], float], wake: Callable[[float], None] = lambda at: None) -> None:
        self.now = now
        self._wake = wake
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = count()

    def set(self, after_s: float, run: Callable[[], None]) -> Timer:
        """Run something ``after_s`` seconds from now."""
        timer, at = Timer(run), self.now() + after_s
        heapq.heappush(self._heap, (at, next(self._numbers), timer))
        if self._heap[0][2] is timer:
            self._wake(at)
        return timer

    @property
    def next_at(self) -> float | None:
        """When the next timer is due; None: there is none."""
        while self._heap and self._heap[0][2].run is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def advance(self) -> None:
        """Run the timers that are due now, in order."""
        while (at := self.next_at) is not None and at <= self.now():
            timer = heapq.heappop(self._heap)[2]
            run, timer.run = timer.run, None
            if run is not None:
                run()
