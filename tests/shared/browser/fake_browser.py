"""Browser calls for tests: a server with its routes, fake browsers, and a fake language model."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from shared.engine.standin_backend import StandInBackend
from vivavoce.adapters.media.clock import Clock
from vivavoce.adapters.playback.background import BackgroundLoops
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls.agents.agent import Agent
from vivavoce.gateway.calls.registry import CallRegistry
from vivavoce.gateway.calls.ways_in.browser.calls import BrowserCalls
from vivavoce.gateway.calls.ways_in.browser.chat import ChatSettings
from vivavoce.gateway.calls.ways_in.browser.leg import BrowserPeerEvents
from vivavoce.gateway.calls.ways_in.browser.routes import page_routes, routes
from vivavoce.gateway.calls.ways_in.browser.settings import BrowserCallSettings
from vivavoce.gateway.calls.ways_in.way_in import CallServices
from vivavoce.gateway.voice_registry import VoiceRegistry
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest

TIMEOUT_S = 30.0
OFFER = {"type": "offer", "sdp": "v=0"}


class FakePeer:
    """A browser's connection that keeps what it is sent."""

    def __init__(self, events: BrowserPeerEvents) -> None:
        self.events = events
        self.leg = events.leg
        self.answer_sdp = "v=0 answer"
        self.dropped = 0
        self.packets: list[bytes] = []
        self.received: list[dict[str, Any]] = []
        self.offers: list[str] = []
        self.candidates: list[tuple[str, str | None, int | None]] = []
        self.closed: str | None = None
        self._changed = asyncio.Event()

    async def renegotiate(self, offer_sdp: str) -> None:
        self.offers.append(offer_sdp)

    async def add_candidate(self, candidate: str, mid: str | None, line: int | None) -> None:
        self.candidates.append((candidate, mid, line))

    def feed(self, packet: bytes) -> None:
        self.packets.append(packet)
        self._changed.set()

    def discard(self) -> None:
        pass

    def send_message(self, message: str) -> None:
        message.encode()  # as aiortc does
        self.received.append(json.loads(message))
        self._changed.set()

    def close(self, reason: str) -> None:
        if self.closed is None:
            self.closed = reason
            self.events.on_closed(reason)

    async def aclose(self) -> None:
        self.close("closed here")

    # For tests

    def send(self, **message: Any) -> None:
        self.events.on_message(json.dumps(message, separators=(",", ":")))

    def of_type(self, *kinds: str) -> list[dict[str, Any]]:
        return [message for message in self.received if message.get("type") in kinds]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_received(self, kind: str, count: int = 1) -> dict[str, Any]:
        await self.until(lambda: len(self.of_type(kind)) >= count)
        return self.of_type(kind)[count - 1]

    def is_audible(self) -> bool:
        return any(np.frombuffer(packet, "<i2").any() for packet in self.packets[-3:])


class BrowserServer:
    """Browser calls with fake peers, and an HTTP client for their routes."""

    def __init__(
        self, calls: BrowserCalls, clock: Clock, client: httpx.AsyncClient, peers: list[FakePeer]
    ) -> None:
        self.calls = calls
        self.clock = clock
        self.client = client
        self.peers = peers

    async def call(self) -> FakePeer:
        answer = await self.client.post("/api/offer", json=OFFER)
        assert answer.status_code == 200, answer.text
        peer = self.peers[-1]
        peer.leg.on_connected()
        await peer.until_received("started")
        return peer


@asynccontextmanager
async def serve_browsers(
    *,
    make_speech_detector: Any = None,
    real: bool = False,
    max_calls: int = 100,
    agent: Agent | None = None,
    access: AccessControl | None = None,
    headers: dict[str, str] | None = None,
    background: BackgroundLoops | None = None,
    **settings: Any,
) -> AsyncIterator[BrowserServer]:
    peers: list[FakePeer] = []

    async def connect(sdp: str, events: BrowserPeerEvents, settings: BrowserCallSettings) -> FakePeer:
        if not sdp:
            raise BadRequest("an empty offer")
        await asyncio.sleep(0)  # as a negotiation takes its time
        peers.append(FakePeer(events))
        return peers[-1]

    settings = {"greeting": "", **settings}
    access = access or AccessControl.open_to_all()
    async with await Engine.open(backend=StandInBackend((440, 660))) as engine:
        clock = Clock()
        ticking = asyncio.create_task(clock.run())
        calls = BrowserCalls(
            clock=clock,
            services=CallServices(engine, CallRegistry(engine, max_calls=max_calls), background=background),
            voices=VoiceRegistry(engine.voices),
            settings=BrowserCallSettings(**settings),
            agent=agent, make_speech_detector=make_speech_detector, connect=None if real else connect,
        )  # fmt: skip
        app = make_app(
            unready=lambda: None,
            registry=engine.metrics.registry,
            access=access,
            mounts=[Mount(routes(calls), Scope.PAGE), Mount(page_routes(access), None)],
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://gateway", headers=headers
        ) as client:
            yield BrowserServer(calls, clock, client, peers)
        await calls.aclose()
        ticking.cancel()
        await asyncio.wait({ticking})


def with_server(test: Callable[[BrowserServer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(3 * TIMEOUT_S), serve_browsers(**settings) as opened:
            await test(opened)

    asyncio.run(run())


class FakeSpeechDetector:
    """Takes any audio but digital silence for speech."""

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        assert sample_rate == 16_000
        return [VoiceActivityChange(any(pcm), 0.0)]


def limited_key(tmp_path: Path, characters_per_minute: int) -> dict[str, Any]:
    """Settings of a server with one key of that quota."""
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("page", (Scope.CALLS,), KeyLimits(characters_per_minute=characters_per_minute))
    return {"access": AccessControl(keys), "headers": {"authorization": f"Bearer {key}"}}


class FakeLanguageModel:
    """A chat-completions server that streams each of ``answers`` in turn, and keeps the requests."""

    def __init__(self, *answers: list[str], status: str = "200 OK", pause_s: float = 0.0) -> None:
        self.asked: list[list[dict[str, str]]] = []
        self.headers: list[bytes] = []
        self._answers = list(answers)
        self._status = status
        self._pause_s = pause_s
        self.disconnected = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
        self.headers.append(head)
        self.asked.append(json.loads(await reader.readexactly(length))["messages"])
        writer.write(f"HTTP/1.1 {self._status}\r\ncontent-type: text/event-stream\r\n\r\n".encode())
        try:
            for token in self._answers.pop(0) if self._answers else []:
                event = {"choices": [{"delta": {"content": token}}]}
                writer.write(f"data: {json.dumps(event)}\n\n".encode())
                await writer.drain()
                await asyncio.sleep(self._pause_s)
            writer.write(b"data: [DONE]\n\n")
        except ConnectionError:
            self.disconnected.set()
        finally:
            writer.close()


def with_model(
    model: FakeLanguageModel, test: Callable[[FakePeer], Awaitable[None]], **settings: Any
) -> None:
    async def run() -> None:
        async with asyncio.timeout(3 * TIMEOUT_S), model.serving() as url:
            chat = ChatSettings(base_url=url, model="m", api_key="secret")
            async with serve_browsers(chat=chat, **settings) as opened:
                await test(await opened.call())

    asyncio.run(run())
