"""Measures what Ray costs: the first audio of an engine here and of a replica, in turn, in the same run; then
streams at once that are played in real time.

The replicas run on a Ray cluster of this process, so that the machine does the work of all sides.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import MissingExtra
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.speech_engine import SpeechEngine

if TYPE_CHECKING:
    from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine

_UTTERANCE = "Good morning, how can I help you today?"
_SENTENCE = "The train to the coast leaves at noon from the platform next to the old clock. "
_SENTENCE_S = 3.5  # of speech at least, in any voice
_TARGET_LEAD_S = 0.6  # as the setting lead_s
_GAP_S = 0.06  # of nothing inside speech, above which it is an underrun
_PAUSE_S = 0.05  # between two utterances
_MAX_P50_ABOVE_MS, _MAX_P95_ABOVE_MS = 8.0, 20.0


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """What is measured: utterances one after the other, then streams at once for some seconds each."""

    utterances: int = 100
    streams: int = 20
    seconds: float = 20.0


def measure(load: ClusterLoad) -> BenchReport:
    """Measure with the packaged voice. Raises MissingExtra without ray."""
    return asyncio.run(_measure_packaged(load))


async def _measure_packaged(load: ClusterLoad) -> BenchReport:
    policy = SchedulerPolicy(max_streams=max(load.streams, 1))
    async with await Engine.open(config=EngineConfig(policy)) as local, _packaged_replica(load) as remote:
        return await measure_engines(local, remote, load)


@asynccontextmanager
async def _packaged_replica(load: ClusterLoad) -> AsyncIterator["ClusterEngine"]:
    try:
        import ray

        from vivavoce.gateway.cluster.ray.ray_connection import LOCAL
        from vivavoce.gateway.cluster.ray.ray_engine import open_ray_engine
        from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
    except ModuleNotFoundError as error:
        raise MissingExtra("benches packaged-replica", "ray") from error
    settings = ReplicaSettings(max_streams=max(load.streams, 1))
    try:
        async with await open_ray_engine(LOCAL, settings, EngineConfig()) as engine:
            yield engine
    finally:
        ray.shutdown()


async def measure_engines(local: Engine, remote: "ClusterEngine", load: ClusterLoad) -> BenchReport:
    """Measure two engines with the same voice, and the load on the remote one."""
    first_audio_s = await _first_audio(local, remote, load.utterances)
    (local_p50, local_p95), (remote_p50, remote_p95) = (
        np.percentile(np.array(each) * 1000, (50, 95)) for each in first_audio_s
    )
    cancel_ms = 1000 * np.array(await _cancel_s(remote, load.utterances))
    listeners = [_listen(remote, load.seconds, number / load.streams) for number in range(load.streams)]
    results = await asyncio.gather(*listeners)
    figures = (
        BenchFigure("first audio here, p50", local_p50, "ms"),
        BenchFigure("first audio here, p95", local_p95, "ms"),
        BenchFigure("first audio over Ray, p50", remote_p50, "ms"),
        BenchFigure("first audio over Ray, p95", remote_p95, "ms"),
        BenchFigure("above local, p50", remote_p50 - local_p50, "ms", at_most=_MAX_P50_ABOVE_MS),
        BenchFigure("above local, p95", remote_p95 - local_p95, "ms", at_most=_MAX_P95_ABOVE_MS),
        BenchFigure(
            "cancel to the replica's report of a free slot, worst", cancel_ms.max(), "ms", at_most=50
        ),
        BenchFigure("streams at once", load.streams, ""),
        BenchFigure("seconds of speech played", sum(played_s for played_s, _ in results), "s"),
        BenchFigure("underruns", sum(underruns for _, underruns in results), "", at_most=0),
    )
    return BenchReport("cluster", figures, {"utterances": load.utterances, "seconds": load.seconds})


async def _first_audio(
    local: SpeechEngine, remote: SpeechEngine, utterances: int
) -> tuple[list[float], list[float]]:
    """Seconds from the text to the first audio, for each engine, taken in turn."""
    found: tuple[list[float], list[float]] = ([], [])
    for engine, times in ((local, found[0]), (remote, found[1])) * utterances:
        begins = time.perf_counter()
        async with engine.stream() as stream:
            stream.push_text(_UTTERANCE)
            stream.end_input()
            await anext(stream)
            times.append(time.perf_counter() - begins)
        await asyncio.sleep(_PAUSE_S)
    return found


async def _cancel_s(remote: "ClusterEngine", count: int) -> list[float]:
    """Seconds from the cancel of a stream that speaks until the gateway knows that its slot is free."""
    found = []
    for _ in range(count):
        stream = remote.stream()
        stream.push_text(_SENTENCE)
        await anext(stream)
        begins = time.perf_counter()
        stream.cancel()
        while remote.replica_streams:  # the report is not an event
            await asyncio.sleep(0.0005)
        found.append(time.perf_counter() - begins)
    return found


async def _listen(engine: SpeechEngine, seconds: float, begins_after_s: float) -> tuple[float, int]:
    """Play one stream in real time; the seconds of speech, and the underruns."""
    await asyncio.sleep(begins_after_s)
    runs_dry_at, played_s, underruns = 0.0, 0.0, 0
    async with engine.stream() as stream:
        stream.push_text(_SENTENCE * (1 + int(seconds / _SENTENCE_S)))
        stream.end_input()
        async for chunk in stream:
            now = time.monotonic()
            if played_s and now > runs_dry_at + _GAP_S:
                underruns += 1
            runs_dry_at = max(now, runs_dry_at) + chunk.seconds
            played_s += chunk.seconds
            stream.set_deadline(runs_dry_at)
            await asyncio.sleep(max(0.0, runs_dry_at - time.monotonic() - _TARGET_LEAD_S))
    return played_s, underruns
