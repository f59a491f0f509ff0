"""Faults that callers hear, over all calls: while there are many, no further call is admitted.

Capacity is measured where it shows. The cost of speech, which the engine measures, says nothing of a machine
that other programs use, or of a sending thread that comes late. Faults of one moment are no lack of capacity:
a virtual machine that stands still for 0.1 s leaves an underrun in many calls at once.
"""

from collections import deque
from typing import Final

from ....tts_engine.errors import Overloaded

WINDOW_S: Final = 10.0
MIN_PACKETS: Final = 5_000  # ten calls in the window; with fewer, one fault is a large share
MAX_UNDERRUN_SHARE: Final = 1 / 5_000  # of the packets: an underrun in every call every 100 s
MAX_LATE_SHARE: Final = 0.02
MIN_FAULTY_SECONDS: Final = 3  # of the window; less is a machine that stood still once
_RETRY_AFTER_S: Final = 5.0


class PlayoutPressure:
    """Packets, late packets and underruns of all calls in the last 10 s. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int, int, int]] = deque()
        self._packets = self._late_packets = self._underruns = 0

    def add(self, now: float, *, packets: int, late_packets: int, underruns: int) -> None:
        """Add what one call has counted since its last report."""
        self._counts.append((now, packets, late_packets, underruns))
        self._sum(packets, late_packets, underruns)
        self._forget(now)

    def refusal(self, now: float) -> Overloaded | None:
        """Return why no call should be admitted now, or None."""
        self._forget(now)
        if self._packets < MIN_PACKETS:
            return None
        if self._underruns <= MAX_UNDERRUN_SHARE * self._packets and (
            self._late_packets <= MAX_LATE_SHARE * self._packets
        ):
            return None
        if (
            len({int(at) for at, _, late, underruns in self._counts if late or underruns})
            < MIN_FAULTY_SECONDS
        ):
            return None
        return Overloaded(
            f"callers hear faults: {self._underruns} underruns and {self._late_packets} late packets "
            f"of {self._packets} in {WINDOW_S:g} s",
            reason="playout",
            retry_after_s=_RETRY_AFTER_S,
        )

    def _forget(self, now: float) -> None:
        while self._counts and self._counts[0][0] < now - WINDOW_S:
            _, packets, late_packets, underruns = self._counts.popleft()
            self._sum(-packets, -late_packets, -underruns)

    def _sum(self, packets: int, late_packets: int, underruns: int) -> None:
        self._packets += packets
        self._late_packets += late_packets
        self._underruns += underruns
