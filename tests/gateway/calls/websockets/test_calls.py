"""Calls over real WebSockets with simulated peers: speech, barge-in, keys and the end, on each wire."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from shared.calls.websocket_calls import WebSocketCallServer, new_call_id, with_server
from shared.event_loop import until
from shared.tones import pitch_of
from vivavoce.adapters.media_streams.asterisk import AsteriskStreamConnection
from vivavoce.gateway.calls.agents import KeysAgent
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.events import CallEvent, KeyPressed, SpeechDiscarded, SpeechFinished
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.gateway.calls.websockets.asterisk_sockets import connect_to_asterisk
from vivavoce.gateway.calls.websockets.message_socket import MessageSocket
from vivavoce.gateway.cli.phones.asterisk_peer import SimulatedAsterisk
from vivavoce.gateway.cli.phones.peer import SimulatedPeer
from vivavoce.gateway.cli.phones.twilio_peer import SimulatedTwilio
from vivavoce.gateway.cli.phones.websocket_phones import WebSocketPhone
from vivavoce.tts_engine.chunk import SAMPLE_RATE

TEN_WORDS = "one two three four five six seven eight nine ten"
WORD_S = 0.2  # of the stand-in voice
Peer = SimulatedAsterisk | SimulatedTwilio
MakePeer = Callable[[], Peer]


def asterisk(name: str, *, uses_json: bool = True) -> MakePeer:
    return lambda: SimulatedAsterisk(new_call_id(), name, uses_json=uses_json)


WIRES = {
    "asterisk ulaw": asterisk("ulaw"),
    "asterisk alaw, plain text": asterisk("alaw", uses_json=False),
    "asterisk slin": asterisk("slin"),
    "asterisk slin16": asterisk("slin16"),
    "asterisk slin24": asterisk("slin24"),
    "twilio": lambda: SimulatedTwilio(new_call_id()),
}
two_wires = pytest.mark.parametrize(
    "make_peer", [WIRES["asterisk slin24"], WIRES["twilio"]], ids=["asterisk", "twilio"]
)


def speech_of(phone: WebSocketPhone) -> bytes:
    """What the caller heard, without silence (G.711's is up to 8 from zero)."""
    return b"".join(
        packet.pcm for packet in phone.packets if np.abs(np.frombuffer(packet.pcm, "<i2")).max() > 8
    )


def test_a_call_on_each_wire_hears_the_whole_utterance_at_the_right_pitch() -> None:
    async def check(server: WebSocketCallServer, peer: Peer) -> None:
        phone, call = await server.dial(peer)
        assert await call.speak("one two three.") is UtteranceOutcome.SPOKEN
        await call.wait_played()
        speech = speech_of(phone)
        assert len(speech) / 2 / peer.sample_rate == pytest.approx(3 * WORD_S, abs=0.1)
        assert phone.packets[0].sample_rate == peer.sample_rate
        assert pitch_of(speech) * peer.sample_rate / SAMPLE_RATE == pytest.approx(440, rel=0.03)

    async def test(server: WebSocketCallServer) -> None:
        await asyncio.gather(*(check(server, make_peer()) for make_peer in WIRES.values()))

    with_server(test)


@two_wires
def test_a_discard_flushes_the_peer_and_reports_what_it_played(make_peer: MakePeer) -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = make_peer()
        _, call = await server.dial(peer)
        events: list[CallEvent] = []
        call.events.add_listener(events.append)
        speaking = asyncio.create_task(call.speak(TEN_WORDS))
        await until(lambda: peer.queue.played_packets >= 40)  # 0.8 s: four words
        cut = await call.discard()
        await until(lambda: peer.flushes == 1)
        played_words = peer.queue.played_packets * 0.02 / WORD_S
        # Within one word if both keep to the clock; here, peer and server share a loop that may be late.
        assert abs(len(cut.words) - played_words) <= 2
        assert TEN_WORDS.startswith(cut.heard) and len(cut.heard.split()) == len(cut.words)
        assert await speaking is UtteranceOutcome.DISCARDED
        # The next utterance is heard whole, although marks of the one before are reported late or never.
        played = peer.queue.played_packets
        await call.speak("eleven twelve.")
        await call.wait_played()
        assert (peer.queue.played_packets - played) * 0.02 == pytest.approx(2 * WORD_S, abs=0.04)
        assert [type(event) for event in events].count(SpeechDiscarded) == 1
        assert [event.heard for event in events if isinstance(event, SpeechFinished)] == ["eleven twelve."]

    with_server(test)


@two_wires
def test_keys_reach_the_call_and_an_agent_hangs_up(make_peer: MakePeer) -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = make_peer()
        phone, call = await server.dial(peer, digits="5#")
        events: list[CallEvent] = []
        call.events.add_listener(events.append)
        await server.wait_ended(call)
        assert [event.digit for event in events if isinstance(event, KeyPressed)] == ["5", "#"]
        await until(lambda: phone.ended_at is not None)
        assert phone.reason == "the gateway hung up"

    with_server(test, agent=KeysAgent())


@two_wires
def test_the_caller_hangs_up(make_peer: MakePeer) -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = make_peer()
        _, call = await server.dial(peer)
        speaking = asyncio.create_task(call.speak(TEN_WORDS))
        await until(lambda: peer.queue.played_packets > 5)
        await server.aclose()  # as the phones do
        await server.wait_ended(call)
        await speaking
        assert len(server.gateway.call_registry) == 0

    with_server(test)


def test_asterisk_gets_hangup_before_the_socket_closes() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedAsterisk(new_call_id())
        _, call = await server.dial(peer)
        call.hang_up()
        await until(lambda: peer.has_hung_up)

    with_server(test)


def test_a_full_asterisk_is_not_overrun() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedAsterisk(new_call_id())
        _, call = await server.dial(peer)
        await call.speak(TEN_WORDS)
        assert peer.queue.packets <= 60  # a second and what is on its way

    with_server(test)


def test_the_gateway_connects_to_an_asterisk_that_waits() -> None:
    peer = SimulatedAsterisk(new_call_id(), "slin16")
    phone = WebSocketPhone(peer)

    async def asterisk_http(socket: ServerConnection) -> None:
        assert socket.subprotocol == "media" and socket.request is not None
        assert socket.request.path == "/media/xyz"
        for message in peer.start():
            await socket.send(message)
        async for received in socket:
            peer.receive(received)
            if peer.has_hung_up:
                return

    async def test(server: WebSocketCallServer) -> None:
        async def open_socket() -> MessageSocket:
            return await connect_to_asterisk(url)

        async with serve(asterisk_http, "127.0.0.1", 0, subprotocols=["media"]) as listener:  # type: ignore[list-item]
            port = next(iter(listener.sockets)).getsockname()[1]
            url = f"ws://127.0.0.1:{port}/media/xyz"
            calls = server.gateway.websocket_calls
            serving = asyncio.create_task(
                calls.serve("asterisk", AsteriskStreamConnection(), open_socket, peer=url)
            )
            await until(lambda: server.find(peer.call_id) is not None)
            call = server.find(peer.call_id)
            assert isinstance(call, Call)
            speaking = asyncio.create_task(call.speak(TEN_WORDS))
            await until(lambda: peer.queue.packets > 10)
            call.hang_up()
            await asyncio.gather(serving, speaking)
            assert peer.has_hung_up and phone.ended_at is None

    with_server(test)


@two_wires
def test_the_call_is_in_the_calls_api(make_peer: MakePeer) -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer: SimulatedPeer = make_peer()
        await server.dial(peer)
        (active,) = server.gateway.call_registry
        assert active.kind in ("asterisk", "twilio") and active.call.sample_rate == peer.sample_rate

    with_server(test)


def test_calls_end_at_shutdown() -> None:
    peers = [SimulatedAsterisk(new_call_id()), SimulatedTwilio(new_call_id())]

    async def test(server: WebSocketCallServer) -> None:
        calls = [(await server.dial(peer))[1] for peer in peers]
        await server.gateway.websocket_calls.aclose()
        for call in calls:
            await server.wait_ended(call)
        assert len(server.gateway.call_registry) == 0

    with_server(test)


def test_a_third_call_is_refused_before_the_handshake() -> None:
    async def test(server: WebSocketCallServer) -> None:
        for _ in range(2):
            await server.dial(SimulatedTwilio(new_call_id()))
        with pytest.raises(Exception, match="HTTP 503"):
            await server.dial(SimulatedTwilio(new_call_id()))

    with_server(test, max_calls=2)
