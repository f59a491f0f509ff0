"""Faulty browsers and programs at a gateway, and another call that they must not affect."""

import asyncio
import json
import socket as sockets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shared.browser.chromium import loopback_only
from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from shared.gateways.way_in_servers import browser_calls
from vivavoce.adapters.media.clock import Clock
from vivavoce.adapters.media.paced_media import PacedMedia
from vivavoce.adapters.playback.playout import Playout
from vivavoce.gateway.calls.agents.kinds.script import SilentAgent
from vivavoce.gateway.calls.api import program_socket
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.events import WordHeard
from vivavoce.gateway.calls.registry import ActiveCall
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.engine import Engine

TIMEOUT_S = 120.0
SENTENCE, SENTENCE_S = "Once upon a time. ", 0.8


class SilentLeg:
    """A leg without a network, which drops its packets."""

    dropped = 0

    def __init__(self, gateway: Gateway, clock: Clock, call_id: str) -> None:
        self._gateway = gateway
        self.clock = clock
        self.media = PacedMedia(Playout(start=clock.join(self)), lambda packet: None, now=time.monotonic)
        self.call = Call(call_id, engine=gateway.engine, media=self.media, close=self.end)
        gateway.calls.registry.admit(self, peer="nowhere")
        self.active_call: ActiveCall = gateway.calls.registry.open(
            self, self.call, kind="test", peer="nowhere"
        )

    def tick(self, now: float) -> None:
        self.media.tick(now)

    def fail(self, error: Exception) -> None:
        raise error

    def end(self, reason: str) -> None:
        self.clock.leave(self)
        self._gateway.calls.registry.remove(self, reason)


class GatewayFixture:
    def __init__(self, gateway: Gateway, client: httpx.AsyncClient, clock: Clock) -> None:
        self.gateway = gateway
        self.clock = clock
        self.client = client
        self.web = "{}:{}".format(*gateway.addresses.http)

    def open_call(self, call_id: str) -> SilentLeg:
        return SilentLeg(self.gateway, self.clock, call_id)

    @asynccontextmanager
    async def attached_socket(self, call_id: str) -> AsyncIterator[ClientConnection]:
        async with connect(f"ws://{self.web}/v1/calls/{call_id}/socket") as socket:
            assert json.loads(await socket.recv())["type"] == "started"
            yield socket

    async def offer(self, sdp: str) -> httpx.Response:
        return await self.client.post("/api/offer", json={"type": "offer", "sdp": sdp})


@asynccontextmanager
async def open_gateway() -> AsyncIterator[GatewayFixture]:
    settings = make_settings(http_port=0, audiosocket_port=0)
    async with await Engine.open(backend=StandInBackend()) as engine:
        gateway = await Gateway.open(settings, engine=engine, agent=SilentAgent())
        clock = Clock()
        ticking = asyncio.create_task(clock.run())
        base = "http://{}:{}".format(*gateway.addresses.http)
        try:
            async with httpx.AsyncClient(base_url=base, timeout=TIMEOUT_S, trust_env=False) as client:
                yield GatewayFixture(gateway, client, clock)
        finally:
            ticking.cancel()
            await gateway.aclose()


async def endless_sentences(written: list[str], finished: asyncio.Event) -> AsyncIterator[str]:
    """Yield sentences at the pace of speech until ``finished``; add their words to ``written``."""
    while not finished.is_set():
        written += SENTENCE.rstrip(". ").split()
        yield SENTENCE
        with suppress(TimeoutError):
            async with asyncio.timeout(SENTENCE_S):
                await finished.wait()


def beside_another_call(test: Callable[[GatewayFixture], Awaitable[None]]) -> None:
    """Run a test during another call, every word of which must be played."""

    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S), open_gateway() as fixture:
            other, written, heard, finished = fixture.open_call("other"), [], [], asyncio.Event()
            other.call.events.add_listener(
                lambda event: heard.append(event.word.text) if isinstance(event, WordHeard) else None
            )
            speaking = asyncio.create_task(other.call.speech.speak(endless_sentences(written, finished)))
            while not heard:
                await asyncio.sleep(0.01)
            await test(fixture)
            finished.set()
            assert await speaking is UtteranceOutcome.SPOKEN
            await other.call.speech.wait_played()
            while len(heard) < len(written):
                await asyncio.sleep(0.01)
            assert heard == written
            assert [active_call.call for active_call in fixture.gateway.calls.registry] == [other.call]
            other.end("done")

    with loopback_only():
        asyncio.run(run())


async def valid_offer(*, video: bool = False) -> str:
    browser = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    browser.addTransceiver("video" if video else "audio", direction="recvonly")
    await browser.setLocalDescription(await browser.createOffer())
    sdp = str(browser.localDescription.sdp)
    await browser.close()
    return sdp


def with_candidates(sdp: str, count: int) -> str:
    lines = [line for line in sdp.splitlines() if "candidate" not in line]
    lines += [f"a=candidate:{n} 1 udp {n + 1} 127.0.0.1 {20_000 + n} typ host" for n in range(count)]
    return "\r\n".join(lines) + "\r\n"


def test_unusable_offers_are_refused_with_the_reason_and_do_not_count_as_calls() -> None:
    async def test(fixture: GatewayFixture) -> None:
        sdp = await valid_offer()
        invalid = {
            "no audio": "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n",
            "no audio section;": await valid_offer(video=True),
            "bytes": sdp + "a=x:" + "y" * 1_000_000,
            "characters": sdp + "a=x:" + "y" * 100_000,
            "does not receive": sdp.replace("a=recvonly", "a=sendonly"),
            "cannot be answered": sdp.replace("a=ice-pwd", "a=ice-pw"),
        }
        answers = await asyncio.gather(*(fixture.offer(sdp) for sdp in invalid.values()))
        for reason, answer in zip(invalid, answers, strict=True):
            assert answer.status_code in (400, 413), reason
            assert reason in answer.json()["error"]
        assert len(fixture.gateway.calls.registry._calls_by_leg) == 1  # the other call

    beside_another_call(test)


@pytest.mark.parametrize("candidates", [0, 200])
def test_browsers_that_never_connect_are_answered_and_removed(
    candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(fixture: GatewayFixture) -> None:
        object.__setattr__(browser_calls(fixture.gateway).settings, "connect_s", 0.2)
        sdp = with_candidates(await valid_offer(), candidates)
        registry, counts = fixture.gateway.calls.registry, []
        admit = registry.admit

        def counted_admit(leg: Any, **options: Any) -> None:
            admit(leg, **options)
            counts.append(len(registry._calls_by_leg))

        monkeypatch.setattr(registry, "admit", counted_admit)
        answers = await asyncio.gather(*(fixture.offer(sdp) for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
        assert len(counts) == 5 and min(counts) > 1  # the other call and at least one of these
        await browser_calls(fixture.gateway).wait_idle()
        assert len(registry._calls_by_leg) == 1

    beside_another_call(test)


def test_invalid_messages_of_a_program_are_answered_and_its_call_goes_on() -> None:
    async def test(fixture: GatewayFixture) -> None:
        leg = fixture.open_call("one")
        async with fixture.attached_socket("one") as socket:
            for bad in (b"\x00" * 1_000, "{", "[]", json.dumps({"type": "text", "text": "x" * 1_000_000})):
                await socket.send(bad)
                assert json.loads(await socket.recv())["type"] == "error"
            await socket.send(json.dumps({"type": "text", "text": "Still here. "}))
            assert json.loads(await socket.recv())["type"] == "speech_started"
        leg.end("done")

    beside_another_call(test)


def test_text_for_a_call_that_has_ended_is_ignored() -> None:
    async def test(fixture: GatewayFixture) -> None:
        leg = fixture.open_call("one")
        async with fixture.attached_socket("one") as socket:
            leg.end("gone")
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await socket.send(json.dumps({"type": "text", "text": "Are you there? "}))
                    await asyncio.sleep(0)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1000
        assert (await fixture.client.post("/v1/calls/one/speech", content="Hello?")).status_code == 404
        assert (await fixture.client.post("/v1/calls/one/discard")).status_code == 404
        assert (await fixture.client.delete("/v1/calls/one")).status_code == 404

    beside_another_call(test)


def test_the_end_of_a_call_ends_the_request_that_speaks_on_it() -> None:
    async def test(fixture: GatewayFixture) -> None:
        leg, finished = fixture.open_call("one"), asyncio.Event()

        async def endless_body() -> AsyncIterator[bytes]:
            yield b"Once more. "
            while not finished.is_set():
                yield b"And so on. "
                await asyncio.sleep(0.01)

        speaking = asyncio.create_task(fixture.client.post("/v1/calls/one/speech", content=endless_body()))
        while not leg.active_call.attached:
            await asyncio.sleep(0.01)
        leg.end("gone")
        while leg.active_call.attached:  # without waiting for the end of the request
            await asyncio.sleep(0.01)
        finished.set()
        answer = await speaking
        assert answer.json()["outcome"] in ("discarded", "cut short")

    beside_another_call(test)


def test_a_program_that_stops_reading_is_detached_and_the_call_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_socket, "SEND_TIMEOUT_S", 0.3)

    async def test(fixture: GatewayFixture) -> None:
        leg = fixture.open_call("one")
        _, writer = await open_and_never_read(fixture, "/v1/calls/one/socket?audio=in")
        while not leg.active_call.attached:
            await asyncio.sleep(0.01)
        while leg.active_call.attached:
            leg.media.receive_audio(bytes(32_000), 8_000)
            await asyncio.sleep(0.005)
        async with fixture.attached_socket("one"):
            pass  # another program may attach
        leg.end("done")
        writer.close()

    beside_another_call(test)


async def open_and_never_read(fixture: GatewayFixture, path: str) -> tuple[Any, asyncio.StreamWriter]:
    sock = sockets.socket()
    sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, fixture.gateway.addresses.http)
    reader, writer = await asyncio.open_connection(sock=sock, limit=1_024)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {fixture.web}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    return reader, writer
