"""Open-loop load: requests at random times, whatever the server does, each played back as it arrives.

Requests come as a Poisson process, each on a connection of its own, its text written at the pace of a
language model. A listener starts playback at the first piece and plays each piece when the previous one has
ended:

    text          w w w w ...            from the first word:
    pieces              |first byte  |audible sample       |late piece: an underrun

Source: the latency contract of nari-labs' serving benches: open loop, time zero at the first text, audible
sample apart from first byte, warm-up apart.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import MissingExtra, Overloaded, VivavoceError
from ..api_clients import ApiClient, SpeechApi, open_client
from ..report import BenchFigure

SENTENCES = (
    "Thank you for calling, how can I help you today?",
    "Your balance is one hundred and twenty seven dollars and fifty cents.",
    "Please hold the line while I look that up for you.",
)
WORDS_PER_S = 40.0
UNDERRUN_AFTER_S = 0.06
_AUDIBLE_LEVEL = 10 ** (-50 / 20) * 32_768  # -50 dBFS of s16le
WARM_UP_REQUESTS = 3  # not counted
_REQUEST_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class RequestLoadOptions:
    """The requests of one run."""

    rate: float  # requests a second
    max_streams: int  # of the server; it refuses more
    requests: int  # without the warm-up
    voice: str | None = None  # None for the server's default
    seed: int = 0  # of the arrival times


@dataclass(slots=True)
class RequestTimes:
    """One request as its listener heard it."""

    started_at: float  # monotonic seconds, of the first word
    first_byte_s: float | None = None  # after the first word; None if no audio arrived
    first_audible_s: float | None = None  # when the first sample above -50 dBFS is played
    speech_s: float = 0.0  # seconds of audio received
    gaps_s: list[float] = field(default_factory=list)  # silence between pieces
    ended_at: float = 0.0  # monotonic seconds
    failure: str = ""  # kind of error; empty when served

    @property
    def underruns(self) -> int:
        """Gaps of more than 60 ms inside the speech."""
        return sum(gap > UNDERRUN_AFTER_S for gap in self.gaps_s)


async def run_requests(api: SpeechApi, url: str, options: RequestLoadOptions) -> list[RequestTimes]:
    """Send all requests to the server at ``url`` and wait for their ends."""
    rng = random.Random(options.seed)
    async with (
        open_client(api, url, min(options.max_streams, 16)) as client,
        asyncio.TaskGroup() as listeners,
    ):
        tasks = []
        for number in range(options.requests):
            text = SENTENCES[number % len(SENTENCES)]
            tasks.append(listeners.create_task(_run_request(client, text, options.voice)))
            await asyncio.sleep(rng.expovariate(options.rate))
    return [task.result() for task in tasks]


async def _run_request(client: ApiClient, text: str, voice: str | None) -> RequestTimes:
    times = RequestTimes(time.monotonic())
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            await _track_playback(client.speak(_paced_words(text), voice), times)
    except* (VivavoceError, OSError, TimeoutError) as errors:
        times.failure = _failure_name(errors.exceptions[0])
    times.ended_at = time.monotonic()
    return times


def _failure_name(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"refused ({error.reason})" if isinstance(error, Overloaded) else type(error).__name__


async def _paced_words(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield word + " "
        await asyncio.sleep(1 / WORDS_PER_S)


async def _track_playback(pieces: AsyncIterator[bytes], times: RequestTimes) -> None:
    """Read every piece as it arrives and compute when it would be played."""
    ends_at = 0.0
    async for audio in pieces:
        now = time.monotonic()
        if times.first_byte_s is None:
            times.first_byte_s = now - times.started_at
        elif ends_at < now:
            times.gaps_s.append(now - ends_at)
        if times.first_audible_s is None:
            times.first_audible_s = audible_after_s(audio, max(now, ends_at) - times.started_at)
        seconds = len(audio) / 2 / SAMPLE_RATE
        ends_at = max(now, ends_at) + seconds
        times.speech_s += seconds


def audible_after_s(audio: bytes, starts_s: float) -> float | None:
    """Time of the first sample above -50 dBFS in s16le audio that is played from ``starts_s`` on."""
    samples = np.abs(np.frombuffer(audio[: len(audio) // 2 * 2], "<i2").astype(np.int32))
    loud = np.flatnonzero(samples > _AUDIBLE_LEVEL)
    return starts_s + float(loud[0]) / SAMPLE_RATE if len(loud) else None


def load_figures(results: Sequence[RequestTimes], took_s: float) -> Iterator[BenchFigure]:
    """The figures of a run that took ``took_s`` seconds."""
    served = [result for result in results if not result.failure]
    yield BenchFigure("requests served", len(served), "")
    for failure in sorted({result.failure for result in results if result.failure}):
        yield BenchFigure(
            f"requests not served: {failure}", sum(result.failure == failure for result in results), ""
        )
    for name, waits in (
        ("first byte", [result.first_byte_s for result in served if result.first_byte_s is not None]),
        (
            "first audible sample",
            [result.first_audible_s for result in served if result.first_audible_s is not None],
        ),
    ):
        for percent in (50, 95, 99) if waits else ():
            yield BenchFigure(f"{name}, p{percent}", 1000 * float(np.percentile(waits, percent)), "ms")
    yield BenchFigure("listeners with an underrun", sum(result.underruns > 0 for result in served), "")
    yield BenchFigure("underruns", sum(result.underruns for result in served), "")
    yield BenchFigure("speech made a second", sum(result.speech_s for result in served) / took_s, "s/s")
    yield BenchFigure("peak in flight", max_in_flight(results), "")


def max_in_flight(results: Sequence[RequestTimes]) -> int:
    """The largest number of requests in progress at once."""
    changes = sorted(
        [(result.started_at, 1) for result in results] + [(result.ended_at, -1) for result in results]
    )
    return max(np.cumsum([change for _, change in changes]), default=0)


def require_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("a plot", "plot") from None


def draw_waits(results: Sequence[RequestTimes], options: RequestLoadOptions, file: Path) -> None:
    """Draw a PNG: waits by arrival time, with underruns marked, and their distributions."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    served = [
        result for result in results if result.first_audible_s is not None and result.first_byte_s is not None
    ]
    began = min((result.started_at for result in results), default=0.0)
    canvas = Canvas(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(canvas)
    left, right = canvas.subplots(1, 2)
    for name, colour, waits in (
        ("first byte", "tab:blue", [1000 * (result.first_byte_s or 0) for result in served]),
        ("first audible sample", "tab:orange", [1000 * (result.first_audible_s or 0) for result in served]),
    ):
        left.plot([result.started_at - began for result in served], waits, ".", color=colour, label=name)
        right.plot(np.sort(waits), np.linspace(0, 100, len(waits)), color=colour, label=name)
    for result in served:
        if result.underruns:
            left.axvline(result.started_at - began, color="tab:red", alpha=0.3)
    left.set(xlabel="request time, s", ylabel="wait, ms", title=f"{options.rate:g} requests/s; red: underrun")
    right.set(xlabel="wait, ms", ylabel="% of requests", title="distribution")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    canvas.savefig(file, dpi=120)
