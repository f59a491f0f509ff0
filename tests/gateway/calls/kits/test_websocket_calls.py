"""Calls over real WebSockets with simulated peers: speech, barge-in, keys and the end, on each wire."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from shared.audio.tones import pitch_of, tone
from shared.calls.peers.asterisk import SimulatedAsterisk
from shared.calls.peers.carrier import SimulatedCarrier
from shared.calls.peers.exotel import SimulatedExotel
from shared.calls.peers.freeswitch import SimulatedAudioFork, SimulatedAudioStream
from shared.calls.peers.jambonz import SimulatedJambonz
from shared.calls.peers.kinds import MAKE_PEER
from shared.calls.peers.peer import SimulatedPeer
from shared.calls.peers.plivo import SimulatedPlivo
from shared.calls.peers.telnyx import SimulatedTelnyx
from shared.calls.peers.twilio import SimulatedTwilio
from shared.calls.peers.vonage import SimulatedVonage
from shared.calls.websocket_calls import WebSocketCallServer, new_call_id, with_server
from shared.calls.websocket_phones import WebSocketPhone
from shared.event_loop import until
from vivavoce.adapters.media_streams.asterisk import AsteriskStreamConnection
from vivavoce.gateway.calls.agents.kinds.keys import KeysAgent
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.events import (
    CallerAudio,
    CallEvent,
    KeyPressed,
    SpeechDiscarded,
    SpeechFinished,
)
from vivavoce.gateway.calls.kits.message_socket import MessageSocket
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.gateway.calls.ways_in.asterisk_websocket.sockets import connect_to_asterisk
from vivavoce.tts_engine.chunk import SAMPLE_RATE

TEN_WORDS = "one two three four five six seven eight nine ten"
WORD_S = 0.2  # of the stand-in voice
MAX_PADDING_PACKETS = 10  # Exotel's messages have 200 ms
MakePeer = Callable[[str], SimulatedPeer]
METADATA = '{"customer":"7","name":"Ann"}'

WIRES: dict[str, MakePeer] = {
    "asterisk ulaw": SimulatedAsterisk,
    "asterisk alaw, plain text": lambda call_id: SimulatedAsterisk(call_id, "alaw", uses_json=False),
    "asterisk slin": lambda call_id: SimulatedAsterisk(call_id, "slin"),
    "asterisk slin16": lambda call_id: SimulatedAsterisk(call_id, "slin16"),
    "asterisk slin24": lambda call_id: SimulatedAsterisk(call_id, "slin24"),
    "twilio": SimulatedTwilio,
    "telnyx PCMU": SimulatedTelnyx,
    "telnyx PCMA": lambda call_id: SimulatedTelnyx(call_id, "PCMA"),
    "telnyx L16": lambda call_id: SimulatedTelnyx(call_id, "L16", 16_000),
    "telnyx OPUS": lambda call_id: SimulatedTelnyx(call_id, "OPUS", 16_000),
    "plivo": SimulatedPlivo,
    "plivo l16": lambda call_id: SimulatedPlivo(call_id, "audio/x-l16", 16_000),
    "vonage 8": lambda call_id: SimulatedVonage(call_id, 8_000),
    "vonage 16": SimulatedVonage,
    "vonage 24": lambda call_id: SimulatedVonage(call_id, 24_000),
    "exotel": SimulatedExotel,
    "exotel 16": lambda call_id: SimulatedExotel(call_id, 16_000),
    "jambonz": SimulatedJambonz,
    "jambonz 16": lambda call_id: SimulatedJambonz(call_id, 16_000),
    "mod_audio_fork": SimulatedAudioFork,
    "mod_audio_fork, metadata": lambda call_id: SimulatedAudioFork(call_id, 16_000, metadata=METADATA),
    "mod_audio_stream": SimulatedAudioStream,
    "mod_audio_stream, metadata": lambda call_id: SimulatedAudioStream(call_id, 16_000, metadata=METADATA),
}


async def on_every_wire(
    server: WebSocketCallServer, check: Callable[[WebSocketCallServer, SimulatedPeer], Awaitable[None]]
) -> None:
    """Check a call of each kind of peer, all at once."""
    peers = [make_peer(new_call_id()) for make_peer in MAKE_PEER.values()]
    await asyncio.gather(*(check(server, peer) for peer in peers))
    assert [peer.refusal for peer in peers if isinstance(peer, SimulatedCarrier) and peer.refusal] == []


def speech_of(phone: WebSocketPhone) -> bytes:
    """What the caller heard, without silence (G.711's is up to 8 from zero)."""
    return b"".join(
        packet.pcm for packet in phone.packets if np.abs(np.frombuffer(packet.pcm, "<i2")).max() > 8
    )


def test_a_call_on_each_wire_hears_the_whole_utterance_at_the_right_pitch() -> None:
    async def check(server: WebSocketCallServer, name: str, peer: SimulatedPeer) -> None:
        phone, call = await server.dial(peer)
        assert await call.speech.speak("one two three.") is UtteranceOutcome.SPOKEN
        await call.speech.wait_played()
        # Without marks, the gateway knows from time alone what is played; a busy peer plays it later.
        min_bytes = round((3 * WORD_S - 0.1) * peer.sample_rate) * 2
        await until(lambda: len(speech_of(phone)) >= min_bytes)
        speech = speech_of(phone)
        assert len(speech) / 2 / peer.sample_rate == pytest.approx(3 * WORD_S, abs=0.1), name
        assert phone.packets[0].sample_rate == peer.sample_rate
        assert pitch_of(speech) * peer.sample_rate / SAMPLE_RATE == pytest.approx(440, rel=0.03), name

    async def test(server: WebSocketCallServer) -> None:
        await asyncio.gather(
            *(check(server, name, make_peer(new_call_id())) for name, make_peer in WIRES.items())
        )

    with_server(test)


def test_the_caller_is_heard_on_each_wire_at_the_right_pitch() -> None:
    async def check(server: WebSocketCallServer, name: str, peer: SimulatedPeer) -> None:
        _, call = await server.dial(peer)
        heard: list[CallerAudio] = []
        call.events.add_listener(
            lambda event: heard.append(event) if isinstance(event, CallerAudio) else None, wants_audio=True
        )
        peer.say(tone(500, peer.sample_rate, 0, peer.sample_rate // 50))  # ten periods
        loud: list[CallerAudio] = []
        while len(loud) < 3:
            await until(lambda: bool(heard))
            loud += [event for event in heard if np.abs(np.frombuffer(event.pcm, "<i2")).max() > 7_000]
            heard.clear()
        assert {event.sample_rate for event in loud} == {peer.sample_rate}, name
        assert pitch_of(loud[-1].pcm, peer.sample_rate) == pytest.approx(500, rel=0.01), name
        knows_number = not name.startswith(("asterisk", "plivo"))
        assert call.caller.number.endswith("15550001") == knows_number, name

    async def test(server: WebSocketCallServer) -> None:
        await asyncio.gather(
            *(check(server, name, make_peer(new_call_id())) for name, make_peer in WIRES.items())
        )

    with_server(test)


def test_metadata_of_freeswitch_describe_the_call() -> None:
    async def test(server: WebSocketCallServer) -> None:
        for kind in (SimulatedAudioFork, SimulatedAudioStream):
            _, call = await server.dial(kind(new_call_id(), metadata=METADATA))
            assert (call.caller.number, call.caller.called, call.caller.name) == (
                "15550001",
                "15550002",
                "Ann",
            )
            assert call.caller.variables["customer"] == "7"
            _, call = await server.dial(kind(new_call_id(), metadata="a plain text"))
            assert call.caller.variables["metadata"] == "a plain text"

    with_server(test)


def test_a_discard_flushes_the_peer_and_reports_what_it_played() -> None:
    async def check(server: WebSocketCallServer, peer: SimulatedPeer) -> None:
        _, call = await server.dial(peer)
        events: list[CallEvent] = []
        call.events.add_listener(events.append)
        speaking = asyncio.create_task(call.speech.speak(TEN_WORDS))
        await until(lambda: peer.queue.played_packets >= 40)  # 0.8 s: four words
        cut = await call.speech.discard()
        await until(lambda: peer.flushes == 1)
        played_words = peer.queue.played_packets * 0.02 / WORD_S
        # Within one word if both keep to the clock; here, peers and server share a loop that may be late.
        assert abs(len(cut.words) - played_words) <= 2, peer
        assert TEN_WORDS.startswith(cut.heard) and len(cut.heard.split()) == len(cut.words)
        assert await speaking is UtteranceOutcome.DISCARDED
        # The next utterance is heard whole, although marks of the one before are reported late or never.
        played = peer.queue.played_packets
        await call.speech.speak("eleven twelve.")
        await call.speech.wait_played()
        packets = 2 * round(50 * WORD_S)
        await until(lambda: peer.queue.played_packets - played >= packets)
        assert peer.queue.played_packets - played <= packets + MAX_PADDING_PACKETS, peer
        assert [type(event) for event in events].count(SpeechDiscarded) == 1
        assert [event.heard for event in events if isinstance(event, SpeechFinished)] == ["eleven twelve."]

    with_server(lambda server: on_every_wire(server, check))


def test_a_mod_audio_stream_that_cannot_drop_its_audio_plays_little_after_a_discard() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedAudioStream(new_call_id(), is_patched=False)
        _, call = await server.dial(peer)
        speaking = asyncio.create_task(call.speech.speak(TEN_WORDS))
        await until(lambda: peer.queue.played_packets >= 20)
        await call.speech.discard()
        await until(lambda: "killAudio" in peer.events)
        assert peer.queue.packets <= 20  # 0.3 s, and what is on its way
        assert await speaking is UtteranceOutcome.DISCARDED

    with_server(test)


def test_keys_reach_the_call_and_an_agent_hangs_up() -> None:
    async def check(server: WebSocketCallServer, peer: SimulatedPeer) -> None:
        phone, call = await server.dial(peer, digits="5#")
        events: list[CallEvent] = []
        call.events.add_listener(events.append)
        await server.wait_ended(call)
        assert [event.digit for event in events if isinstance(event, KeyPressed)] == ["5", "#"], peer
        await until(lambda: phone.ended_at is not None)
        assert phone.reason == "the gateway hung up"

    with_server(lambda server: on_every_wire(server, check), agent=KeysAgent())


def test_the_caller_hangs_up() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peers = [make_peer(new_call_id()) for make_peer in MAKE_PEER.values()]
        calls = [(await server.dial(peer))[1] for peer in peers]
        speaking = [asyncio.create_task(call.speech.speak(TEN_WORDS)) for call in calls]
        await until(lambda: all(peer.queue.played_packets > 5 for peer in peers))
        await server.aclose()  # as the phones do
        for call in calls:
            await server.wait_ended(call)
        await asyncio.gather(*speaking)
        await until(lambda: len(server.gateway.calls.registry) == 0)

    with_server(test)


def test_asterisk_gets_hangup_before_the_socket_closes() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedAsterisk(new_call_id())
        _, call = await server.dial(peer)
        call.end.hang_up()
        await until(lambda: peer.has_hung_up)

    with_server(test)


def test_asterisk_gets_silence_while_there_is_no_speech() -> None:
    async def test(server: WebSocketCallServer) -> None:
        asterisk, others = SimulatedAsterisk(new_call_id()), SimulatedTwilio(new_call_id())
        await server.dial(others)
        await server.dial(asterisk)
        await until(lambda: asterisk.queue.packets > 0)
        assert (asterisk.queue.holds_speech, others.queue.packets) == (False, 0)

    with_server(test)


def test_an_id_of_a_call_that_asterisk_repeats_in_the_url_is_ignored() -> None:
    async def test(server: WebSocketCallServer) -> None:
        first, second = SimulatedAsterisk(new_call_id()), SimulatedAsterisk(new_call_id())
        repeated, own_id = new_call_id(), second.call_id
        for peer in (first, second):
            peer.path += f"?call={repeated}&caller=100"
        first.call_id = repeated
        _, call = await server.dial(first)
        _, other = await server.dial(second)
        assert (call.caller.number, call.caller.variables["call"]) == ("100", repeated)
        assert (other.call_id, other.caller.number) == (own_id, "")
        assert "call" not in other.caller.variables
        assert server.find(repeated) is call

    with_server(test)


def test_a_full_asterisk_is_not_overrun() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedAsterisk(new_call_id())
        _, call = await server.dial(peer)
        await call.speech.speak(TEN_WORDS)
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
            calls = server.calls_of("asterisk_websocket")
            serving = asyncio.create_task(
                calls.serve("asterisk", AsteriskStreamConnection(), open_socket, peer=url)
            )
            await until(lambda: server.find(peer.call_id) is not None)
            call = server.find(peer.call_id)
            assert isinstance(call, Call)
            speaking = asyncio.create_task(call.speech.speak(TEN_WORDS))
            await until(lambda: peer.queue.packets > 10)
            call.end.hang_up()
            await asyncio.gather(serving, speaking)
            assert peer.has_hung_up and phone.ended_at is None

    with_server(test)


def test_the_calls_are_in_the_calls_api_by_kind() -> None:
    async def test(server: WebSocketCallServer) -> None:
        for wire, make_peer in MAKE_PEER.items():
            peer = make_peer(new_call_id())
            await server.dial(peer)
            (active,) = (one for one in server.gateway.calls.registry if one.call.call_id == peer.call_id)
            assert active.kind == wire.replace("websocket", "asterisk")
            assert active.call.media.sample_rate == peer.sample_rate

    with_server(test)


def test_calls_end_at_shutdown() -> None:
    peers = [SimulatedAsterisk(new_call_id()), SimulatedTwilio(new_call_id())]

    async def test(server: WebSocketCallServer) -> None:
        calls = [(await server.dial(peer))[1] for peer in peers]
        for way_in in ("asterisk_websocket", "media_streams"):
            await server.calls_of(way_in).aclose()
        for call in calls:
            await server.wait_ended(call)
        assert len(server.gateway.calls.registry) == 0

    with_server(test)


def test_a_third_call_is_refused_before_the_handshake() -> None:
    async def test(server: WebSocketCallServer) -> None:
        for _ in range(2):
            await server.dial(SimulatedTwilio(new_call_id()))
        with pytest.raises(Exception, match="HTTP 503"):
            await server.dial(SimulatedTwilio(new_call_id()))

    with_server(test, calls_max_calls=2)


def test_sockets_without_a_stream_take_no_place_of_a_call() -> None:
    async def test(server: WebSocketCallServer) -> None:
        url = f"{server.url}/v1/asterisk/media"
        strangers = [await connect(url, subprotocols=[Subprotocol("media")], proxy=None) for _ in range(3)]
        _, call = await server.dial(SimulatedAsterisk(new_call_id()))
        assert server.find(call.call_id) is call
        await strangers[-1].send(str(SimulatedAsterisk("late").start()[0]))
        with pytest.raises(ConnectionClosed):  # the only place is taken
            while True:
                await strangers[-1].recv()
        for stranger in strangers:
            await stranger.close()

    with_server(test, calls_max_calls=1, timeouts={"first_message_s": 300.0})
