"""RTP calls of a gateway, from a phone on a socket of its own to the calls API."""

import asyncio
import contextlib
import json
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect

from shared.calls.call_server import CallServer, call_server, run, send_utterance, until, words
from shared.calls.rtp_phone import RtpTestPhone
from shared.calls.rtp_stream import RtpSource
from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode
from vivavoce.adapters.rtp.codec import TELEPHONE_EVENT
from vivavoce.adapters.rtp.packet import encode_packet
from vivavoce.adapters.rtp.rtcp import Bye, parse_rtcp
from vivavoce.adapters.rtp.srtp import SrtpKeys, SrtpSession
from vivavoce.adapters.rtp.telephone_events import TelephoneEventDecoder, encode_key

TONE = (8000 * np.sin(np.arange(160 * 25) * 0.3)).astype("<i2").tobytes()


@dataclass(slots=True)
class RtpCall:
    call_id: str
    phone: RtpTestPhone


@contextlib.asynccontextmanager
async def rtp_call(server: CallServer, *, is_named: bool = True) -> AsyncIterator[RtpCall]:
    """A call over RTP; ``is_named``: the server is told the phone's address."""
    phone = RtpTestPhone()
    host, port = phone.address
    wanted = {"over": "rtp"} | ({"peer": f"{host}:{port}"} if is_named else {})
    async with server.http() as client:
        answer = await client.post("", json=wanted)
    assert answer.status_code == 201, answer.text
    place = answer.json()
    assert (place["codec"], place["payload_type"], place["port"] % 2) == ("ulaw", 0, 0)
    phone.server = (place["address"], place["port"])
    try:
        yield RtpCall(place["call"], phone)
    finally:
        await asyncio.to_thread(phone.close)


async def ended(server: CallServer, call: RtpCall) -> None:
    registry = server.gateway.calls.registry
    while call.call_id in [active.call.call_id for active in registry]:
        await asyncio.sleep(0.01)


def timestamp_steps(packets: Sequence[Any]) -> list[int]:
    """Steps of the timestamps: one packet's, or several where a stalled machine left packets out."""
    steps = (np.diff([packet.timestamp for packet in packets]) % 2**32).tolist()
    assert {step % 160 for step in steps} == {0}
    assert steps.count(160) > 0.8 * len(steps)
    return steps


def test_a_program_speaks_to_a_phone_and_hears_its_words_keys_and_end() -> None:
    async def scenario() -> None:
        async with call_server() as server, rtp_call(server) as call:
            async with server.socket(call.call_id) as socket:
                (started,) = await until(socket, "started")
                assert (started["kind"], started["sample_rate"]) == ("rtp", 8000)
                await send_utterance(socket, "One two three.")
                received = await until(socket, "speech_finished")
                assert words(received) == ["One", "two", "three"]
                call.phone.press("7")
                assert (await until(socket, "dtmf"))[-1]["digit"] == "7"
                call.phone.hang_up()
                await until(socket, "hung_up")
            packets = call.phone.packets
            sequences = [packet.sequence for packet in packets]
            assert np.all(np.diff(sequences) % 2**16 == 1)
            steps = timestamp_steps(packets)
            assert packets[0].marker
            assert not any(
                packet.marker for packet, step in zip(packets[1:], steps, strict=True) if step == 160
            )
            samples = np.abs(np.frombuffer(call.phone.heard, "<i2").astype(int))
            assert 0.5 < np.count_nonzero(samples > 500) / 8000 < 0.65  # three words of 0.2 s

    run(scenario())


def test_a_program_presses_keys_of_the_phone() -> None:
    async def scenario() -> None:
        async with call_server() as server, rtp_call(server) as call, server.socket(call.call_id) as socket:
            await until(socket, "started")
            call.phone.speak(TONE[:320])
            await socket.send(json.dumps({"type": "send_keys", "digits": "4#"}))
            receiver, pressed = TelephoneEventDecoder(), ""
            seen = 0
            while len(pressed) < 2:
                packets = call.phone.packets[seen:]
                seen += len(packets)
                events = [packet for packet in packets if packet.payload_type == TELEPHONE_EVENT]
                pressed += "".join(filter(None, map(receiver.push, events)))
                await asyncio.sleep(0.02)
            assert pressed == "4#"

    run(scenario())


def test_a_discard_stops_the_speech_and_the_packets_go_on() -> None:
    async def scenario() -> None:
        async with call_server() as server, rtp_call(server) as call, server.socket(call.call_id) as socket:
            await send_utterance(socket, "One two three four five six seven eight nine ten.")
            await until(socket, "word")
            await socket.send(json.dumps({"type": "discard"}))
            discarded = (await until(socket, "discarded"))[-1]
            assert discarded["cut_ms"] > 500
            heard_before = len(call.phone.packets)
            while len(call.phone.packets) < heard_before + 25:
                await asyncio.sleep(0.02)
            after = np.abs(np.frombuffer(call.phone.heard, "<i2").astype(int))[heard_before * 160 :]
            assert np.count_nonzero(after > 500) < 10 * 160  # what was on its way, on a busy machine
            timestamp_steps(call.phone.packets)

    run(scenario())


def test_a_peer_that_was_not_named_is_the_first_that_sends_three_packets_and_others_are_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with call_server() as server, rtp_call(server, is_named=False) as call:
            stranger = RtpTestPhone(call.phone.server)
            try:
                stranger.speak(TONE[:320])
                call.phone.speak(TONE[: 3 * 320])
                while not call.phone.packets:
                    await asyncio.sleep(0.01)
                stranger.press("9")
                async with server.socket(call.call_id) as socket:
                    await until(socket, "started")
                    call.phone.press("4")
                    assert (await until(socket, "dtmf"))[-1]["digit"] == "4"
                while "address that is not the peer's" not in caplog.text:
                    await asyncio.sleep(0.01)
                assert f"Call {call.call_id}" in caplog.text
                assert not stranger.packets
            finally:
                await asyncio.to_thread(stranger.close)

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_an_encrypted_call_is_heard_with_the_keys_of_the_request_and_of_the_answer() -> None:
    remote = b64encode(bytes(range(30))).decode()

    async def scenario() -> None:
        async with call_server() as server, server.http() as client:
            phone = RtpTestPhone()
            try:
                host, port = phone.address
                wanted = {"over": "rtp", "peer": f"{host}:{port}", "srtp": {"key": remote}}
                answer = await client.post("", json=wanted)
                assert answer.status_code == 201, answer.text
                place = answer.json()
                assert place["srtp"]["suite"] == "AES_CM_128_HMAC_SHA1_80"
                keys = SrtpKeys(place["srtp"]["suite"], b64decode(remote), b64decode(place["srtp"]["key"]))
                session = SrtpSession(keys)
                phone.server = (place["address"], place["port"])
                while not phone.packets:
                    await asyncio.sleep(0.01)
                assert session.unprotect(encode_packet(phone.packets[0])) is not None
                async with server.socket(place["call"]) as socket:
                    await until(socket, "started")
                    payload = encode_key("4", duration=160, is_end=False)
                    phone.send_bytes(
                        session.protect(encode_packet(phone.source.key(payload, 7, marker=True)))
                    )
                    assert (await until(socket, "dtmf"))[-1]["digit"] == "4"
            finally:
                await asyncio.to_thread(phone.close)

    run(scenario())


@pytest.mark.parametrize(
    "srtp", [{}, {"key": "short"}, {"key": "A" * 39 + "!"}, {"key": "A" * 40, "suite": "NULL"}], ids=str
)
def test_keys_of_another_length_or_suite_are_refused_and_not_repeated(srtp: dict[str, str]) -> None:
    async def scenario() -> None:
        async with call_server() as server, server.http() as client:
            refused = await client.post("", json={"over": "rtp", "srtp": srtp})
            assert refused.status_code == 400 and "srtp" in refused.json()["error"]
            assert srtp.get("key", "nothing") not in refused.text

    run(scenario())


async def repeat(phone: RtpTestPhone, pcm: bytes) -> None:
    """Send 8 kHz s16le again and again, in packets as they are due: a busy machine may lose some of them."""
    while True:
        for start in range(0, len(pcm), 320):
            phone.speak(pcm[start : start + 320])
            await asyncio.sleep(0.02)


def test_the_callers_audio_reaches_the_program() -> None:
    noise = np.random.default_rng(0).integers(-8_000, 8_000, 160 * 25).astype("<i2").tobytes()
    expected = ulaw_decode(ulaw_encode(noise))

    async def scenario() -> None:
        async with call_server() as server, rtp_call(server) as call:
            url = f"ws://{server.base}/{call.call_id}/socket?audio=in"
            async with connect(url, additional_headers=server.headers) as socket:
                speaking = asyncio.create_task(repeat(call.phone, noise))
                heard = b""
                while expected not in heard:
                    message = await socket.recv()
                    heard += message if isinstance(message, bytes) else b""
                speaking.cancel()

    run(scenario())


def test_hanging_up_sends_bye_and_frees_the_port() -> None:
    async def scenario() -> None:
        async with (
            call_server(rtp_ports="41000-41001") as server,
            rtp_call(server) as call,
            server.http() as client,
        ):
            refused = await client.post("", json={"over": "rtp"})
            assert refused.status_code == 503
            assert "41000-41001" in refused.json()["error"]
            assert len(server.gateway.calls.registry) == 1
            while not call.phone.packets:
                await asyncio.sleep(0.01)
            assert (await client.delete(f"/{call.call_id}")).status_code == 200
            await ended(server, call)
            while not call.phone.reports:
                await asyncio.sleep(0.01)
            ours = call.phone.packets[0].ssrc
            assert Bye((ours,)) in parse_rtcp(call.phone.reports[-1])
            while (await client.post("", json={"over": "rtp"})).status_code != 201:
                await asyncio.sleep(0.02)  # the media server closes the socket in its next tick

    run(scenario())


WRONG_REQUESTS: list[tuple[Any, str]] = [
    ({"over": "rtp", "codec": "g729"}, "codec"),
    ({"over": "rtp", "peer": "example.org:4000"}, "IP address"),
    ({"over": "rtp", "peer": "127.0.0.1:0"}, "IP address"),
    ({"over": "rtp", "payload_type": 128}, "payload_type"),
    ({"over": "rtp", "extra": 1}, "extra"),
    ({"over": "pigeon"}, "over"),
    ([], "body"),
]


def test_a_wrong_request_is_refused_with_its_reason() -> None:
    async def scenario() -> None:
        async with call_server() as server, server.http() as client:
            for body, says in WRONG_REQUESTS:
                answer = await client.post("", json=body)
                assert answer.status_code == 400, body
                assert says in answer.json()["error"]
            assert len(server.gateway.calls.registry) == 0
            foreign = await client.post("", json={"over": "rtp"}, headers={"origin": "http://evil.example"})
            assert foreign.status_code == 403

    run(scenario())


def test_garbage_on_one_call_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        async with call_server() as server, rtp_call(server) as call, rtp_call(server) as other:
            random = np.random.default_rng(7)
            async with server.socket(other.call_id) as socket:
                await send_utterance(socket, "One two three.")
                for size in random.integers(0, 1500, 300):
                    call.phone.send_bytes(random.bytes(int(size)))
                source = RtpSource(payload_type=3, ssrc=5)
                for _ in range(50):
                    call.phone.send_bytes(encode_packet(source.next(ulaw_encode(bytes(320)))))
                assert words(await until(socket, "speech_finished")) == ["One", "two", "three"]
            async with server.socket(call.call_id) as socket:
                await send_utterance(socket, "Four.")
                assert words(await until(socket, "speech_finished")) == ["Four"]

    run(scenario())


def test_a_call_without_packets_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.rtp.way_in._FIRST_PACKET_S", 0.2)

    async def scenario() -> None:
        async with call_server() as server, rtp_call(server, is_named=False) as call:
            await ended(server, call)

    run(scenario())
