"""One utterance stream on the host: text waiting, audio promised, deadlines and counters. No tensors.

A session is shared by the loop that owns its stream (which adds text and takes audio) and by the workers
(which take turns and commit them); every access is under the engine's lock.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from .segmenter import BoundaryKind, Segment

# Silence after a segment, in seconds: what a listener takes for a comma, a full stop, a new thought.
_PAUSES_S = {
    BoundaryKind.CLAUSE: 0.12,
    BoundaryKind.SENTENCE: 0.32,
    BoundaryKind.PARAGRAPH: 0.6,
    BoundaryKind.FORCED: 0.0,
}


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """A segment waiting to be spoken, and the seconds of silence after it."""

    segment: Segment
    pause_s: float


@dataclass(slots=True, eq=False)
class Session:
    """Who set what: the stream sets text and deadline, the scheduler ``running``, the commit all else.

    first_segment_at: monotonic time of the text that completed the first segment; None before.
    unread_s: seconds of audio rendered and not yet taken by the listener.
    deadline: monotonic time at which the listener has nothing left to play; None until it says so.
    """

    slot: int
    opened_at: float
    pending: deque[PendingSegment] = field(default_factory=deque)
    current: PendingSegment | None = None
    input_ended: bool = False
    cancelled_at: float | None = None
    running: bool = False
    first_segment_at: float | None = None
    unread_s: float = 0.0
    deadline: float | None = None
    first_audio_at: float | None = None
    samples: int = 0
    chunks: int = 0

    def add(self, segment: Segment, *, now: float) -> None:
        """Queue a segment and the pause that its ending asks for."""
        self._queue(PendingSegment(segment, _PAUSES_S[segment.ending]), now)

    def add_last(self, segments: Sequence[Segment], *, now: float) -> None:
        """Queue what ends the stream: nothing follows the last segment, so no pause does."""
        for segment in segments[:-1]:
            self.add(segment, now=now)
        for segment in segments[-1:]:
            self._queue(PendingSegment(segment, 0.0), now)

    def _queue(self, segment: PendingSegment, now: float) -> None:
        self.pending.append(segment)
        if self.first_segment_at is None:
            self.first_segment_at = now

    @property
    def has_work(self) -> bool:
        """Whether there is a step to render."""
        return self.current is not None or bool(self.pending)

    @property
    def is_fully_rendered(self) -> bool:
        """Whether all text is rendered and none will come."""
        return self.input_ended and not self.has_work
