"""A gateway with phones for tests of the calls API, and helpers for the sockets of attached programs."""

import asyncio
import json
import struct
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from shared.engine.standin_backend import StandInBackend
from vivavoce.adapters.audiosocket.protocol import (
    SAMPLE_RATE_OF_KIND,
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
)
from vivavoce.gateway.calls.agents.kinds.script import SilentAgent
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.engine import Engine

from ..gateways.made_settings import make_settings


class Phone:
    """A caller over AudioSocket; keeps the audio it receives."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call_id: str | None = None
    ) -> None:
        self.call_id = call_id or str(uuid.uuid4())
        self.heard = bytearray()
        self.rates: set[int] = set()  # of what was heard, Hz
        self.hung_up = asyncio.Event()
        self._writer = writer
        self._connection = AudioSocketConnection(AudioSocketRole.CALLER)
        self.send(CallId(uuid.UUID(self.call_id)))
        self._receiving = asyncio.create_task(self._receive(reader))

    def send(self, message: CallId | AudioSocketAudio | Dtmf | Hangup) -> None:
        self._writer.write(self._connection.send(message))

    def send_audio(self, sample_rate: int, pcm: bytes) -> None:
        """Send a message that may exceed one TCP segment, as Asterisk does at high rates."""
        kind = next(kind for kind, rate in SAMPLE_RATE_OF_KIND.items() if rate == sample_rate)
        self._writer.write(struct.pack("!BH", kind, len(pcm)) + pcm)

    async def aclose(self) -> None:
        self._receiving.cancel()
        self._writer.close()
        await asyncio.gather(self._receiving, return_exceptions=True)

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(4096):
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, AudioSocketAudio):
                    self.heard += event.payload
                    self.rates.add(event.sample_rate)
                elif isinstance(event, Hangup):
                    self.hung_up.set()
        self.hung_up.set()


class CallServer:
    """A gateway, its phones, and clients of its calls API."""

    def __init__(self, gateway: Gateway, headers: dict[str, str]) -> None:
        self.gateway = gateway
        self.headers = headers
        self.phones: list[Phone] = []
        host, port = gateway.addresses.http
        self.base = f"{host}:{port}/v1/calls"

    async def dial(self, call_id: str | None = None) -> Phone:
        """Call, and do not wait for the call."""
        phone = Phone(*await asyncio.open_connection(*self.gateway.addresses.ways_in["audiosocket"]), call_id)
        self.phones.append(phone)
        return phone

    async def phone(self, call_id: str | None = None) -> Phone:
        phone = await self.dial(call_id)
        while phone.call_id not in [active_call.call.call_id for active_call in self.gateway.calls.registry]:
            await asyncio.sleep(0.005)
        return phone

    @asynccontextmanager
    async def socket(self, call_id: str, query: str = "") -> AsyncIterator[ClientConnection]:
        url = f"ws://{self.base}/{call_id}/socket{query}"
        async with connect(url, additional_headers=self.headers) as socket:
            yield socket

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(
            base_url=f"http://{self.base}", timeout=20, follow_redirects=True, headers=self.headers
        ) as client:
            yield client


@asynccontextmanager
async def call_server(
    keys_file: Path | None = None, key: str = "", *, backend: StandInBackend | None = None, **changes: Any
) -> AsyncIterator[CallServer]:
    settings = make_settings(http_port=0, audiosocket_port=0, access_keys_file=keys_file, **changes)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with await Engine.open(backend=backend or StandInBackend()) as engine:
        gateway = await Gateway.open(settings, engine=engine, agent=SilentAgent())
        server = CallServer(gateway, headers)
        try:
            yield server
        finally:
            for phone in server.phones:
                await phone.aclose()
            await gateway.aclose()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def send_utterance(socket: ClientConnection, *texts: str) -> None:
    for text in texts:
        await socket.send(json.dumps({"type": "text", "text": text}))
    await socket.send(json.dumps({"type": "end"}))


async def until(socket: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """Return the messages up to the first of that type."""
    messages = []
    while True:
        message = json.loads(await socket.recv())
        messages.append(message)
        if message["type"] == kind:
            return messages


async def until_unattached(server: CallServer, phone: Phone) -> None:
    """Wait until the gateway has detached the call's program."""
    while server.gateway.calls.registry.get(phone.call_id).attached:
        await asyncio.sleep(0.01)


def words(received: list[dict[str, Any]]) -> list[str]:
    return [message["text"] for message in received if message["type"] == "word"]
