"""Calls over SIP on loopback: a gateway, and phones that call it."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from shared.calls.call_server import run
from shared.sip.gateway import gateway, rtp_address, server_of, speak, up
from shared.sip.network import listener_of
from shared.sip.phone import until
from vivavoce.adapters.audio.formats.g711 import ulaw_encode
from vivavoce.adapters.sip.digest import Credentials
from vivavoce.adapters.sip.session import SessionState


def test_a_softphone_is_answered_hears_speech_and_is_heard() -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port):
            session = phone.call(port, user="4711")
            call_id = await up(server, session)
            (listed,) = server.gateway.calls.registry
            caller = listed.call.caller
            assert (listed.kind, caller.number, caller.name, caller.called) == (
                "sip",
                "anna",
                "Anna Example",
                "4711",
            )
            await speak(server, call_id)
            samples = np.frombuffer(phone.rtp.heard, "<i2").astype(float)
            assert np.abs(samples).max() > 3000
            phone.rtp.server = rtp_address(listener_of(session).last("answered"))
            async with server.socket(call_id) as program:
                phone.rtp.press("5")
                session.send_key("#")
                keys = [json.loads(message) async for message in _until_keys(program, 2)]
                assert sorted(each["digit"] for each in keys) == ["#", "5"]
            session.hang_up()
            await until(lambda: len(server.gateway.calls.registry) == 0)
            await until(lambda: server_of(server).endpoint.sessions <= 1)

    run(call())


async def _until_keys(program: Any, count: int) -> AsyncIterator[str]:
    while count:
        message = await asyncio.wait_for(program.recv(), 5)
        if isinstance(message, str) and json.loads(message)["type"] == "dtmf":
            count -= 1
            yield message


def test_the_gateway_hangs_up() -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port):
            session = phone.call(port)
            call_id = await up(server, session)
            async with server.http() as client:
                assert (await client.delete(f"/{call_id}")).status_code == 200
            await until(lambda: listener_of(session).names()[-1] == "ended")

    run(call())


@pytest.mark.parametrize("codecs", ["8", "9", "0", "96", "98"])
def test_each_codec_carries_the_voice(codecs: str) -> None:
    maps = {"96": "a=rtpmap:96 L16/16000", "98": "a=rtpmap:98 opus/48000/2"}

    async def call() -> None:
        async with gateway() as (server, phone, port):
            lines = [maps[codecs]] if codecs in maps else []
            session = phone.call(port, description=phone.describe(*lines, codecs=codecs))
            call_id = await up(server, session)
            await speak(server, call_id)
            (kind,) = {packet.payload_type for packet in phone.rtp.packets}
            assert str(kind) == codecs
            steps = {
                (second.timestamp - first.timestamp) % 2**32
                for first, second in zip(phone.rtp.packets, phone.rtp.packets[1:], strict=False)
            }
            assert min(steps) == {"96": 320, "98": 960}.get(codecs, 160)

    run(call())


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["m=audio 4000 RTP/AVP 18"], "488"),  # a codec that nothing here decodes
        (["m=audio 0 RTP/AVP 0"], "488"),
        (["m=video 4000 RTP/AVP 31"], "488"),
        ([], "488"),
        (["m=audio 99999 RTP/AVP 0"], "400"),
    ],
)
def test_an_offer_that_cannot_be_answered_is_refused(lines: list[str], status: str) -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port):
            head = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "c=IN IP4 127.0.0.1", "t=0 0"]
            session = phone.call(port, description="\r\n".join([*head, *lines, ""]).encode())
            await until(lambda: listener_of(session).names())
            assert listener_of(session).events == [("ended", int(status))]
            assert len(server.gateway.calls.registry) == 0

    run(call())


def test_forty_codecs_and_a_video_are_answered_with_one_audio() -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port):
            types = " ".join(map(str, range(60, 99)))
            lines = [f"a=rtpmap:{kind} x{kind}/8000" for kind in range(60, 99)]
            offer = phone.describe(*lines, "m=video 4000 RTP/AVP 31", codecs=f"{types} 0 101")
            session = phone.call(port, description=offer)
            await up(server, session)
            answer = listener_of(session).last("answered")
            assert isinstance(answer, bytes)
            assert b"m=video 0 RTP/AVP 31" in answer
            assert b"a=rtpmap:0 PCMU/8000\r\n" in answer

    run(call())


def test_a_late_offer_and_a_phone_elsewhere_than_it_says() -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port):
            session = phone.call(port, description=b"")
            session._description = phone.describe()  # of a phone that answers in its ACK
            await until(lambda: listener_of(session).names())
            assert b"G722/8000" in listener_of(session).last("answered")  # type: ignore[operator]
            wrong = (
                phone.describe()
                .replace(b"IP4 127.0.0.1", b"IP4 127.0.0.1")
                .replace(f" {phone.rtp.address[1]} ".encode(), b" 9 ")
            )
            second = phone.call(port, description=wrong)
            call_id = await up(server, second)
            phone.rtp.server = rtp_address(listener_of(second).last("answered"))
            tone = (8000 * np.sin(np.arange(160 * 10) * 0.3)).astype("<i2").tobytes()
            phone.rtp.speak(tone)  # symmetric RTP: it gets audio where its own comes from
            await speak(server, call_id)
            assert len(phone.rtp.packets) > 10
            assert len(ulaw_encode(tone)) == 1600

    run(call())


def test_strangers_get_silence_and_users_need_their_password() -> None:
    async def call() -> None:
        async with gateway(sip_peers=["10.9.9.9"], sip_users={"anna": "secret"}) as (server, phone, port):
            for method in ("OPTIONS", "REGISTER", "INVITE", "BYE"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await phone.request(method, port, user="scanner")
            assert (await phone.request("OPTIONS", port, user="anna", password="secret")).status == 200
            session = phone.call(port, credentials=Credentials("anna", "secret"))
            await up(server, session)
            (listed,) = server.gateway.calls.registry
            assert dict(listed.call.caller.variables) == {"user": "anna"}
            for _ in range(5):
                assert (await phone.request("OPTIONS", port, user="anna", password="wrong")).status == 401
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await phone.request("OPTIONS", port, user="anna", password="wrong")

    run(call())


def test_a_flood_of_requests_is_refused_and_calls_go_on() -> None:
    async def call() -> None:
        async with gateway(calls_max_calls=3) as (server, phone, port):
            first = phone.call(port)
            await up(server, first)
            sessions = [phone.call(port) for _ in range(300)]
            await until(lambda: all(listener_of(session).names() for session in sessions), 20)
            statuses = [listener_of(session).events[0] for session in sessions]
            assert statuses.count(("ended", 503)) == 298
            assert first.state is SessionState.UP

    run(call())


def test_a_thousand_calls_in_a_second_leave_no_gap_in_a_call_that_is_up() -> None:
    async def call() -> None:
        async with gateway(calls_max_calls=3) as (server, phone, port):
            session = phone.call(port)
            call_id = await up(server, session)
            assert session._inviting is not None
            invite = bytes(session._inviting.request)
            speaking = asyncio.create_task(speak(server, call_id, "One two three four five six seven."))
            await until(lambda: np.any(np.frombuffer(phone.rtp.heard, "<i2")))
            first = len(phone.rtp.packets)
            begun, responses = time.monotonic(), list[bytes]()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:
                flood.bind(("127.0.0.2", 0))
                flood.setblocking(False)
                for number in range(1_000):
                    new = invite.replace(b"z9hG4bK", b"z9hG4bK%d" % number)
                    new = new.replace(b"Call-ID: ", b"Call-ID: %d" % number)
                    flood.sendto(new, ("127.0.0.1", port))
                    if number % 20 == 19:
                        await asyncio.sleep(0.02)
                        with suppress(BlockingIOError):
                            while True:
                                responses.append(flood.recv(2048)[:11])
            admitted = responses.count(b"SIP/2.0 100")
            assert (
                100 <= admitted <= 101 + 50 * (time.monotonic() - begun)
            )  # 50 a second, and two seconds' at once
            await speaking
            numbers = [packet.sequence for packet in phone.rtp.packets[first:]]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            gaps = np.diff(phone.rtp.arrived[first:])
            assert gaps.max() < 0.15  # it is 0.05 on a machine with six times too much to do
            assert session.state is SessionState.UP

    run(call())
