"""``vivavoce bench serve``: a server under open-loop load, as callers would hear it.

Requests come at random (Poisson) whatever the server does, each on a connection of its own pool, its text
written at the pace of a language model. The server is a process of its own; this one is its listeners. A
listener begins to play at the first sound and hears each piece when the one before it has ended:

    text          w w w w ...            from the first word:
    pieces              |first byte  |audible sample       |late piece: an underrun

Source of the method: the latency contract of nari-labs' serving benches: open loop, time zero at the first
text, audible sample apart from first byte, warm-up apart.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import MissingExtra, Overloaded, VivavoceError
from .bundle_weights import BenchWeights
from .openai_api import SENTENCES
from .report import BenchFigure, BenchReport
from .server_process import run_server_process

if TYPE_CHECKING:
    from ....adapters.client import RemoteUtterance, SpeechClient, SpeechPiece

WORDS_PER_S = 40.0
UNDERRUN_AFTER_S = 0.06
_AUDIBLE_LEVEL = 10 ** (-50 / 20) * 32_768  # -50 dBFS of s16le
_WARM_UP_REQUESTS = 3  # requests that do not count
_REQUEST_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class RequestLoadOptions:
    """What is asked. rate: requests a second. streams: at once at most; what comes beyond is turned away.

    requests: in all, warm-up apart. voice: of them, None for the server's default.
    """

    rate: float
    max_streams: int
    requests: int
    voice: str | None = None
    seed: int = 0


@dataclass(slots=True)
class RequestTimes:
    """One request as it was heard; seconds from its first word. None: it never came to that."""

    started_at: float
    first_byte_s: float | None = None
    first_audible_s: float | None = None
    speech_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    ended_at: float = 0.0
    failure: str = ""

    @property
    def underruns(self) -> int:
        """Times that more than 60 ms of nothing were heard inside the speech."""
        return sum(gap > UNDERRUN_AFTER_S for gap in self.gaps_s)


def measure(
    options: RequestLoadOptions,
    *,
    bundle: Path | None = None,
    size: str | None = None,
    device: str = "auto",
    plot: Path | None = None,
) -> BenchReport:
    """Serve the plan with a bundle, one of random weights of that size, or the packaged voice, on a device.

    Raises BenchFailed, BundleError, and MissingExtra for a plot without matplotlib.
    """
    if plot is not None:
        _require_matplotlib()
    with _bundle_folder(bundle, size) as folder:
        flags = [] if folder is None else ["--bundle", str(folder)]
        with run_server_process("--max-streams", str(options.max_streams), "--device", device, *flags) as url:
            asyncio.run(
                _run_requests(url, RequestLoadOptions(options.rate, 1, _WARM_UP_REQUESTS, options.voice))
            )
            began = time.monotonic()
            results = asyncio.run(_run_requests(url, options))
            took_s = time.monotonic() - began
    if plot is not None:
        draw_waits(results, options, plot)
    voice = str(bundle or (f"random weights, {size}" if size else "packaged"))
    return BenchReport(
        "serve",
        tuple(load_figures(results, took_s)),
        {"voice": voice, "device": device, "rate": options.rate},
    )


def _bundle_folder(bundle: Path | None, size: str | None) -> AbstractContextManager[Path | None]:
    if bundle is None and size is None:
        return nullcontext()
    return BenchWeights(bundle, size or "full").folder()


async def _run_requests(url: str, options: RequestLoadOptions) -> list[RequestTimes]:
    from ....adapters.client import PoolPolicy, SpeechClient

    rng = random.Random(options.seed)
    policy = PoolPolicy(max_connections=10_000, min_connections=min(options.max_streams, 16), max_idle_s=20.0)
    async with SpeechClient(url, pool=policy) as client, asyncio.TaskGroup() as listeners:
        tasks = []
        for number in range(options.requests):
            text = SENTENCES[number % len(SENTENCES)]
            tasks.append(listeners.create_task(_run_request(client, text, options.voice)))
            await asyncio.sleep(rng.expovariate(options.rate))
    return [task.result() for task in tasks]


async def _run_request(client: "SpeechClient", text: str, voice: str | None) -> RequestTimes:
    from ....adapters.client import SpeechOptions

    times = RequestTimes(time.monotonic())
    try:
        async with (
            asyncio.timeout(_REQUEST_TIMEOUT_S),
            client.utterance(SpeechOptions(voice=voice)) as utterance,
            asyncio.TaskGroup() as tasks_of_request,
        ):
            tasks_of_request.create_task(_push_words(utterance, text))
            tasks_of_request.create_task(_track_playback(utterance, times))
    except* (VivavoceError, TimeoutError) as errors:
        times.failure = _failure_name(errors.exceptions[0])
    times.ended_at = time.monotonic()
    return times


def _failure_name(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"refused ({error.reason})" if isinstance(error, Overloaded) else type(error).__name__


async def _push_words(utterance: "RemoteUtterance", text: str) -> None:
    for word in text.split():
        await utterance.push_text(word + " ")
        await asyncio.sleep(1 / WORDS_PER_S)
    await utterance.end_input()


async def _track_playback(utterance: "RemoteUtterance", times: RequestTimes) -> None:
    """Take every piece at once, and reckon when it would be played."""
    ends_at = 0.0
    async for piece in utterance:
        now = time.monotonic()
        if times.first_byte_s is None:
            times.first_byte_s = now - times.started_at
        elif ends_at < now:
            times.gaps_s.append(now - ends_at)
        if times.first_audible_s is None:
            times.first_audible_s = _audible_after_s(piece, max(now, ends_at) - times.started_at)
        seconds = len(piece.audio) / 2 / SAMPLE_RATE
        ends_at = max(now, ends_at) + seconds
        times.speech_s += seconds


def _audible_after_s(piece: "SpeechPiece", plays_s: float) -> float | None:
    """When a piece that plays then is first louder than -50 dBFS."""
    samples = np.abs(np.frombuffer(piece.audio, "<i2").astype(np.int32))
    loud = np.flatnonzero(samples > _AUDIBLE_LEVEL)
    return plays_s + float(loud[0]) / SAMPLE_RATE if len(loud) else None


def load_figures(results: Sequence[RequestTimes], took_s: float) -> Iterator[BenchFigure]:
    """What a bench run comes to."""
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
    """Requests under way at once, at most."""
    changes = sorted(
        [(result.started_at, 1) for result in results] + [(result.ended_at, -1) for result in results]
    )
    return max(np.cumsum([change for _, change in changes]), default=0)


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("a plot", "plot") from None


def draw_waits(results: Sequence[RequestTimes], options: RequestLoadOptions, file: Path) -> None:
    """A PNG: each request's waits by when it came, with underruns marked; and their distributions."""
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
    left.set(
        xlabel="asked after, s", ylabel="wait, ms", title=f"{options.rate:g} requests/s; red: heard a gap"
    )
    right.set(xlabel="wait, ms", ylabel="% of requests", title="how many waited no longer")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    canvas.savefig(file, dpi=120)
