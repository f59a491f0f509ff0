"""Replicas on a Ray cluster of this machine with the stand-in voice: what Ray adds, and what a kill costs."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import ray
from ray import serve
from ray.util.state import list_actors

from shared.ray_replicas import CostlySettings, build, open_costly_engine
from vivavoce.gateway.cli.bench.cluster.measure import ClusterLoad, measure_engines
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.ray.application import APPLICATION
from vivavoce.gateway.cluster.ray.ray_connection import open_ray_engine
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.tts_engine.engine import EngineConfig
from vivavoce.tts_engine.errors import VivavoceError
from vivavoce.tts_engine.stream import Stream

_STREAMS_PER_REPLICA = 20
_TEXT = " ".join(f"word{'abcdefghij'[number % 10]}," for number in range(60))
_LEAD_S = 0.6
_GAP_S = 0.06
_MAX_RECOVERY_S = 2.0


def measure(load: ClusterLoad, step_s: float, kills: int) -> BenchReport:
    """Measure one replica under ``load``; then kill one of two, as many times."""
    return asyncio.run(_measure(load, step_s, kills))


async def _measure(load: ClusterLoad, step_s: float, kills: int) -> BenchReport:
    settings = CostlySettings(step_s=step_s)
    local, _ = await open_costly_engine(settings)
    async with local:
        async with _replicas(settings, 1) as remote:
            report = await measure_engines(local, remote, load)
        if not kills:
            return report
        async with _replicas(settings, 2) as remote:
            figures = await _measure_kills(remote, kills)
    return BenchReport(report.bench, (*report.figures, *figures), report.settings)


@asynccontextmanager
async def _replicas(settings: CostlySettings, count: int) -> AsyncIterator[ClusterEngine]:
    ray.init(address="local", include_dashboard=True, dashboard_port=0, log_to_driver=False)
    try:
        await asyncio.to_thread(_deploy, settings, count)
        async with await open_ray_engine("auto", ReplicaSettings(), EngineConfig()) as engine:
            yield engine
    finally:
        ray.shutdown()


def _deploy(settings: CostlySettings, count: int) -> None:
    serve.start(proxy_location="Disabled")
    application = build(settings)
    deployment = application._bound_deployment.options(
        num_replicas=count, ray_actor_options={"num_cpus": 0.1}
    )
    serve.run(deployment.bind(*application._bound_deployment.init_args), name=APPLICATION, route_prefix=None)


async def _measure_kills(engine: ClusterEngine, kills: int) -> tuple[BenchFigure, ...]:
    moved = ended = wrong = others_underran = 0
    recoveries_s: list[float] = []
    for _ in range(kills):
        while len(engine.replicas) < 2:
            await asyncio.sleep(0.1)
        victim = engine.replicas[0]
        listeners = [_Listener(engine) for _ in range(2 * _STREAMS_PER_REPLICA)]
        tasks = [asyncio.create_task(each.listen()) for each in listeners]
        await asyncio.sleep(2.0)
        os.kill(await asyncio.to_thread(_process_of, victim), signal.SIGKILL)
        killed_at = time.monotonic()
        await asyncio.gather(*tasks)
        for each in listeners:
            if victim not in each.tried:
                others_underran += each.underruns
                continue
            moved += each.is_complete
            ended += each.failed_at is not None
            wrong += not (each.is_complete or each.failed_at)
            recoveries_s.append(each.seconds_to_news(killed_at))
    return (
        BenchFigure("kills", kills, ""),
        BenchFigure("streams of killed replicas", len(recoveries_s), ""),
        BenchFigure("that went on, no word lost or repeated", moved, ""),
        BenchFigure("that ended with an error", ended, ""),
        BenchFigure("that did neither", wrong, "", at_most=0),
        BenchFigure("slowest to go on or end", max(recoveries_s), "s", at_most=_MAX_RECOVERY_S),
        BenchFigure("underruns of other streams", others_underran, "", at_most=0),
    )


def _process_of(replica: str) -> int:
    found = [each.pid for each in list_actors(detail=True) if each.name and each.name.endswith(replica)]
    return int(found[0])


class _Listener:
    """Plays one stream in real time."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._stream: Stream = engine.stream()
        self._words: list[str] = []
        self._heard_at: list[float] = []
        self.underruns = 0
        self.failed_at: float | None = None

    @property
    def tried(self) -> set[str]:
        """The replicas that spoke."""
        return set(getattr(self._stream, "tried", ()))

    @property
    def is_complete(self) -> bool:
        """Whether each word was heard once, in order."""
        return self._words == [word.strip(",") for word in _TEXT.split()]

    def seconds_to_news(self, since: float) -> float:
        """Seconds until the next chunk or the error."""
        times = [*self._heard_at, *([self.failed_at] if self.failed_at else [])]
        return min((each for each in times if each > since), default=float("inf")) - since

    async def listen(self) -> None:
        runs_dry_at = 0.0
        async with self._stream as stream:
            stream.push_text(_TEXT)
            stream.end_input()
            try:
                async for chunk in stream:
                    now = time.monotonic()
                    self._heard_at.append(now)
                    self._words += [word.text for word in chunk.words]
                    self.underruns += bool(runs_dry_at) and now > runs_dry_at + _GAP_S
                    runs_dry_at = max(now, runs_dry_at) + chunk.seconds
                    await asyncio.sleep(max(0.0, runs_dry_at - time.monotonic() - _LEAD_S))
            except VivavoceError:
                self.failed_at = time.monotonic()
