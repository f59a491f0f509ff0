"""Peers that break the rules: each ends its own call, with a line in the log that has the call's id."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from shared.calls.carrier_messages import TWILIO_START
from shared.calls.peers.asterisk import SimulatedAsterisk
from shared.calls.peers.kinds import MAKE_PEER
from shared.calls.peers.peer import SimulatedPeer
from shared.calls.peers.telnyx import SimulatedTelnyx
from shared.calls.peers.twilio import SimulatedTwilio
from shared.calls.websocket_calls import WebSocketCallServer, new_call_id, with_server
from shared.event_loop import until
from vivavoce.adapters.call_rate_limit import AUDIO_BURST_S
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome

PTIME_S = 0.02
Attack = Callable[[WebSocketCallServer, ClientConnection], Awaitable[None]]


async def closed_by_the_gateway(socket: ClientConnection) -> None:
    """Read until the gateway closes the socket."""
    async with asyncio.timeout(30):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed:
            return


def attack(caplog: pytest.LogCaptureFixture, path: str, attacker: Attack, log: str, **settings: Any) -> None:
    """Run an attacker beside a call that must be spoken on to its end; ``log`` is the warning about it."""

    async def test(server: WebSocketCallServer) -> None:
        bystander = SimulatedTwilio(new_call_id())
        _, call = await server.dial(bystander)
        speaking = asyncio.create_task(call.speech.speak("one two three."))
        async with connect(server.url + path, compression=None, proxy=None) as socket:
            await attacker(server, socket)
        assert await speaking is UtteranceOutcome.SPOKEN
        await call.speech.wait_played()
        assert bystander.queue.played_packets in (30, 31)  # the last one is filled up
        await until(lambda: len(server.gateway.calls.registry) == 1)

    with_server(test, **settings)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line for line in warnings if log in line], warnings
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def attack_on_every_wire(
    caplog: pytest.LogCaptureFixture,
    attacker: Callable[[WebSocketCallServer, SimulatedPeer, ClientConnection], Awaitable[None]],
    log: str,
) -> None:
    """Run an attacker on a call of each kind of peer, as ``attack``; "": it is no warning."""
    peers = [make_peer(new_call_id()) for make_peer in MAKE_PEER.values()]

    async def attack_as(server: WebSocketCallServer, peer: SimulatedPeer) -> None:
        protocols = [Subprotocol(one) for one in peer.subprotocols] or None
        url = server.url + peer.path
        async with connect(url, compression=None, proxy=None, subprotocols=protocols) as socket:
            for message in (*peer.start(), *peer.step().messages):
                await socket.send(message)
            await until(lambda: server.find(peer.call_id) is not None)
            call = server.find(peer.call_id)
            assert call is not None
            await attacker(server, peer, socket)
            await server.wait_ended(call)

    async def test(server: WebSocketCallServer) -> None:
        bystander = SimulatedTwilio(new_call_id())
        _, call = await server.dial(bystander)
        speaking = asyncio.create_task(call.speech.speak("one two three."))
        for peer in peers:
            await attack_as(server, peer)
        assert await speaking is UtteranceOutcome.SPOKEN
        await call.speech.wait_played()
        assert bystander.queue.played_packets in (30, 31)
        assert bystander.call_id in {active.call.call_id for active in server.gateway.calls.registry}

    with_server(test)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    expected = [f"Call {peer.call_id}: {log}" for peer in peers if log]
    assert [line[: len(begin)] for line, begin in zip(warnings, expected, strict=True)] == expected
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def send_steps(peer: SimulatedPeer, socket: ClientConnection, count: int) -> None:
    """Send packets of the caller at once."""
    for _ in range(count):
        for message in peer.step().messages:
            await socket.send(message)


WRONG_MESSAGES: list[tuple[str | bytes, str]] = [
    ('{"event":"media","media":{"payload":"%%%"}}', "media.payload: got '%%%'"),
    ("not json", "got 'not json', which is not JSON"),
    (b"\x00" * 160, "got a binary message of 160 bytes"),
    (json.dumps(TWILIO_START), "got a start in the call"),
    ("x" * 200_000, "got a message of 200000 bytes"),
]


def test_wrong_messages_end_their_calls_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: WebSocketCallServer) -> None:
        bystander = SimulatedTwilio(new_call_id())
        _, call = await server.dial(bystander)
        speaking = asyncio.create_task(call.speech.speak("one two three."))
        for number, (message, _) in enumerate(WRONG_MESSAGES):
            url = f"{server.url}/v1/media-streams/twilio"
            async with connect(url, compression=None, proxy=None) as socket:
                await socket.send(str(SimulatedTwilio(f"CA{number}").start()[1]))
                await until(lambda call_id=f"CA{number}": server.find(call_id) is not None)  # type: ignore[misc]
                await socket.send(message)
                await closed_by_the_gateway(socket)
        assert await speaking is UtteranceOutcome.SPOKEN
        await call.speech.wait_played()
        assert bystander.queue.played_packets in (30, 31)

    with_server(test)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len(WRONG_MESSAGES)
    for number, (_, log) in enumerate(WRONG_MESSAGES):
        assert warnings[number].startswith(f"Call CA{number}: {log}")


def test_a_message_that_is_too_long_ends_its_call_alone_on_every_wire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def attacker(server: WebSocketCallServer, peer: SimulatedPeer, socket: ClientConnection) -> None:
        await socket.send("x" * 200_000)
        await closed_by_the_gateway(socket)

    attack_on_every_wire(caplog, attacker, "got a message of 200000 bytes")


def test_a_burst_of_audio_after_a_stall_passes_and_a_flood_ends_its_call_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def attacker(server: WebSocketCallServer, peer: SimulatedPeer, socket: ClientConnection) -> None:
        call = server.find(peer.call_id)
        assert call is not None
        await send_steps(peer, socket, int(0.8 * AUDIO_BURST_S / PTIME_S))
        assert await call.speech.speak("one.") is UtteranceOutcome.SPOKEN
        with suppress(ConnectionClosed):
            while True:  # at least as fast as it is allowed, and ahead by the rest of the burst
                await send_steps(peer, socket, 100)
                await asyncio.sleep(0)

    attack_on_every_wire(caplog, attacker, "got more than 30 s of audio at once and 1.5 s a second")


def test_a_flood_of_control_messages_ends_its_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, peer: SimulatedPeer, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                for message in peer.press("1") * 50:
                    await socket.send(message)
                await asyncio.sleep(0)

    attack_on_every_wire(caplog, attacker, "got more than 400 control messages at once and 20 a second")


def test_a_carrier_may_send_our_own_speech_as_well() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedTelnyx(new_call_id())
        own_speech = json.dumps({"event": "media", "media": {"track": "outbound", "payload": "/////w=="}})
        async with connect(server.url + peer.path, compression=None, proxy=None) as socket:
            for message in (*peer.start(), *[own_speech] * 1_000, *peer.press("5")):
                await socket.send(message)
            await until(lambda: server.find(peer.call_id) is not None)
            call = server.find(peer.call_id)
            assert call is not None
            assert await call.speech.speak("one.") is UtteranceOutcome.SPOKEN

    with_server(test)


def test_a_peer_that_vanishes_ends_its_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, peer: SimulatedPeer, socket: ClientConnection) -> None:
        socket.transport.abort()

    attack_on_every_wire(caplog, attacker, "")


def test_audio_before_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        await socket.send('{"event":"media","media":{"payload":"/w=="}}')
        await closed_by_the_gateway(socket)

    attack(caplog, "/v1/media-streams/twilio", attacker, "got audio before the start of the stream")


def test_a_peer_that_sends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        await closed_by_the_gateway(socket)

    attack(
        caplog,
        "/v1/asterisk/media",
        attacker,
        "no start of a stream within 0.3 s",
        timeouts={"first_message_s": 0.3},
    )


def test_a_peer_that_falls_silent_in_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        await socket.send(str(SimulatedAsterisk("A1").start()[0]))
        await closed_by_the_gateway(socket)

    attack(
        caplog,
        "/v1/asterisk/media",
        attacker,
        "Call A1: the peer has sent nothing for 0.5 s",
        timeouts={"silent_s": 0.5},
    )


def test_a_second_stream_of_a_call_leaves_the_first_one_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        (bystander,) = server.gateway.calls.registry
        start = SimulatedTwilio(bystander.call.call_id).start()[1]
        await socket.send(start)
        await closed_by_the_gateway(socket)

    attack(caplog, "/v1/media-streams/twilio", attacker, "got a second stream of the call")


def test_a_message_of_10_megabytes(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        await socket.send(str(SimulatedAsterisk("A1").start()[0]))
        await until(lambda: server.find("A1") is not None)
        with pytest.raises(ConnectionClosed):
            await socket.send(bytes(10_000_000))
            await socket.recv()

    attack(caplog, "/v1/asterisk/media", attacker, "Call A1: the WebSocket was closed with 1009 ")


def test_a_peer_that_never_reads(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        socket.transport.pause_reading()
        await socket.send(str(SimulatedAsterisk("A1", "slin48").start()[0]))
        await until(lambda: server.find("A1") is not None)
        call = server.find("A1")
        assert call is not None
        speaking = asyncio.create_task(call.speech.speak("one two three. " * 200))
        await server.wait_ended(call)
        await speaking
        socket.transport.abort()

    attack(
        caplog,
        "/v1/asterisk/media",
        attacker,
        "Call A1: the peer has taken nothing for 0.5 s",
        timeouts={"stalled_s": 0.5},
    )
