"""Who is rendered next: pure policy over sessions, and the measured cost that decides who may enter.

Order: first the streams without audio yet, longest waiting first; then the one whose listener runs dry
soonest. The first of them decides which stage is run, and those in most need that wait for the same stage
share the step. A listener with enough unread audio is not rendered for at all (back-pressure). Where a worker
runs steps of one stage only, it looks at nobody else.

Two more were tried on the virtual clock of ``simulation``, with the costs of ``bench schedule`` and pieces of
25, 50, 50 ids, 1,000 requests from 2 or 3 seeds, and left out:

- A first piece of 50 ids where many wait. It is exact, too, but a listener waits for twice the ids, which
  costs more than fewer renderings save; and where nobody underran before, nobody can underrun less.
- One Euler step of the flow at a time, so that a newcomer waits for a tenth of a rendering. Newcomers come
  first already, and what is in the way of one is mostly other newcomers. A step more costs a round of the
  engine and the gathering of the flow's memory: 0.2 to 0.6 ms for 1 to 8 rows on a CPU.

    first audio p95, ms (listeners with an underrun)    13.6/s      17/s        20.4/s      24/s
    as it is                                            139         198         338         535 (18 %)
    50 ids first where 8 or more wait                   351         464         756         1,145 (6 %)
    50 ids first, always                                384         476         747         1,136 (5 %)
    an Euler step at a time, if it cost nothing         144         197         344         535 (18 %)
    an Euler step at a time, 0.3 ms each                164         251         474 (2 %)   616 (66 %)

At 24 requests a second the house is overloaded, and all that can be chosen is who suffers.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .backends.base import ALL_STAGES, Stage, Stages
from .chunk import SAMPLE_RATE
from .errors import Overloaded
from .session import Session


@dataclass(frozen=True, slots=True)
class SchedulerPolicy:
    """Limits of the house.

    max_unread_s: audio rendered ahead of a listener that does not take it; about five steps.
    max_streams: open at once. max_load: share of the workers' time that open streams may cost.
    """

    max_unread_s: float = 1.0
    max_streams: int = 256
    max_load: float = 0.85


def schedule(
    sessions: Iterable[Session],
    stage_of: Callable[[Session], Stage],
    max_batch_size: Callable[[Stage], int],
    policy: SchedulerPolicy,
    stages: Stages = ALL_STAGES,
) -> list[Session]:
    """The sessions to step next, all in one stage, most urgent first.

    batch: how many a stage takes. stages: that the worker runs steps of.
    """
    # Run before every step over every session: no calls in it.
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
    first = min(runnable, key=_urgency)
    stage = stage_of(first)
    max_count = max_batch_size(stage)
    if max_count == 1:
        return [first]
    same_stage = (session for session in runnable if stage_of(session) is stage)
    return heapq.nsmallest(max_count, same_stage, key=_urgency)


def _urgency(session: Session) -> tuple[bool, float]:
    """Sorts before others that can wait longer."""
    if session.first_audio_at is None:
        return False, session.first_segment_at or session.opened_at
    if session.deadline is None:
        return True, session.first_audio_at + session.samples / SAMPLE_RATE
    return True, session.deadline + session.unread_s


class ComputeCost:
    """Compute seconds for a second of audio, measured; decides whether one more stream fits.

    An exponential average over about the last 30 s of audio; processor time where the backend runs on the
    worker's thread, so that a noisy neighbour on the machine does not close the house. workers: as of a
    backend; those of the same stages share what these cost.
    """

    _AVERAGING_S = 30.0
    _MIN_MEASURED_S = 5.0

    def __init__(self, workers: Sequence[Stages] = (ALL_STAGES,)) -> None:
        self._workers_by_stages = Counter(workers)
        self._compute_s = dict.fromkeys(workers, 0.0)
        self._audio_s = self._measured_audio_s = 0.0

    def observe(self, compute_s: float, audio_s: float, stages: Stages = ALL_STAGES) -> None:
        """Add one step of a worker of these stages."""
        decay = max(0.0, 1.0 - audio_s / self._AVERAGING_S)
        if audio_s:
            self._compute_s = {each: decay * so_far for each, so_far in self._compute_s.items()}
        self._compute_s[stages] += compute_s
        self._audio_s = self._audio_s * decay + audio_s
        self._measured_audio_s += audio_s

    @property
    def compute_s_per_audio_s(self) -> float:
        """Of the worker that has most to do: its seconds a second of audio; 0 until 5 s were measured."""
        if self._measured_audio_s < self._MIN_MEASURED_S:
            return 0.0
        return (
            max(so_far / self._workers_by_stages[each] for each, so_far in self._compute_s.items())
            / self._audio_s
        )


def admit(
    open_streams: int, *, slots: int, memory_slots: int, cost: ComputeCost, policy: SchedulerPolicy
) -> None:
    """Raise Overloaded if one more stream does not fit; slots, room: as of a backend."""
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
    load = (open_streams + 1) * cost.compute_s_per_audio_s
    # A machine that is too slow for one stream still speaks to a listener who waits, one at a time.
    if open_streams and load > policy.max_load:
        raise Overloaded(
            f"one more stream would take {load:.0%} of the compute; {policy.max_load:.0%} is allowed",
            reason="compute",
            retry_after_s=2.0,
        )
