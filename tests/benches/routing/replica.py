"""A replica on a virtual clock: it renders its streams in steps, in the order of the engine's scheduler.

The stream whose listener runs dry soonest comes first; the first audio of a stream is due 0.1 s after its
arrival. A stream with a second of unplayed audio is skipped. One step renders one stream; a step that encodes
a recording or renders the first chunk is longer. Text is complete when a stream begins, and listeners play in
real time.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from vivavoce.gateway.cluster.routing import ReplicaState, StreamWork
from vivavoce.tts_engine.scheduler import FIRST_AUDIO_DUE_S

STEP_S = 0.4  # speech a step
MAX_LEAD_S = 1.0  # unplayed speech of a stream that is skipped
SHORT_LEAD_S = 0.2
ENCODE_S_PER_REFERENCE_S = 0.02  # compute seconds for a second of a recording
UNLIMITED_STREAMS = 1_000_000


@dataclass(slots=True, eq=False)
class SimulatedStream:
    """One stream; ``expected`` is its work as the router estimates it. Times are virtual seconds."""

    arrived_at: float
    work: StreamWork
    expected: StreamWork
    first_audio_at: float | None = None
    rendered_s: float = 0.0  # of speech
    dry_at: float = 0.0  # when the listener has played all of it
    has_underrun: bool = False

    def deliver(self, speech_s: float, now: float) -> None:
        """Hand rendered speech to the listener."""
        if self.first_audio_at is None:
            self.first_audio_at = now
        elif now > self.dry_at:
            self.has_underrun = True
        self.dry_at = max(now, self.dry_at) + speech_s
        self.rendered_s += speech_s

    @property
    def left_s(self) -> float:
        """Seconds of speech that are not rendered."""
        return self.work.audio_s - self.rendered_s


@dataclass(slots=True, eq=False)
class SimulatedReplica:
    """One replica with one worker."""

    id: str
    compute_s_per_audio_s: float
    is_in_order: bool = False  # renders one stream to its end before the next
    step_s: float = STEP_S
    max_lead_s: float = MAX_LEAD_S
    gateways: int = 1
    max_load: float = math.inf  # share of its time that streams may cost, above which it is full
    logged_steps_s: Iterator[float] | None = None  # how long the steps of a live replica took, in their order
    waiting: deque[SimulatedStream] = field(default_factory=deque)
    speaking: list[tuple[float, float, SimulatedStream]] = field(default_factory=list)  # heap by dry_at
    running: SimulatedStream | None = None
    step_end_at: float = 0.0

    def begin_step(self, now: float) -> float | None:
        """Begin a step unless one runs. Returns when to look again; None if there is nothing to do."""
        if self.waiting and not (self.speaking and (self.is_in_order or self._runs_dry_first())):
            self.running = self.waiting.popleft()
            self.step_end_at = now + self._taken_s(self._first_compute_s(self.running.work))
            return self.step_end_at
        if not self.speaking:
            return None
        dry_at, _, stream = self.speaking[0]
        if dry_at - now > self.max_lead_s + 1e-9 and not self.is_in_order:
            return dry_at - self.max_lead_s
        heapq.heappop(self.speaking)
        self.running = stream
        expected_s = min(self.step_s, stream.left_s) * self.compute_s_per_audio_s
        self.step_end_at = now + self._taken_s(expected_s)
        return self.step_end_at

    def _taken_s(self, expected_s: float) -> float:
        return expected_s if self.logged_steps_s is None else next(self.logged_steps_s)

    def _runs_dry_first(self) -> bool:
        """Whether a listener runs dry before the first audio of the longest waiting stream is due."""
        dry_at, *_ = self.speaking[0]
        return dry_at < self.waiting[0].arrived_at + FIRST_AUDIO_DUE_S

    def end_step(self, now: float) -> None:
        """Deliver what the running step has rendered."""
        stream, self.running = self.running, None
        assert stream is not None
        is_first = stream.first_audio_at is None
        stream.deliver(stream.work.first_audio_s if is_first else min(self.step_s, stream.left_s), now)
        if stream.left_s > 1e-9:
            heapq.heappush(self.speaking, (stream.dry_at, stream.arrived_at, stream))

    def state(self, now: float) -> ReplicaState:
        """The report of this replica, with the work that its streams are expected to have."""
        wait_s = sum(self._delay_s(stream.expected) for stream in self.waiting)
        if self.running is not None:
            wait_s += self.step_end_at - now
        speaking = [stream for _, _, stream in self.speaking]
        if self.is_in_order:
            current = [*speaking, self.running] if self.running else speaking
            left_s = sum(max(0.0, each.expected.audio_s - each.rendered_s) for each in current)
            wait_s += left_s * self.compute_s_per_audio_s
        open_streams = len(self.waiting) + len(speaking) + (self.running is not None)
        short = sum(stream.dry_at - now < SHORT_LEAD_S for stream in speaking)
        return ReplicaState(
            self.id,
            open_streams,
            UNLIMITED_STREAMS,
            self.compute_s_per_audio_s,
            wait_s,
            short / len(speaking) if speaking else 0.0,
            gateways=self.gateways,
            is_full=(open_streams + 1) * self.compute_s_per_audio_s > self.max_load and open_streams > 0,
            is_in_order=self.is_in_order,
        )

    def _delay_s(self, work: StreamWork) -> float:
        """Compute seconds for which a waiting stream delays the next."""
        if self.is_in_order:
            return (
                self._first_compute_s(work) + (work.audio_s - work.first_audio_s) * self.compute_s_per_audio_s
            )
        return self._first_compute_s(work)

    def _first_compute_s(self, work: StreamWork) -> float:
        return work.first_audio_s * self.compute_s_per_audio_s + work.reference_s * ENCODE_S_PER_REFERENCE_S
