"""Captures of steps as graphs that are planned at load, and taken one after the other. No torch.

    at load      |first sound of a stream|                                  then streams are served
    afterwards                           |one stream|..|2 streams or more|..|5 or more|..|17 or more|

A planned step runs without a graph until it is captured, on the same shapes, so its results are the same.
Steps of sizes that streams are the first to need are planned then.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedCapture:
    """A capture that is left. min_streams: fewest streams at once that use the step."""

    name: str  # of the step, for the log
    min_streams: int
    is_for_first_sound: bool  # of a lone stream
    capture: Callable[[], None]  # may raise RuntimeError or MemoryError


class CaptureQueue:
    """Captures of one thread, those for the first sound first, then by streams; equal ones as they are given.

    Only ``min_streams`` may be read on other threads.
    """

    def __init__(self, *plans: Iterable[PlannedCapture]) -> None:
        self._left: list[PlannedCapture] = []
        self._count = 0
        self.add(*chain.from_iterable(plans))

    @property
    def min_streams(self) -> int | None:
        """Fewest streams that use the next step; None if nothing is left."""
        left = self._left[:1]  # one read, because the thread may take it meanwhile
        return left[0].min_streams if left else None

    def add(self, *planned: PlannedCapture) -> None:
        """Plan more captures."""
        self._left = sorted(
            [*self._left, *planned], key=lambda each: (not each.is_for_first_sound, each.min_streams)
        )
        self._count += len(planned)

    def capture_for_first_sound(self) -> None:
        """Capture the steps that the first sound of a lone stream takes."""
        while self._left and self._left[0].is_for_first_sound:
            self.capture_next()

    def capture_all(self) -> None:
        """Capture all that are left."""
        while self._left:
            self.capture_next()

    def capture_next(self) -> None:
        """Capture the next step; a failure is logged, and the step keeps running without a graph."""
        planned = self._left.pop(0)
        try:
            planned.capture()
        except (RuntimeError, MemoryError) as error:
            logger.warning("%s was not captured and runs without a graph: %s", planned.name, error)
        if not self._left:
            logger.info("all %d planned captures were taken", self._count)
