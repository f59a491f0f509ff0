"""Replicas in this process: engines behind the messages of a cluster, without a transport."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.gateway.cluster.replicas.messages import (
    ReplicaDescription,
    ReplicaEvent,
    ReplicaLost,
    ReplicaMetrics,
    StreamCommand,
)
from vivavoce.gateway.cluster.replicas.replica_host import ReplicaHost
from vivavoce.tts_engine.backends.base import Backend
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import VivavoceError
from vivavoce.tts_engine.voices.recording import Recording

from ..engine.standin_backend import StandInBackend


class LocalReplica:
    """One engine as a replica. commands: all that it was sent."""

    def __init__(self, engine: Engine, name: str, digest: str) -> None:
        self.engine, self.name = engine, name
        self.host = ReplicaHost(engine, name, digest)
        self.commands: list[StreamCommand] = []
        self.max_chunks: int | None = None  # it dies after as many
        self.hangs = False
        self._died = asyncio.Event()

    def kill(self) -> None:
        """End as a process does: nothing arrives any more."""
        self._died.set()

    async def send(self, commands: tuple[StreamCommand, ...]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        self._check()
        self.commands += commands
        self.host.run_commands("gateway", commands)

    async def encode(self, recordings: Sequence[Recording], transcript: str) -> bytes | VivavoceError:
        self._check()
        answer = await self.host.encode(recordings, transcript)
        self._check()
        return answer

    async def events(self) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        events = self.host.events("gateway")
        try:
            while True:
                self._check()
                waiting = asyncio.ensure_future(anext(events))
                dying = asyncio.ensure_future(self._died.wait())
                try:
                    await asyncio.wait({waiting, dying}, return_when=asyncio.FIRST_COMPLETED)
                    self._check()
                    batch = waiting.result()
                finally:
                    for each in (waiting, dying):
                        each.cancel()
                    await asyncio.gather(waiting, dying, return_exceptions=True)
                for event in batch:  # one at a time, so that it can die between two chunks
                    yield (event,)
                    if self.max_chunks is not None and hasattr(event, "chunk"):
                        self.max_chunks -= 1
                        if self.max_chunks <= 0:
                            self.kill()
                            self._check()
        finally:
            await events.aclose()

    def _check(self) -> None:
        if self._died.is_set():
            raise ReplicaLost(f"{self.name} died")

    @property
    def is_alive(self) -> bool:
        return not self._died.is_set()


class LocalReplicas:
    """A directory of replicas of stand-in voices. ``listed`` are those that take streams."""

    def __init__(self) -> None:
        self.replicas: list[LocalReplica] = []
        self.listed: list[LocalReplica] = []
        self.may_grow = False
        self.fault = ""
        self.counts = {"desired": 0, "starting": 0}

    async def add(
        self, digest: str = "same", backend: Backend | None = None, config: EngineConfig | None = None
    ) -> LocalReplica:
        engine = await Engine.open(backend=backend or StandInBackend(), config=config, warm_up=False)
        replica = LocalReplica(engine, f"replica-{len(self.replicas) + 1}", digest)
        await replica.host.prepare_cloning()
        self.replicas.append(replica)
        self.listed.append(replica)
        return replica

    async def discover(self) -> list[ReplicaDescription]:
        return [each.host.describe() for each in self.listed if each.is_alive]

    def connect(self, description: ReplicaDescription) -> LocalReplica:
        return next(each for each in self.replicas if each.name == description.replica)

    async def report_metrics(self) -> list[ReplicaMetrics]:
        return []

    async def aclose(self) -> None:
        for each in self.replicas:
            await each.host.aclose()
            await each.engine.aclose()


@asynccontextmanager
async def open_cluster(count: int) -> AsyncIterator[tuple[ClusterEngine, LocalReplicas]]:
    """The engine of a gateway with so many replicas."""
    directory = LocalReplicas()
    for _ in range(count):
        await directory.add()
    engine = await ClusterEngine.connect(directory, EngineConfig())
    try:
        yield engine, directory
    finally:
        await engine.aclose()
