"""An upgrade to another release under streams, in both orders, on a Ray cluster of this process.

The replicas of the next release are the same ones, which introduce themselves as of another. Clients ask for
one stream after the other, at the new gateway if it is ready, as behind a balancer that asks ``/readyz``.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import ray

from benches.cluster.listener import StreamListener, text_of
from benches.cluster.replicas import deploy_replicas, ray_cluster
from shared.cluster.ray_replicas import CostlySettings
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.ray.finding.messages import RELEASE, DiscoverySettings
from vivavoce.gateway.cluster.ray.finding.replica_directory import RayReplicas
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.tts_engine.engine import EngineConfig
from vivavoce.tts_engine.errors import Overloaded

_CLIENTS = 20
_WORDS = 15  # of each stream, 3 s
_RETRY_S = 0.2
_MAX_AWAY_S = 1.0  # each gateway looks for replicas once a second
_POLL_S = 0.1
_GIVE_UP_S = 180.0
_NEXT = "the next release"


def measure() -> BenchReport:
    """Upgrade with gateways first, then with replicas first."""
    return BenchReport("upgrade", asyncio.run(_measure()), {"clients": _CLIENTS})


async def _measure() -> tuple[BenchFigure, ...]:
    figures: list[BenchFigure] = []
    with ray_cluster():
        for order, gateways_first in (("gateways first", True), ("replicas first", False)):
            clients = await _upgrade(gateways_first)
            heard = clients.heard
            figures += [
                BenchFigure(f"{order}: streams spoken", len(heard), "", at_least=_CLIENTS),
                BenchFigure("of them not whole", sum(not each.is_complete for each in heard), "", at_most=0),
                BenchFigure("their underruns", sum(each.underruns for each in heard), ""),
                BenchFigure("refused after they were taken", clients.refused, ""),
                BenchFigure("asked of the new gateway", clients.by_new, "", at_least=1),
                BenchFigure(
                    "longest time without a gateway that is ready",
                    clients.longest_away_s,
                    "s",
                    at_most=_MAX_AWAY_S if gateways_first else None,
                ),
            ]
    return tuple(figures)


async def _upgrade(gateways_first: bool) -> "_Clients":
    await asyncio.to_thread(deploy_replicas, CostlySettings(step_s=0.002), 2)
    async with asyncio.timeout(_GIVE_UP_S), _gateway(RELEASE) as opening:
        clients = _Clients([await opening])
        speaking = [asyncio.create_task(clients.speak_on()) for _ in range(_CLIENTS)]
        if not gateways_first:
            await _replace_replicas()
            while clients.gateways[0].replicas:
                await asyncio.sleep(_POLL_S)
        async with _gateway(_NEXT) as opening:
            replacing = asyncio.create_task(_replace_replicas())  # at once if they are replaced already
            clients.gateways.insert(0, await opening)
            await replacing
            while clients.gateways[1].replicas or not clients.by_new:
                await asyncio.sleep(_POLL_S)
            clients.ended.set()
            await asyncio.gather(*speaking)
    return clients


async def _replace_replicas() -> None:
    await asyncio.to_thread(deploy_replicas, CostlySettings(step_s=0.002, release=_NEXT), 2)


@asynccontextmanager
async def _gateway(release: str) -> AsyncIterator[asyncio.Task[ClusterEngine]]:
    """A gateway of a release, which waits for replicas of it."""
    settings = DiscoverySettings(ray.get_runtime_context().gcs_address, ReplicaSettings())
    replicas = RayReplicas(settings, release=release)
    opening = asyncio.create_task(ClusterEngine.connect(replicas, EngineConfig(), within_s=_GIVE_UP_S))
    try:
        yield opening
    finally:
        await (await opening).aclose()


@dataclass
class _Clients:
    """gateways: the one to be asked first is the first. refused: streams without audio, asked for again."""

    gateways: list[ClusterEngine]
    heard: list[StreamListener] = field(default_factory=list)
    by_new: int = 0
    refused: int = 0
    longest_away_s: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def speak_on(self) -> None:
        """Ask for one stream after the other."""
        while not self.ended.is_set():
            asked_at = time.monotonic()
            listener = await self._open()
            self.longest_away_s = max(self.longest_away_s, time.monotonic() - asked_at)
            await listener.listen()
            if isinstance(listener.error, Overloaded) and not listener.has_heard:
                self.refused += 1
            else:
                self.heard.append(listener)

    async def _open(self) -> StreamListener:
        while True:
            for gateway in self.gateways:
                try:
                    listener = StreamListener(gateway, text_of(_WORDS))
                except Overloaded:
                    continue
                self.by_new += len(self.gateways) == 2 and gateway is self.gateways[0]
                return listener
            await asyncio.sleep(_RETRY_S)
