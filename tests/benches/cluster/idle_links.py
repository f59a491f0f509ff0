"""What a gateway's links to many idle replicas cost: processor time of the gateway, series of all gateways.

The replicas are stubs in another process, with the product's host and transport: only links are measured.
"""

import asyncio
import multiprocessing
import resource
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from multiprocessing.connection import Connection

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.gateway.cluster.replicas.messages import ReplicaDescription
from vivavoce.gateway.cluster.replicas.replica_host import ReplicaHost
from vivavoce.gateway.cluster.replicas.replica_socket import LinkSecurity, ReplicaServer, SocketChannel
from vivavoce.tts_engine.engine import EngineConfig
from vivavoce.tts_engine.metrics import Metrics

_MAX_CORE_SHARE = 0.05
_SETTLE_S = 7.0  # in which each replica has sent its metrics
_GATEWAYS = 2


class _IdleEngine:
    """What a host asks of an engine without streams."""

    voices, active_streams, max_streams, compute_s_per_audio_s = (), 0, 100, 0.05

    def __init__(self) -> None:
        self.metrics = Metrics()

    def refusal(self) -> None:
        return None


class _GivenReplicas:
    """A directory of replicas that do not change."""

    fault, may_grow = "", False

    def __init__(self, descriptions: Sequence[ReplicaDescription]) -> None:
        self._descriptions = descriptions
        self.counts = {"desired": len(descriptions), "starting": 0}

    async def discover(self) -> Sequence[ReplicaDescription]:
        return self._descriptions

    async def report_metrics(self) -> list[object]:
        return []

    def connect(self, description: ReplicaDescription) -> SocketChannel:
        assert description.endpoint is not None
        return SocketChannel(description.replica, description.endpoint, LinkSecurity())

    async def aclose(self) -> None: ...


def measure(replicas: int, seconds: float) -> BenchReport:
    """Measure one gateway for so many seconds, then count the series of two."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_stubs, args=(theirs, replicas), daemon=True)
    process.start()
    try:
        figures = asyncio.run(_measure(ours.recv(), seconds))
    finally:
        process.kill()
        process.join()
    return BenchReport("idle-links", figures, {"replicas": replicas, "seconds": seconds})


def _serve_stubs(pipe: Connection, replicas: int) -> None:
    async def serve() -> None:
        descriptions = []
        for number in range(replicas):
            host = ReplicaHost(_IdleEngine(), f"replica-{number}", "digest")  # type: ignore[arg-type]
            endpoint = await ReplicaServer(host).open("127.0.0.1")
            descriptions.append(replace(host.describe(), endpoint=endpoint))
        pipe.send(descriptions)
        await asyncio.Event().wait()

    asyncio.run(serve())


async def _measure(descriptions: Sequence[ReplicaDescription], seconds: float) -> tuple[BenchFigure, ...]:
    async with AsyncExitStack() as opened:
        gateways = [await _open(descriptions, opened)]
        await asyncio.sleep(_SETTLE_S)
        begins, used = time.monotonic(), _used_s()
        await asyncio.sleep(seconds)
        share = (_used_s() - used) / (time.monotonic() - begins)
        series = [_series(gateways[0])]
        gateways += [await _open(descriptions, opened) for _ in range(_GATEWAYS - 1)]
        await asyncio.sleep(_SETTLE_S)
        series.append(sum(map(_series, gateways)))
        own = _series(gateways[-1])
        links = sum(len(each.replicas) for each in gateways)
    return (
        BenchFigure("core of one gateway, idle", 100 * share, "%", at_most=100 * _MAX_CORE_SHARE),
        BenchFigure("links of two gateways", links, "", at_least=_GATEWAYS * len(descriptions)),
        BenchFigure("series of one gateway", series[0], ""),
        BenchFigure("series of two gateways", series[1], "", at_most=series[0] + own),
        BenchFigure("of them, of the second", own, ""),
    )


async def _open(descriptions: Sequence[ReplicaDescription], opened: AsyncExitStack) -> ClusterEngine:
    engine = await ClusterEngine.connect(_GivenReplicas(descriptions), EngineConfig())  # type: ignore[arg-type]
    opened.push_async_callback(engine.aclose)
    return engine


def _used_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _series(gateway: ClusterEngine) -> int:
    return sum(len(family.samples) for family in gateway.metrics.registry.collect())
