"""An AudioSocket call server and its peers for tests, over loopback sockets."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np

from shared.engine.standin_backend import StandInBackend
from vivavoce.adapters.media.servers.media_servers import MediaServers
from vivavoce.adapters.voice_activity import VoiceActivityDetector
from vivavoce.gateway.calls.agents.agent import Agent
from vivavoce.gateway.calls.agents.kinds.script import SilentAgent
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.call_options import CallSpeechOptions
from vivavoce.gateway.calls.expected_calls import ExpectedCalls
from vivavoce.gateway.calls.registry import CallRegistry
from vivavoce.gateway.calls.ways_in.audiosocket.call_server import (
    AudioSocketCallServer,
    AudioSocketCallSettings,
)
from vivavoce.gateway.calls.ways_in.way_in import CallServices
from vivavoce.tts_engine.engine import Engine

CALL_ID = UUID("00000000-0000-4000-8000-000000000007")
SILENCE = bytes(320)
SETTINGS = AudioSocketCallSettings(
    sample_rate=8000, first_message_s=5.0, stalled_s=5.0, lead_s=0.6, speech=CallSpeechOptions()
)


class SpeakingAgent:
    """Speaks one text, after which the call ends."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def run(self, call: Call) -> None:
        await call.speech.speak(self._text)


class FunctionAgent:
    """Runs a coroutine function as an agent."""

    def __init__(self, run: Callable[[Call], Awaitable[None]]) -> None:
        self._run = run

    async def run(self, call: Call) -> None:
        await self._run(call)


class RunningServer:
    """A server on a free port of the loopback address."""

    def __init__(
        self, audiosocket: AudioSocketCallServer, media: MediaServers, engine: Engine, port: int
    ) -> None:
        self.audiosocket = audiosocket
        self.media = media
        self._engine = engine
        self.port = port

    def metric(self, name: str, **labels: str) -> float:
        registry = self._engine.metrics.registry
        return registry.get_sample_value(f"vivavoce_{name}", labels) or 0.0

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def run_server(
    agent: Agent | None = None,
    *,
    pitches_hz: tuple[int, ...] = (440,),
    max_calls: int = 50,
    media_processes: int = 0,
    expected: ExpectedCalls | None = None,
    **settings: Any,
) -> AsyncIterator[RunningServer]:
    """Run an AudioSocket server; at the end no task and no stream may be left."""
    tasks_before = asyncio.all_tasks()
    async with await Engine.open(backend=StandInBackend(pitches_hz)) as engine:
        media = MediaServers(media_processes, VoiceActivityDetector)
        await media.start()
        server = AudioSocketCallServer(
            media=media, services=CallServices(engine, CallRegistry(engine, max_calls=max_calls)),
            agent=agent or SilentAgent(), policy=replace(SETTINGS, **settings), expected=expected,
        )  # fmt: skip
        sock = socket.create_server(("127.0.0.1", 0))
        await server.listen(sock)
        try:
            yield RunningServer(server, media, engine, sock.getsockname()[1])
        finally:
            await server.aclose()
            await media.aclose()
    assert asyncio.all_tasks() == tasks_before
    assert engine.active_streams == 0


def message(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack("!BH", kind, len(payload)) + payload


def call_id_message(number: int | UUID = CALL_ID) -> bytes:
    return message(0x01, UUID(int=number).bytes if isinstance(number, int) else number.bytes)


class Peer:
    """A client that sends any bytes and splits the received bytes into messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def receive(self) -> tuple[int, bytes] | None:
        """The next message, or None at the end of the connection. An incomplete message fails the test."""
        try:
            header = await self.reader.readexactly(3)
        except asyncio.IncompleteReadError as error:
            assert error.partial == b""
            return None
        except ConnectionError:
            return None
        kind, length = struct.unpack("!BH", header)
        return kind, await self.reader.readexactly(length)

    async def receive_packets(self, count: int) -> list[bytes]:
        messages = [await self.receive() for _ in range(count)]
        assert {kind for kind, _ in filter(None, messages)} == {0x10}
        return [payload for _, payload in filter(None, messages)]

    async def receive_all(self) -> tuple[list[bytes], bool]:
        """Every packet until the end, and whether a hangup message (0x00) ended them."""
        packets: list[bytes] = []
        while (received := await self.receive()) is not None:
            kind, payload = received
            if kind == 0x00:
                assert await self.receive() is None
                return packets, True
            assert kind in (0x10, 0x13)
            packets.append(payload)
        return packets, False


@asynccontextmanager
async def connect(
    server: RunningServer, first: bytes = b"", *, receive_buffer: int | None = None
) -> AsyncIterator[Peer]:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**20)
    try:
        async with asyncio.timeout(60):
            peer = Peer(reader, writer)
            await peer.send(first)
            yield peer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def level_dbfs(pcm: bytes) -> float:
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    return 20 * float(np.log10(np.sqrt(np.mean(np.square(samples))) / 32768 + 1e-9))
