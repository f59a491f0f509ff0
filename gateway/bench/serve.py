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

from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import MissingExtra, Overloaded, VivavoceError
from .api import SENTENCES, server
from .report import Figure, Report
from .weights import Weights

if TYPE_CHECKING:
    from ...adapters.client import Piece, RemoteUtterance, SpeechClient

WORDS_PER_S = 40.0
UNDERRUN_S = 0.06
AUDIBLE = 10 ** (-50 / 20) * 32_768  # -50 dBFS of s16le
_WARM_UP = 3  # requests that do not count
_ANSWER_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked. rate: requests a second. streams: at once at most; what comes beyond is turned away.

    requests: in all, warm-up apart. voice: of them, None for the server's default.
    """

    rate: float
    streams: int
    requests: int
    voice: str | None = None
    seed: int = 0


@dataclass(slots=True)
class Listened:
    """One request as it was heard; seconds from its first word. None: it never came to that."""

    asked_at: float
    first_byte_s: float | None = None
    audible_s: float | None = None
    speech_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    ended_at: float = 0.0
    failure: str = ""

    @property
    def underruns(self) -> int:
        """Times that more than 60 ms of nothing were heard inside the speech."""
        return sum(gap > UNDERRUN_S for gap in self.gaps_s)


def measure(
    plan: Plan,
    *,
    bundle: Path | None = None,
    size: str | None = None,
    device: str = "auto",
    plot: Path | None = None,
) -> Report:
    """Serve the plan with a bundle, one of random weights of that size, or the packaged voice, on a device.

    Raises BenchFailed, BundleError, and MissingExtra for a plot without matplotlib.
    """
    if plot is not None:
        _require_matplotlib()
    with _speaker(bundle, size) as folder:
        flags = [] if folder is None else ["--bundle", str(folder)]
        with server("--max-streams", str(plan.streams), "--device", device, *flags) as url:
            asyncio.run(_listen(url, Plan(plan.rate, 1, _WARM_UP, plan.voice)))
            began = time.monotonic()
            heard = asyncio.run(_listen(url, plan))
            took_s = time.monotonic() - began
    if plot is not None:
        draw(heard, plan, plot)
    voice = str(bundle or (f"random weights, {size}" if size else "packaged"))
    return Report(
        "serve", tuple(figures(heard, took_s)), {"voice": voice, "device": device, "rate": plan.rate}
    )


def _speaker(bundle: Path | None, size: str | None) -> AbstractContextManager[Path | None]:
    if bundle is None and size is None:
        return nullcontext()
    return Weights(bundle, size or "full").folder()


async def _listen(url: str, plan: Plan) -> list[Listened]:
    from ...adapters.client import PoolPolicy, SpeechClient

    rng = random.Random(plan.seed)
    policy = PoolPolicy(most=10_000, ready=min(plan.streams, 16), refresh_s=20.0)
    async with SpeechClient(url, pool=policy) as client, asyncio.TaskGroup() as listeners:
        tasks = []
        for number in range(plan.requests):
            text = SENTENCES[number % len(SENTENCES)]
            tasks.append(listeners.create_task(_hear(client, text, plan.voice)))
            await asyncio.sleep(rng.expovariate(plan.rate))
    return [task.result() for task in tasks]


async def _hear(client: "SpeechClient", text: str, voice: str | None) -> Listened:
    from ...adapters.client import Wish

    listened = Listened(time.monotonic())
    try:
        async with (
            asyncio.timeout(_ANSWER_WITHIN_S),
            client.utterance(Wish(voice=voice)) as utterance,
            asyncio.TaskGroup() as both,
        ):
            both.create_task(_write(utterance, text))
            both.create_task(_play(utterance, listened))
    except* (VivavoceError, TimeoutError) as errors:
        listened.failure = _kind(errors.exceptions[0])
    listened.ended_at = time.monotonic()
    return listened


def _kind(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"refused ({error.reason})" if isinstance(error, Overloaded) else type(error).__name__


async def _write(utterance: "RemoteUtterance", text: str) -> None:
    for word in text.split():
        await utterance.push_text(word + " ")
        await asyncio.sleep(1 / WORDS_PER_S)
    await utterance.end_input()


async def _play(utterance: "RemoteUtterance", listened: Listened) -> None:
    """Take every piece at once, and reckon when it would be played."""
    ends_at = 0.0
    async for piece in utterance:
        now = time.monotonic()
        if listened.first_byte_s is None:
            listened.first_byte_s = now - listened.asked_at
        elif ends_at < now:
            listened.gaps_s.append(now - ends_at)
        if listened.audible_s is None:
            listened.audible_s = _audible_s(piece, max(now, ends_at) - listened.asked_at)
        seconds = len(piece.audio) / 2 / SAMPLE_RATE
        ends_at = max(now, ends_at) + seconds
        listened.speech_s += seconds


def _audible_s(piece: "Piece", plays_s: float) -> float | None:
    """When a piece that plays then is first louder than -50 dBFS."""
    samples = np.abs(np.frombuffer(piece.audio, "<i2").astype(np.int32))
    loud = np.flatnonzero(samples > AUDIBLE)
    return plays_s + float(loud[0]) / SAMPLE_RATE if len(loud) else None


def figures(heard: Sequence[Listened], took_s: float) -> Iterator[Figure]:
    """What a bench run comes to."""
    served = [each for each in heard if not each.failure]
    yield Figure("requests served", len(served), "")
    for failure in sorted({each.failure for each in heard if each.failure}):
        yield Figure(f"requests not served: {failure}", sum(each.failure == failure for each in heard), "")
    for name, waits in (
        ("first byte", [each.first_byte_s for each in served if each.first_byte_s is not None]),
        ("first audible sample", [each.audible_s for each in served if each.audible_s is not None]),
    ):
        for percent in (50, 95, 99) if waits else ():
            yield Figure(f"{name}, p{percent}", 1000 * float(np.percentile(waits, percent)), "ms")
    yield Figure("listeners with an underrun", sum(each.underruns > 0 for each in served), "")
    yield Figure("underruns", sum(each.underruns for each in served), "")
    yield Figure("speech made a second", sum(each.speech_s for each in served) / took_s, "s/s")
    yield Figure("peak in flight", peak_in_flight(heard), "")


def peak_in_flight(heard: Sequence[Listened]) -> int:
    """Requests under way at once, at most."""
    changes = sorted([(each.asked_at, 1) for each in heard] + [(each.ended_at, -1) for each in heard])
    return max(np.cumsum([change for _, change in changes]), default=0)


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("a plot", "plot") from None


def draw(heard: Sequence[Listened], plan: Plan, file: Path) -> None:
    """A PNG: each request's waits by when it came, with underruns marked; and their distributions."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    served = [each for each in heard if each.audible_s is not None and each.first_byte_s is not None]
    began = min((each.asked_at for each in heard), default=0.0)
    canvas = Canvas(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(canvas)
    left, right = canvas.subplots(1, 2)
    for name, colour, waits in (
        ("first byte", "tab:blue", [1000 * (each.first_byte_s or 0) for each in served]),
        ("first audible sample", "tab:orange", [1000 * (each.audible_s or 0) for each in served]),
    ):
        left.plot([each.asked_at - began for each in served], waits, ".", color=colour, label=name)
        right.plot(np.sort(waits), np.linspace(0, 100, len(waits)), color=colour, label=name)
    for each in served:
        if each.underruns:
            left.axvline(each.asked_at - began, color="tab:red", alpha=0.3)
    left.set(xlabel="asked after, s", ylabel="wait, ms", title=f"{plan.rate:g} requests/s; red: heard a gap")
    right.set(xlabel="wait, ms", ylabel="% of requests", title="how many waited no longer")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    canvas.savefig(file, dpi=120)
