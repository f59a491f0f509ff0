"""Replicas on a Ray cluster of this machine with the stand-in voice: what Ray adds, and what kills cost."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import ray
from ray import serve
from ray.util.state import list_actors

from benches.cluster.listener import StreamListener, text_of
from benches.cluster.packaged_replica import ClusterLoad, measure_engines
from shared.cluster.ray_replicas import CostlySettings, build, join_here, open_costly_engine
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.ray.application import APPLICATION
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine

_STREAMS_PER_REPLICA = 20
_WORDS = 30  # of each stream
_SPOKEN_S = 1.5  # before a kill
_MAX_RECOVERY_S = 2.0


def measure(load: ClusterLoad, step_s: float, kills: int, redeploys: int) -> BenchReport:
    """Measure one replica under ``load``; then kill one of two, and replace both, as many times."""
    return asyncio.run(_measure(load, step_s, kills, redeploys))


async def _measure(load: ClusterLoad, step_s: float, kills: int, redeploys: int) -> BenchReport:
    settings = CostlySettings(step_s=step_s)
    local, _ = await open_costly_engine(settings)
    with ray_cluster():
        async with local, _replicas(settings, 1) as remote:
            report = await measure_engines(local, remote, load)
        figures = report.figures
        if kills:
            async with _replicas(settings, 2) as remote:
                figures += await _measure_kills(remote, kills)
        if redeploys:
            async with _replicas(settings, 2) as remote:
                figures += await _measure_redeploys(remote, settings, redeploys)
    return BenchReport(report.bench, figures, report.settings)


@contextmanager
def ray_cluster() -> Iterator[None]:
    """A Ray cluster of this process."""
    ray.init(address="local", include_dashboard=True, dashboard_port=0, log_to_driver=False)
    try:
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


@asynccontextmanager
async def _replicas(settings: CostlySettings, count: int) -> AsyncIterator[ClusterEngine]:
    await asyncio.to_thread(deploy_replicas, settings, count)
    async with await join_here() as engine:
        yield engine


def deploy_replicas(settings: CostlySettings, count: int) -> None:
    """Deploy, and wait until the replicas run."""
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
        listeners = [StreamListener(engine, text_of(_WORDS)) for _ in range(2 * _STREAMS_PER_REPLICA)]
        tasks = [asyncio.create_task(each.listen()) for each in listeners]
        await asyncio.sleep(_SPOKEN_S)
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


async def _measure_redeploys(
    engine: ClusterEngine, settings: CostlySettings, redeploys: int
) -> tuple[BenchFigure, ...]:
    """Replace both replicas while clients ask for one stream after the other."""
    heard: list[StreamListener] = []
    ended = asyncio.Event()

    async def speak_on() -> None:
        while not ended.is_set():
            heard.append(StreamListener(engine, text_of(_WORDS)))
            await heard[-1].listen()

    speaking = [asyncio.create_task(speak_on()) for _ in range(_STREAMS_PER_REPLICA)]
    for _ in range(redeploys):
        while len(engine.replicas) < 2:
            await asyncio.sleep(0.1)
        before = set(engine.replicas)
        settings = settings.model_copy(update={"step_s": settings.step_s * 1.01})
        await asyncio.to_thread(deploy_replicas, settings, 2)
        while before & set(engine.replicas):
            await asyncio.sleep(0.1)
    ended.set()
    await asyncio.gather(*speaking)
    return (
        BenchFigure(f"redeployments under {_STREAMS_PER_REPLICA} streams", redeploys, ""),
        BenchFigure("streams spoken meanwhile", len(heard), "", at_least=_STREAMS_PER_REPLICA),
        BenchFigure("of them not whole", sum(not each.is_complete for each in heard), "", at_most=0),
        BenchFigure("their underruns", sum(each.underruns for each in heard), "", at_most=0),
    )


def _process_of(replica: str) -> int:
    found = [each.pid for each in list_actors(detail=True) if each.name and each.name.endswith(replica)]
    return int(found[0])
