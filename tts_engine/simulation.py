"""Scheduling on a virtual clock: requests that arrive whatever happens, text at the pace of a language model.

The sessions and ``schedule`` are the engine's own; the clock is a number, and a step adds what its cost model
says. Nothing is spoken and nobody waits, so an hour of load takes seconds.

Source of the method: open-loop Poisson arrivals, as "Open Versus Closed: A Cautionary Tale" (NSDI 2006) asks.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .backend import SlotRequest, Stage, Turn
from .chunk import SAMPLE_RATE
from .reading.normalize import SpokenWord
from .scheduler import SchedulerPolicy
from .session import Session
from .simulated_backend import SimulatedBackend
from .text import Ending, Segment

Choose = Callable[
    [Iterable[Session], Callable[[Session], Stage], Callable[[Stage], int], SchedulerPolicy], list[Session]
]
_UNDERRUN_S = 0.06


@dataclass(frozen=True, slots=True)
class Load:
    """What comes in.

    rate: requests a second. words: of each. words_per_s: as a language model writes them. lead_s: unplayed
    audio at which a listener takes no more.
    """

    rate: float
    requests: int = 1000
    words: int = 20
    words_per_s: float = 40.0
    lead_s: float = 0.6
    seed: int = 0


@dataclass(slots=True, eq=False)
class Listener:
    """One request.

    first_s: seconds from the text that allows the first piece to that piece. gap_s: of nothing, heard inside
    speech.
    """

    session: Session
    arrives_at: float
    load: Load
    written: int = 0
    runs_dry_at: float = 0.0
    first_s: float | None = None
    gap_s: float = 0.0
    untaken_s: list[float] = field(default_factory=list)

    @property
    def underruns(self) -> bool:
        """Whether over 60 ms of nothing were heard at once or in all."""
        return self.gap_s > _UNDERRUN_S

    @property
    def next_word_at(self) -> float:
        """When the language model writes the next word."""
        return self.arrives_at + self.written / self.load.words_per_s

    @property
    def takes_at(self) -> float:
        """When there is room for what is rendered and not taken."""
        return self.runs_dry_at - self.load.lead_s


def simulate(
    load: Load, backend: SimulatedBackend, choose: Choose, policy: SchedulerPolicy
) -> list[Listener]:
    """Serve the load to its end; the listeners in the order of their arrival."""
    return _Simulation(load, backend, choose, policy).run()


class _Simulation:
    def __init__(
        self, load: Load, backend: SimulatedBackend, choose: Choose, policy: SchedulerPolicy
    ) -> None:
        self._load, self._backend, self._choose, self._policy = load, backend, choose, policy
        self._now = 0.0
        self._coming = _arrivals(load)
        self._live: dict[Session, Listener] = {}

    def run(self) -> list[Listener]:
        listeners = []
        while self._coming or self._live:
            listeners += self._let_in()
            self._write_and_take()
            chosen = self._choose(self._live, self._stage, self._backend.batch, self._policy)
            if chosen:
                self._step(chosen)
            else:
                self._now = max(self._now, min(self._next_events()))
        return listeners

    def _stage(self, session: Session) -> Stage:
        return self._backend.stage(session.slot)

    def _let_in(self) -> list[Listener]:
        entered = []
        while self._coming and self._coming[-1] <= self._now and len(self._live) < self._backend.slots:
            arrives_at = self._coming.pop()
            slot = self._backend.open_slot(SlotRequest("silence", 1.0, 0))
            listener = Listener(Session(slot, opened_at=arrives_at), arrives_at, self._load)
            self._live[listener.session] = listener
            entered.append(listener)
        return entered

    def _write_and_take(self) -> None:
        for listener in self._live.values():
            while listener.written < self._load.words and listener.next_word_at <= self._now:
                self._write(listener)
            while listener.untaken_s and listener.takes_at <= self._now:
                seconds = listener.untaken_s.pop(0)
                listener.session.unread_s -= seconds
                self._play(listener, seconds)

    def _write(self, listener: Listener) -> None:
        at, place = listener.next_word_at, listener.written
        listener.written += 1
        last = listener.written == self._load.words
        word = SpokenWord("x", "", place, place + 1)
        ending = Ending.SENTENCE if last else Ending.CLAUSE
        listener.session.add(Segment((word,), place, place + 1, ending), now=at)
        listener.session.input_ended = last

    def _step(self, chosen: Sequence[Session]) -> None:
        self._now += self._backend.cost.of(self._stage(chosen[0]), len(chosen))
        turns = [_turn(session) for session in chosen]
        for session, rendered in zip(chosen, self._backend.step(0, turns), strict=True):
            assert not isinstance(rendered, Exception)
            if rendered.segment_done:
                session.current = None
            if len(rendered.samples):
                self._hear(self._live[session], len(rendered.samples) / SAMPLE_RATE)
            if session.spoken_out:
                self._backend.close_slot(session.slot)
                self._finish(self._live.pop(session))

    def _hear(self, listener: Listener, seconds: float) -> None:
        session = listener.session
        session.samples += round(seconds * SAMPLE_RATE)
        session.unread_s += seconds
        listener.untaken_s.append(seconds)
        if session.first_audio_at is None:
            session.first_audio_at = listener.runs_dry_at = self._now
            listener.first_s = self._now - (listener.arrives_at + _WORDS_FOR_SOUND / self._load.words_per_s)

    def _play(self, listener: Listener, seconds: float) -> None:
        late_s = self._now - listener.runs_dry_at
        listener.gap_s += max(0.0, late_s)
        listener.runs_dry_at = max(listener.runs_dry_at, self._now) + seconds
        listener.session.deadline = listener.runs_dry_at

    def _finish(self, listener: Listener) -> None:
        """All is rendered; what is not taken yet is played without a gap, as far as it is there in time."""
        for seconds in listener.untaken_s:
            self._play(listener, seconds)

    def _next_events(self) -> Iterable[float]:
        for listener in self._live.values():
            if listener.written < self._load.words:
                yield listener.next_word_at
            if listener.untaken_s:
                yield listener.takes_at
        if self._coming and len(self._live) < self._backend.slots:
            yield self._coming[-1]


# The text that the first piece needs: 28 ids are allowed by two blocks of five words.
_WORDS_FOR_SOUND = 9


def _arrivals(load: Load) -> list[float]:
    """Times of arrival, the last one first."""
    rng, now, times = random.Random(load.seed), 0.0, []
    for _ in range(load.requests):
        now += rng.expovariate(load.rate)
        times.append(now)
    return times[::-1]


def _turn(session: Session) -> Turn:
    if session.current is not None:
        return Turn(session.slot, None)
    session.current = session.pending.popleft()
    return Turn(session.slot, session.current.segment, session.current.pause_s)


def first_come(
    sessions: Iterable[Session],
    stage_of: Callable[[Session], Stage],
    batch: Callable[[Stage], int],
    policy: SchedulerPolicy,
) -> list[Session]:
    """Who came first is served first, to the end: what a queue of requests does."""
    return _together(sessions, stage_of, batch, lambda session: session.opened_at)


def round_robin() -> Choose:
    """Everyone in turn: who has waited longest since its last step."""
    steps = itertools.count()
    stepped_at: dict[Session, int] = {}

    def choose(
        sessions: Iterable[Session],
        stage_of: Callable[[Session], Stage],
        batch: Callable[[Stage], int],
        policy: SchedulerPolicy,
    ) -> list[Session]:
        chosen = _together(sessions, stage_of, batch, lambda session: stepped_at.get(session, -1))
        stepped_at.update(dict.fromkeys(chosen, next(steps)))
        return chosen

    return choose


def _together(
    sessions: Iterable[Session],
    stage_of: Callable[[Session], Stage],
    batch: Callable[[Stage], int],
    key: Callable[[Session], float],
) -> list[Session]:
    """As ``schedule``, by another order, and without back-pressure."""
    runnable = [session for session in sessions if session.has_work]
    if not runnable:
        return []
    stage = stage_of(min(runnable, key=key))
    return heapq.nsmallest(
        batch(stage), (session for session in runnable if stage_of(session) is stage), key=key
    )
