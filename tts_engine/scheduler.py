"""Decides which sessions are rendered next, and whether one more stream is admitted. Pure functions of
sessions.

Order: by the time at which the listener runs out of audio. Before its first audio, a session is due 0.1 s
after its first segment, so that it comes before all listeners but those who would hear a hole first. The
first session decides the stage of the step; the most urgent sessions in the same stage share it. A session
with ``max_unread_s`` of unread audio is skipped (back-pressure), and a worker that runs some stages only
skips sessions in other stages.

Admission compares the measured compute cost of the open streams with a limit. Alternatives to the order were
simulated and rejected: see ``tests/benches/schedule.py``.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from .backends.base import ALL_STAGES, Stage, Stages
from .chunk import SAMPLE_RATE
from .errors import Overloaded
from .session import Session

FIRST_AUDIO_DUE_S = 0.1  # after the first segment
_DEVICE_RETRY_S = 30.0  # a server or a replica that is started again loads its bundle first
_MAX_CONTENTION = 3.0  # wall time of a step over its processor time that counts as its cost


@dataclass(frozen=True, slots=True)
class SchedulerPolicy:
    """Limits of scheduling and admission."""

    max_unread_s: float = 1.0  # audio rendered ahead of a listener that does not take it; about five steps
    max_streams: int = 256  # open at once
    max_load: float = 0.95  # share of the workers' time that open streams may cost, for a new one
    max_ongoing_load: float = 1.0  # the same for the next utterance of a call that was admitted


class Admission(Enum):
    """What a stream is for. A call that is up is heard before a new one is admitted."""

    NEW = "new"  # a request or a call that can come again
    ONGOING = "ongoing"  # the next utterance of a call that is up
    OVERDUE = "overdue"  # the same after a wait: it is spoken whatever it costs


def schedule(
    sessions: Iterable[Session],
    stage_of: Callable[[Session], Stage],
    max_batch_size: Callable[[Stage], int],
    policy: SchedulerPolicy,
    stages: Stages = ALL_STAGES,
) -> list[Session]:
    """The sessions of the next step, all in one stage, the most urgent first.

    max_batch_size: sessions in a step, by stage. stages: the stages that the worker runs.
    """
    # This filter runs over every session before every step, so it makes no calls.
    max_unread_s = policy.max_unread_s
    runnable = [
        session
        for session in sessions
        if not session.running
        and session.unread_s < max_unread_s
        and (session.pending or session.current is not None)
        and session.cancelled_at is None
    ]
    if stages is not ALL_STAGES:
        runnable = [session for session in runnable if stage_of(session) in stages]
    if not runnable:
        return []
    first = min(runnable, key=urgency)
    stage = stage_of(first)
    max_count = max_batch_size(stage)
    if max_count == 1:
        return [first]
    same_stage = (session for session in runnable if stage_of(session) is stage)
    return heapq.nsmallest(max_count, same_stage, key=urgency)


def can_pause(sessions: Iterable[Session], until: float) -> bool:
    """Whether a worker may pause until then, monotonic s: no listener waits for first audio or runs dry."""
    return all(_can_wait(session, until) for session in sessions)


def _can_wait(session: Session, until: float) -> bool:
    if session.cancelled_at is not None or not (session.has_work or session.inputs):
        return True
    dry_at = runs_dry_at(session)
    return dry_at is not None and dry_at > until


def urgency(session: Session) -> float:
    """When the next audio is due, monotonic s: smaller is more urgent."""
    dry_at = runs_dry_at(session)
    if dry_at is None:
        return (session.first_segment_at or session.opened_at) + FIRST_AUDIO_DUE_S
    return dry_at


def runs_dry_at(session: Session) -> float | None:
    """When the listener will have heard all audio rendered so far, monotonic s; None before the first."""
    if session.first_audio_at is None:
        return None
    if session.deadline is None:
        return session.first_audio_at + session.samples / SAMPLE_RATE
    return session.deadline + session.unread_s


def step_cost_s(wall_s: float, cpu_s: float) -> float:
    """What a step on the worker's thread has cost, seconds.

    Time that other threads and programs took from it counts, because the next step loses as much. Of a longer
    stall only a part does: it says nothing of the next step.
    """
    return max(cpu_s, min(wall_s, _MAX_CONTENTION * cpu_s))


class ComputeCost:
    """Measures the compute time for one second of audio, for ``admit``.

    An exponential average over about the last 30 s of audio, or 2 s of time if more was rendered in them.
    workers: as in ``Backend``; workers with equal stages share the cost of these.
    """

    _AVERAGING_S = 30.0  # seconds of audio
    _MIN_AVERAGING_S = 2.0  # of time: among many streams, 30 s of audio are a few steps
    _MIN_MEASURED_S = 5.0  # of audio, before the average is used

    def __init__(self, workers: Sequence[Stages] = (ALL_STAGES,)) -> None:
        self._workers_by_stages = Counter(workers)
        self._compute_s = dict.fromkeys(workers, 0.0)
        self._audio_s = self._measured_audio_s = 0.0
        self._observed_at = -math.inf  # the last audio

    def observe(self, compute_s: float, audio_s: float, now: float, stages: Stages = ALL_STAGES) -> None:
        """Add one step of a worker that runs these stages. Times are in seconds; now: monotonic."""
        elapsed_s = now - self._observed_at
        decay = max(0.0, 1.0 - min(audio_s / self._AVERAGING_S, elapsed_s / self._MIN_AVERAGING_S))
        if audio_s:
            self._observed_at = now
            self._compute_s = {each: decay * so_far for each, so_far in self._compute_s.items()}
        self._compute_s[stages] += compute_s
        self._audio_s = self._audio_s * decay + audio_s
        self._measured_audio_s += audio_s

    @property
    def compute_s_per_audio_s(self) -> float:
        """Compute seconds of the busiest worker for 1 s of audio; 0 until 5 s of audio were measured."""
        if self._measured_audio_s < self._MIN_MEASURED_S:
            return 0.0
        return (
            max(so_far / self._workers_by_stages[each] for each, so_far in self._compute_s.items())
            / self._audio_s
        )


def admit(
    open_streams: int,
    *,
    slots: int,
    memory_slots: int,
    cost: ComputeCost,
    policy: SchedulerPolicy,
    admission: Admission = Admission.NEW,
    untaken_streams: int = 0,
) -> None:
    """Raise Overloaded if one more stream does not fit.

    slots, memory_slots: the backend's. untaken_streams: rendered to their end ahead of their listeners. They
    count as load, because a call goes on with its next utterance when this one has been heard.
    """
    if not memory_slots:
        raise Overloaded(
            "nothing computes the voice now: its device failed, or no replica renders",
            reason="device",
            retry_after_s=_DEVICE_RETRY_S,
        )
    max_count = min(policy.max_streams, slots)
    if open_streams >= max_count:
        raise Overloaded(
            f"{open_streams} streams are open, at most {max_count} are allowed",
            reason="streams",
            retry_after_s=1.0,
        )
    if open_streams >= memory_slots:
        raise Overloaded(
            f"{open_streams} streams are open, memory has room for {memory_slots} now",
            reason="memory",
            retry_after_s=2.0,
        )
    if admission is Admission.OVERDUE:
        return
    load = (open_streams + untaken_streams + 1) * cost.compute_s_per_audio_s
    max_load = policy.max_load if admission is Admission.NEW else policy.max_ongoing_load
    # A machine that is too slow for real time still serves one stream at a time.
    if open_streams and load > max_load:
        raise Overloaded(
            f"one more stream would take {load:.0%} of the compute; {max_load:.0%} is allowed",
            reason="compute",
            retry_after_s=2.0,
        )
