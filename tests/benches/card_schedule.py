"""Streams of CosyVoice on a card, on a virtual clock: first audio and underruns with given costs of steps.

The order is ``scheduler.schedule``, as in the engine. One worker decodes and one renders, at the same time;
a step of the flow is a few Euler steps of up to eight rows, at whichever each row is, so that a new stream
joins the next one. Requests arrive at random (Poisson, open loop), each with its whole text.

    ids of a chunk     17 | 25 | 50 | 50 ...
    sound, s           0.16 | 1 | 2 | 2 ...        of version 2, with a voice that is prepared
"""

import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.backends.base import Stage
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.scheduler import SchedulerPolicy, schedule
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment
from vivavoce.tts_engine.session import Session

SPEECH_S = 8.0  # of each request
IDS_PER_S = 25
EULER_STEPS = 10  # of a chunk
ROWS = {Stage.DECODE: 32, Stage.RENDER: 8}
LEAD_S = 0.6  # of unplayed audio, beyond which a listener takes no more
_UNDERRUN_S = 0.06


@dataclass(frozen=True, slots=True)
class CardCosts:
    """Costs in seconds: of a step, and what each row adds."""

    token_s: float
    token_row_s: float
    euler_s: float  # with its share of the encoder
    euler_row_s: float
    vocoder_s: float
    vocoder_row_s: float
    turn_s: float = 0.001  # of the host, for each step of the engine
    prefill_s: float = 0.002  # of a request's text
    ids_per_step: int = 4  # as the policy has it
    euler_steps: int = 2  # in a step of the engine


# An H200 before the kernels had several phases (README of models/cosyvoice): a token, chunks of 1, 4 and 16
# streams, the vocoder of one and of four.
MEASURED = CardCosts(0.00119, 0.00002, 0.0032, 0.00043, 0.0021, 0.0016)
# Assumed for the kernels of several phases: half of the time of a step was launches, and a token is to take
# 0.45 ms. No card has run them.
ASSUMED = CardCosts(0.00045, 0.00001, 0.0014, 0.00043, 0.0011, 0.0008)


@dataclass(slots=True, eq=False)
class CardStream:
    """One request: its session in the engine, and how far it is."""

    session: Session
    arrived_at: float
    has_text: bool = False
    ids: int = 0
    chunks: int = 0
    euler_steps: int = 0  # taken of the chunk that is rendered
    dry_at: float = 0.0  # when all that is rendered is played
    gap_s: float = 0.0  # of silence in the middle

    @property
    def hop(self) -> int:
        """New ids that the next chunk's sound takes."""
        return (14, 25)[self.chunks] if self.chunks < 2 else 50

    @property
    def rendered_ids(self) -> int:
        """Ids whose chunks are rendered."""
        return 0 if not self.chunks else 14 + 25 * (self.chunks > 1) + 50 * max(0, self.chunks - 2)

    @property
    def total_ids(self) -> int:
        """Ids of the whole request."""
        return round(SPEECH_S * IDS_PER_S)

    @property
    def stage(self) -> Stage:
        """RENDER if the ids of the next chunk are complete, with three of lookahead."""
        needed = min(self.total_ids, self.rendered_ids + self.hop + 3)
        return Stage.RENDER if self.ids >= needed else Stage.DECODE

    @property
    def is_done(self) -> bool:
        """Whether everything is rendered."""
        return self.rendered_ids >= self.total_ids


def measure(streams: int = 32, *, requests: int = 600, seed: int = 0) -> BenchReport:
    """Simulate so many streams that speak at once, on average."""
    figures: list[BenchFigure] = []
    for name, costs in {"measured costs": MEASURED, "assumed costs": ASSUMED}.items():
        figures += _figures(name, simulate(costs, streams, requests=requests, seed=seed))
    return BenchReport(
        "card-schedule", tuple(figures), {"streams": streams, "requests": requests, "seed": seed}
    )


def _figures(name: str, streams: list[CardStream]) -> Iterator[BenchFigure]:
    first_s = [1000 * ((each.session.first_audio_at or 0) - each.arrived_at) for each in streams]
    percentiles = statistics.quantiles(first_s, n=20)
    yield BenchFigure(f"first audio p50, {name}", statistics.median(first_s), "ms")
    yield BenchFigure(f"first audio p95, {name}", percentiles[-1], "ms")
    yield BenchFigure(f"underruns, {name}", sum(each.gap_s > _UNDERRUN_S for each in streams), "streams")


def simulate(costs: CardCosts, streams: int, *, requests: int, seed: int) -> list[CardStream]:
    """All requests, served."""
    return _CardSimulation(costs, streams / SPEECH_S, requests, random.Random(seed)).run()


class _CardSimulation:
    def __init__(self, costs: CardCosts, rate: float, requests: int, draws: random.Random) -> None:
        self._costs = costs
        arrivals, now = [], 0.0
        for _ in range(requests):
            now += draws.expovariate(rate)
            arrivals.append(now)
        self._arrivals = arrivals[::-1]
        self._now = 0.0
        self._open: dict[Session, CardStream] = {}
        self._running: dict[Stage, tuple[float, list[CardStream]]] = {}  # end of each worker's step

    def run(self) -> list[CardStream]:
        served: list[CardStream] = []
        while self._arrivals or self._open:
            while self._arrivals and self._arrivals[-1] <= self._now:
                stream = _arrive(len(served), self._arrivals.pop())
                self._open[stream.session] = stream
                served.append(stream)
            for stage in Stage:
                if stage not in self._running:
                    self._start(stage)
            ends = [end for end, _ in self._running.values()]
            waits = [self._now + 0.005] if self._open and not ends else []
            self._now = min([*ends, *waits, *self._arrivals[-1:]])
            for stage in [each for each, (end, _) in self._running.items() if end <= self._now]:
                self._end(stage, self._running.pop(stage)[1])
        return served

    def _start(self, stage: Stage) -> None:
        for stream in self._open.values():
            self._play(stream)
        chosen = schedule(
            self._open, lambda session: self._open[session].stage, ROWS.__getitem__, SchedulerPolicy(),
            frozenset({stage}),
        )  # fmt: skip
        rows = [self._open[session] for session in chosen]
        if rows:
            for stream in rows:
                stream.session.running = True
            self._running[stage] = self._now + self._cost(stage, rows), rows

    def _cost(self, stage: Stage, rows: list[CardStream]) -> float:
        costs, count = self._costs, len(rows)
        if stage is Stage.DECODE:
            prefill_s = 0.0 if all(row.has_text for row in rows) else costs.prefill_s
            return costs.turn_s + prefill_s + costs.ids_per_step * (costs.token_s + count * costs.token_row_s)
        ending = sum(row.euler_steps + costs.euler_steps >= EULER_STEPS for row in rows)
        vocoder_s = costs.vocoder_s + ending * costs.vocoder_row_s if ending else 0.0
        return costs.turn_s + costs.euler_steps * (costs.euler_s + count * costs.euler_row_s) + vocoder_s

    def _end(self, stage: Stage, rows: list[CardStream]) -> None:
        for stream in rows:
            stream.session.running = False
            if stage is Stage.DECODE:
                stream.has_text = True
                stream.ids = min(stream.total_ids, stream.ids + self._costs.ids_per_step)
                continue
            stream.euler_steps += self._costs.euler_steps
            if stream.euler_steps >= EULER_STEPS:
                self._deliver(stream)

    def _deliver(self, stream: CardStream) -> None:
        session, before = stream.session, stream.rendered_ids
        stream.euler_steps, stream.chunks = 0, stream.chunks + 1
        # The vocoder withholds the sound of 10 ids until the next chunk.
        sound_s = (min(stream.total_ids, stream.rendered_ids) - before) / IDS_PER_S - 0.4 * (before == 0)
        if session.first_audio_at is None:
            session.first_audio_at = stream.dry_at = self._now
        stream.gap_s += max(0.0, self._now - stream.dry_at)
        stream.dry_at = max(stream.dry_at, self._now) + sound_s
        session.samples += round(sound_s * SAMPLE_RATE)
        if stream.is_done:
            del self._open[session]

    def _play(self, stream: CardStream) -> None:
        """Let the listener take what it has room for."""
        if stream.session.first_audio_at is not None:
            left_s = max(0.0, stream.dry_at - self._now)
            stream.session.deadline = self._now + min(left_s, LEAD_S)
            stream.session.unread_s = max(0.0, left_s - LEAD_S)


def _arrive(slot: int, now: float) -> CardStream:
    session = Session(slot, opened_at=now)
    session.add(Segment((SpokenWord("x", "", 0, 1),), 0, 1, BoundaryKind.SENTENCE), now=now)
    session.input_ended = True
    return CardStream(session, now)
