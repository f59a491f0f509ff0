"""Simulates scheduling on a virtual clock: requests arrive independently of load, their text at a language
model's pace.

Sessions and ``schedule`` are the engine's own. The clock is a number to which each step adds its modelled
cost, so an hour of load takes seconds.

Source of the method: open-loop Poisson arrivals, as "Open Versus Closed: A Cautionary Tale" (NSDI 2006) asks.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from shared.engine.simulated_backend import SimulatedBackend, words_needed
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, Stage
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment
from vivavoce.tts_engine.session import Session

SessionChooser = Callable[
    [Iterable[Session], Callable[[Session], Stage], Callable[[Stage], int], SchedulerPolicy], list[Session]
]
_UNDERRUN_S = 0.06


@dataclass(frozen=True, slots=True)
class TextStall:
    """A gap in the text of some requests."""

    every: int  # one request in this many
    after_words: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """The requests of a simulation."""

    rate: float  # requests/s
    requests: int = 1000
    words: int = 20  # in each request
    words_per_s: float = 40.0  # at which a language model writes them
    lead_s: float = 0.6  # of unplayed audio, beyond which a listener takes no more
    stall: TextStall | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _RenderedChunk:
    """A rendered chunk of audio. allowed_at: when the text that it needs was written."""

    seconds: float
    allowed_at: float


@dataclass(slots=True, eq=False)
class SimulatedListener:
    """One request and its listener. Times are seconds of the virtual clock."""

    session: Session
    arrives_at: float
    load: SimulatedLoad
    stall: TextStall | None = None
    written: int = 0  # words
    runs_dry_at: float = 0.0  # when all audio taken is played
    first_s: float | None = None  # from the text that allows the first chunk to that chunk
    gap_s: float = 0.0  # of silence while there was text to speak
    # From the text that ends a silence for lack of text to the audio, one for each such silence.
    resumed_s: list[float] = field(default_factory=list)
    waiting_chunks: list[_RenderedChunk] = field(default_factory=list)  # rendered and not taken

    @property
    def underruns(self) -> bool:
        """Whether more than 60 ms of gaps were heard in total."""
        return self.gap_s > _UNDERRUN_S

    @property
    def next_word_at(self) -> float:
        """When the language model writes the next word."""
        return self.written_at(self.written)

    def written_at(self, word: int) -> float:
        """When the language model writes a word."""
        stalled_s = self.stall.seconds if self.stall and word >= self.stall.after_words else 0.0
        return self.arrives_at + word / self.load.words_per_s + stalled_s

    @property
    def next_take_at(self) -> float:
        """When the listener takes the next chunk."""
        return self.runs_dry_at - self.load.lead_s


def simulate(
    load: SimulatedLoad, backend: SimulatedBackend, choose_sessions: SessionChooser, policy: SchedulerPolicy
) -> list[SimulatedListener]:
    """Serve the whole load; its listeners in the order of arrival."""
    return _Simulation(load, backend, choose_sessions, policy).run()


class _Simulation:
    def __init__(
        self,
        load: SimulatedLoad,
        backend: SimulatedBackend,
        choose_sessions: SessionChooser,
        policy: SchedulerPolicy,
    ) -> None:
        self._load, self._backend, self._choose, self._policy = load, backend, choose_sessions, policy
        self._now = 0.0
        self._arrivals_left = _arrivals(load)
        self._listeners: dict[Session, SimulatedListener] = {}

    def run(self) -> list[SimulatedListener]:
        listeners = []
        while self._arrivals_left or self._listeners:
            listeners += self._admit_arrivals()
            self._write_and_take()
            chosen = self._choose(self._listeners, self._stage, self._backend.max_batch_size, self._policy)
            if chosen:
                self._step(chosen)
            else:
                self._now = max(self._now, min(self._next_events()))
        return listeners

    def _stage(self, session: Session) -> Stage:
        return self._backend.stage(session.slot)

    def _admit_arrivals(self) -> list[SimulatedListener]:
        entered = []
        while (
            self._arrivals_left
            and self._arrivals_left[-1] <= self._now
            and len(self._listeners) < self._backend.slots
        ):
            arrives_at = self._arrivals_left.pop()
            slot = self._backend.open_slot(SlotRequest("silence", 1.0, 0))
            stall = self._load.stall
            stalls = stall is not None and len(self._arrivals_left) % stall.every == 0
            listener = SimulatedListener(
                Session(slot, opened_at=arrives_at), arrives_at, self._load, stall if stalls else None
            )
            self._listeners[listener.session] = listener
            entered.append(listener)
        return entered

    def _write_and_take(self) -> None:
        for listener in self._listeners.values():
            while listener.written < self._load.words and listener.next_word_at <= self._now:
                self._write(listener)
            while listener.waiting_chunks and listener.next_take_at <= self._now:
                chunk = listener.waiting_chunks.pop(0)
                listener.session.unread_s -= chunk.seconds
                self._play(listener, chunk)

    def _write(self, listener: SimulatedListener) -> None:
        at, place = listener.next_word_at, listener.written
        listener.written += 1
        last = listener.written == self._load.words
        word = SpokenWord("x", "", place, place + 1)
        ending = BoundaryKind.SENTENCE if last else BoundaryKind.CLAUSE
        listener.session.add(Segment((word,), place, place + 1, ending), now=at)
        listener.session.input_ended = last

    def _step(self, chosen: Sequence[Session]) -> None:
        self._now += self._backend.cost.of(self._stage(chosen[0]), len(chosen))
        turns = [_next_turn(session) for session in chosen]
        for session, rendered in zip(chosen, self._backend.step(0, turns), strict=True):
            assert not isinstance(rendered, Exception)
            if rendered.segment_done:
                session.current = None
            if len(rendered.samples):
                self._deliver(self._listeners[session], len(rendered.samples) / SAMPLE_RATE)
            if session.is_fully_rendered:
                self._backend.close_slot(session.slot)
                self._finish(self._listeners.pop(session))

    def _deliver(self, listener: SimulatedListener, seconds: float) -> None:
        session = listener.session
        words = words_needed(session.chunks, listener.load.words)
        chunk = _RenderedChunk(seconds, listener.written_at(words - 1))
        session.chunks += 1
        session.samples += round(seconds * SAMPLE_RATE)
        session.unread_s += seconds
        listener.waiting_chunks.append(chunk)
        if session.first_audio_at is None:
            session.first_audio_at = listener.runs_dry_at = self._now
            listener.first_s = self._now - chunk.allowed_at

    def _play(self, listener: SimulatedListener, chunk: _RenderedChunk) -> None:
        if chunk.allowed_at > listener.runs_dry_at:  # there was no text to speak until then
            listener.resumed_s.append(self._now - chunk.allowed_at)
        else:
            listener.gap_s += max(0.0, self._now - listener.runs_dry_at)
        listener.runs_dry_at = max(listener.runs_dry_at, self._now) + chunk.seconds
        listener.session.deadline = listener.runs_dry_at

    def _finish(self, listener: SimulatedListener) -> None:
        """Play the chunks that are rendered and not taken."""
        for chunk in listener.waiting_chunks:
            self._play(listener, chunk)

    def _next_events(self) -> Iterable[float]:
        for listener in self._listeners.values():
            if listener.written < self._load.words:
                yield listener.next_word_at
            if listener.waiting_chunks:
                yield listener.next_take_at
        if self._arrivals_left and len(self._listeners) < self._backend.slots:
            yield self._arrivals_left[-1]


def _arrivals(load: SimulatedLoad) -> list[float]:
    """Arrival times, latest first."""
    rng, now, times = random.Random(load.seed), 0.0, []
    for _ in range(load.requests):
        now += rng.expovariate(load.rate)
        times.append(now)
    return times[::-1]


def _next_turn(session: Session) -> SlotTurn:
    if session.current is not None:
        return SlotTurn(session.slot, None)
    session.current = session.pending.popleft()
    return SlotTurn(session.slot, session.current.segment, session.current.pause_s)


def first_come(
    sessions: Iterable[Session],
    stage_of: Callable[[Session], Stage],
    max_batch_size: Callable[[Stage], int],
    policy: SchedulerPolicy,
) -> list[Session]:
    """Serve requests in the order of arrival, each to its end, as a queue does."""
    return _same_stage(sessions, stage_of, max_batch_size, lambda session: session.opened_at)


def round_robin() -> SessionChooser:
    """Serve the session whose last step is longest ago."""
    steps = itertools.count()
    stepped_at: dict[Session, int] = {}

    def choose_sessions(
        sessions: Iterable[Session],
        stage_of: Callable[[Session], Stage],
        max_batch_size: Callable[[Stage], int],
        policy: SchedulerPolicy,
    ) -> list[Session]:
        chosen = _same_stage(sessions, stage_of, max_batch_size, lambda session: stepped_at.get(session, -1))
        stepped_at.update(dict.fromkeys(chosen, next(steps)))
        return chosen

    return choose_sessions


def _same_stage(
    sessions: Iterable[Session],
    stage_of: Callable[[Session], Stage],
    max_batch_size: Callable[[Stage], int],
    key: Callable[[Session], float],
) -> list[Session]:
    """As ``schedule``, with another order and without back-pressure."""
    runnable = [session for session in sessions if session.has_work]
    if not runnable:
        return []
    stage = stage_of(min(runnable, key=key))
    return heapq.nsmallest(
        max_batch_size(stage), (session for session in runnable if stage_of(session) is stage), key=key
    )
