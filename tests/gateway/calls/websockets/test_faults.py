"""Peers that break the rules: each ends its own call, with a line in the log that has the call's id."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shared.calls.carrier_messages import TWILIO_START
from shared.calls.websocket_calls import WebSocketCallServer, new_call_id, with_server
from shared.event_loop import until
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.gateway.cli.phones.asterisk_peer import SimulatedAsterisk
from vivavoce.gateway.cli.phones.twilio_peer import SimulatedTwilio

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
        speaking = asyncio.create_task(call.speak("one two three."))
        async with connect(server.url + path, compression=None, proxy=None) as socket:
            await attacker(server, socket)
        assert await speaking is UtteranceOutcome.SPOKEN
        await call.wait_played()
        assert bystander.queue.played_packets in (30, 31)  # the last one is filled up
        await until(lambda: len(server.gateway.call_registry) == 1)

    with_server(test, **settings)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line for line in warnings if log in line], warnings
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


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
        speaking = asyncio.create_task(call.speak("one two three."))
        for number, (message, _) in enumerate(WRONG_MESSAGES):
            url = f"{server.url}/v1/media-streams/twilio"
            async with connect(url, compression=None, proxy=None) as socket:
                await socket.send(str(SimulatedTwilio(f"CA{number}").start()[1]))
                await until(lambda call_id=f"CA{number}": server.find(call_id) is not None)  # type: ignore[misc]
                await socket.send(message)
                await closed_by_the_gateway(socket)
        assert await speaking is UtteranceOutcome.SPOKEN
        await call.wait_played()
        assert bystander.queue.played_packets in (30, 31)

    with_server(test)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len(WRONG_MESSAGES)
    for number, (_, log) in enumerate(WRONG_MESSAGES):
        assert warnings[number].startswith(f"Call CA{number}: {log}")


def test_audio_before_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        await socket.send('{"event":"media","media":{"payload":"/w=="}}')
        await closed_by_the_gateway(socket)

    attack(caplog, "/v1/media-streams/twilio", attacker, "got audio before the start of the stream")


def test_a_peer_that_sends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        await closed_by_the_gateway(socket)

    attack(caplog, "/v1/asterisk/media", attacker, "no start of a stream within 0.3 s", first_message_s=0.3)


def test_a_peer_that_falls_silent_in_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        await socket.send(str(SimulatedAsterisk("A1").start()[0]))
        await closed_by_the_gateway(socket)

    attack(
        caplog, "/v1/asterisk/media", attacker, "Call A1: the peer has sent nothing for 0.5 s", silent_s=0.5
    )


def test_a_second_stream_of_a_call_leaves_the_first_one_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def attacker(server: WebSocketCallServer, socket: ClientConnection) -> None:
        (bystander,) = server.gateway.call_registry
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
        speaking = asyncio.create_task(call.speak("one two three. " * 200))
        await server.wait_ended(call)
        await speaking
        socket.transport.abort()

    attack(
        caplog, "/v1/asterisk/media", attacker, "Call A1: the peer has taken nothing for 0.5 s", stalled_s=0.5
    )
