"""The TCP transport between a gateway and a replica: streams, strangers, and ends."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from shared.engine.engine_streams import TEXT
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.gateway.cluster.replicas.messages import ReplicaDescription, ReplicaEndpoint, ReplicaLost
from vivavoce.gateway.cluster.replicas.replica_host import ReplicaHost
from vivavoce.gateway.cluster.replicas.replica_socket import LinkSecurity, ReplicaServer, SocketChannel
from vivavoce.tts_engine.chunk import AudioChunk
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import BadRequest
from vivavoce.tts_engine.speech_engine import SpeechStream


class ServedReplicas:
    """A directory of replicas behind sockets."""

    fault, may_grow = "", False

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.hosts: list[ReplicaHost] = []
        self.servers: list[ReplicaServer] = []
        self.engines: list[Engine] = []
        self.descriptions: list[ReplicaDescription] = []

    async def add(self) -> ReplicaEndpoint:
        engine = await Engine.open(backend=StandInBackend(), warm_up=False)
        host = ReplicaHost(engine, f"replica-{len(self.hosts)}", "digest")
        server = ReplicaServer(host)
        endpoint = await server.open("127.0.0.1")
        self.hosts.append(host)
        self.servers.append(server)
        self.engines.append(engine)
        self.descriptions.append(replace(host.describe(), endpoint=endpoint))
        return endpoint

    async def discover(self) -> list[ReplicaDescription]:
        return list(self.descriptions)

    async def report_metrics(self) -> list[object]:
        return []

    def connect(self, description: ReplicaDescription) -> SocketChannel:
        assert description.endpoint is not None
        return SocketChannel(description.replica, description.endpoint, LinkSecurity())

    async def aclose(self) -> None:
        for host, server, engine in zip(self.hosts, self.servers, self.engines, strict=True):
            await server.aclose()
            await host.aclose()
            await engine.aclose()


@asynccontextmanager
async def served(count: int) -> AsyncIterator[tuple[ClusterEngine, ServedReplicas]]:
    directory = ServedReplicas()
    for _ in range(count):
        await directory.add()
    async with await ClusterEngine.connect(directory, EngineConfig()) as engine:  # type: ignore[arg-type]
        yield engine, directory


async def speak(stream: SpeechStream) -> list[AudioChunk]:
    async with stream:
        stream.push_text(TEXT)
        stream.end_input()
        return [chunk async for chunk in stream]


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_streams_over_a_socket_have_the_samples_of_a_local_engine() -> None:
    async def test() -> None:
        async with served(2) as (engine, _), await Engine.open(backend=StandInBackend()) as local:
            here = await speak(local.stream())
            for there in await asyncio.gather(*(speak(engine.stream()) for _ in range(6))):
                assert [chunk.pcm for chunk in there] == [chunk.pcm for chunk in here]

    run(test)


def test_a_connection_that_breaks_moves_the_streams() -> None:
    async def test() -> None:
        async with served(2) as (engine, directory):
            streams = [engine.stream() for _ in range(4)]
            for stream in streams:
                stream.push_text(TEXT)
            await until(lambda: all(len(host._links) == 1 for host in directory.hosts))
            broken = engine._links["replica-0"]
            directory.descriptions.pop(0)
            assert broken._channel._writer is not None  # type: ignore[attr-defined]
            broken._channel._writer.transport.abort()  # type: ignore[attr-defined]
            for stream in streams:
                stream.end_input()
                chunks = [chunk async for chunk in stream]
                assert [word.text for chunk in chunks for word in chunk.words] == [
                    word.strip(",.!") for word in TEXT.split()
                ]
            assert engine.replicas == ("replica-1",)

    run(test)


@pytest.mark.parametrize(
    "hello",
    [
        json.dumps({"token": "0" * 64, "wants": "link"}).encode(),
        json.dumps(["link"]).encode(),
        b"\x80\x04K\x01.",
        b"",
    ],
    ids=["wrong token", "no table", "pickle", "nothing"],
)
def test_a_stranger_gets_nothing_and_nothing_of_it_is_unpickled(hello: bytes) -> None:
    async def test() -> None:
        directory = ServedReplicas()
        endpoint = await directory.add()
        reader, writer = await asyncio.open_connection(endpoint.address, endpoint.port)
        writer.write(struct.pack(">I", len(hello)) + hello + struct.pack(">I", 1))
        assert await reader.read() == b""
        writer.close()
        assert not directory.hosts[0]._links
        await directory.aclose()

    run(test)


def test_a_frame_beyond_the_bound_ends_the_connection() -> None:
    async def test() -> None:
        directory = ServedReplicas()
        endpoint = await directory.add()
        reader, writer = await asyncio.open_connection(endpoint.address, endpoint.port)
        writer.write(struct.pack(">I", 2_000_000_000))
        assert await reader.read() == b""
        writer.close()
        await directory.aclose()

    run(test)


def test_recordings_go_over_a_connection_of_their_own() -> None:
    async def test() -> None:
        async with served(1) as (_, directory):
            channel = directory.connect(directory.descriptions[0])
            assert isinstance(await channel.encode((), ""), BadRequest)  # the stand-in clones no voices
            await directory.servers[0].aclose()
            with pytest.raises(ReplicaLost, match="replica-0 is lost"):
                await channel.encode((), "")

    run(test)


def test_a_replica_that_finishes_takes_no_new_stream_and_ends_after_the_last_one() -> None:
    async def test() -> None:
        async with served(2) as (engine, directory):
            stream = engine.stream()
            stream.push_text(TEXT)
            await until(lambda: engine.replica_streams == 1)
            (name,) = stream.tried
            leaving = directory.hosts[int(name[-1])]
            finishing = asyncio.create_task(leaving.finish())
            await until(lambda: name not in engine.replicas)
            assert await speak(engine.stream()) and not finishing.done()
            stream.end_input()
            assert len([chunk async for chunk in stream]) > 5
            await finishing

    run(test)
