"""One utterance on the host: pending segments, unread audio, deadlines and counters. No tensors.

The loop that owns the stream adds text and takes audio; the workers take turns and commit results. Every
access is under the engine's lock.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .reading.pauses import usual_pause_s
from .reading.pronunciation.lexicon import Pronunciation
from .segmenter import Segment

# Text that is pushed, its pronunciation, the pause after it in seconds, and the monotonic time. A plain
# tuple: a document may have tens of thousands of them, and garbage collections skip tuples of such values.
TextInput = tuple[str, Pronunciation | None, float | None, float]


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """A segment that waits to be rendered, and the silence after it in seconds."""

    segment: Segment
    pause_s: float
    pause_is_asked_for: bool = False  # else it is the usual one for the segment's ending


@dataclass(slots=True, eq=False, weakref_slot=True)
class Session:
    """The state of one utterance. Times are ``time.monotonic()`` in seconds."""

    slot: int  # of the backend
    opened_at: float
    speed: float = 1.0  # of the stream

    # Set by the stream and the reader of its text
    inputs: deque[Iterator[None] | TextInput] = field(default_factory=deque)  # the first may be read in part
    pending: deque[PendingSegment] = field(default_factory=deque)
    input_ended: bool = False  # all text is read and no more will come
    cancelled_at: float | None = None
    silence_s: float = 0.0  # asked for after the segment that is rendered now, or before the first one
    first_segment_at: float | None = None  # when the text of the first segment was complete
    deadline: float | None = None  # when the listener has played all it took; None until it reports that

    # Set by the engine's scheduling and commit
    current: PendingSegment | None = None  # the segment being rendered
    usual_pause_s: float = 0.0  # after the segment begun last; 0 when an asked one has taken its place
    running: bool = False  # in a step
    first_audio_at: float | None = None
    unread_s: float = 0.0  # seconds of audio rendered and not taken by the listener
    samples: int = 0  # rendered so far, counted at 24 kHz
    inserted_samples: int = 0  # of them, silence that the backend did not render
    chunks: int = 0

    def add(self, segment: Segment, *, now: float) -> None:
        """Queue a segment with the pause after it, which is shorter the faster the segment is."""
        pause_s = usual_pause_s(segment.ending, segment.speed_in(self.speed), segment.pause_share)
        self._queue(PendingSegment(segment, pause_s), now)

    def add_last(self, segments: Sequence[Segment], *, now: float) -> None:
        """Queue the last segments of the stream, without a pause after the very last one."""
        for segment in segments[:-1]:
            self.add(segment, now=now)
        for segment in segments[-1:]:
            self._queue(PendingSegment(segment, 0.0), now)

    def pause(self, seconds: float) -> None:
        """Put silence after the text so far, instead of the usual pause; pauses at one place add up."""
        if self.cancelled_at is not None:
            return
        if self.pending:
            last = self.pending[-1]
            asked_s = last.pause_s if last.pause_is_asked_for else 0.0
            self.pending[-1] = PendingSegment(last.segment, asked_s + seconds, pause_is_asked_for=True)
        else:
            self.silence_s += max(0.0, seconds - self.usual_pause_s)
            self.usual_pause_s = 0.0

    def begin_next(self) -> PendingSegment:
        """Take the next segment to be rendered."""
        self.current = self.pending.popleft()
        self.usual_pause_s = 0.0 if self.current.pause_is_asked_for else self.current.pause_s
        return self.current

    def take_silence(self) -> float:
        """Return the seconds of silence that are due now, and forget them."""
        if self.running or self.current is not None:
            return 0.0
        silence_s, self.silence_s = self.silence_s, 0.0
        return silence_s

    def drop_text(self) -> None:
        """Drop what is not rendered yet."""
        self.inputs.clear()
        self.pending.clear()
        self.silence_s = 0.0

    def _queue(self, segment: PendingSegment, now: float) -> None:
        if self.cancelled_at is not None:  # while the text was read
            return
        self.pending.append(segment)
        if self.first_segment_at is None:
            self.first_segment_at = now

    @property
    def has_work(self) -> bool:
        """Whether a segment or silence waits, or is being rendered."""
        return self.current is not None or bool(self.pending) or self.silence_s > 0.0

    @property
    def is_fully_rendered(self) -> bool:
        """Whether all text is rendered and no more will come."""
        return self.input_ended and not self.has_work
