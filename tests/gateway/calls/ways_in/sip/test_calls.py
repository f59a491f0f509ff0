"""Calls over SIP on loopback: a gateway, and phones that call it and are called."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from shared.calls.call_server import CallServer, call_server, run
from shared.sip.network import RecordingListener
from shared.sip.phone import SipTestPhone, sip_phone, until
from vivavoce.adapters.audio.codecs import ulaw_encode
from vivavoce.adapters.sip.digest import Credentials
from vivavoce.adapters.sip.incoming import IncomingSession
from vivavoce.adapters.sip.outgoing import OutgoingSession
from vivavoce.adapters.sip.session import SessionState, SipSession
from vivavoce.adapters.sip.transactions import SipFlow
from vivavoce.gateway.calls.ways_in.sip.resolver import SipResolver
from vivavoce.gateway.calls.ways_in.sip.server import SipCallServer


def server_of(gateway: CallServer) -> SipCallServer:
    server = gateway.gateway.calls.opened["sip"].server
    assert isinstance(server, SipCallServer)
    return server


@asynccontextmanager
async def gateway(**changes: Any) -> AsyncIterator[tuple[CallServer, SipTestPhone, int]]:
    """A gateway that answers SIP, a phone, and the port of SIP."""
    async with call_server(sip_port=0, **changes) as server, sip_phone() as phone:
        yield server, phone, server_of(server).sockets.port


async def up(server: CallServer, session: OutgoingSession) -> str:
    """Wait until a call is up, let the phone send to it, and return its id."""
    await until(lambda: session.state is SessionState.UP)
    registry = server.gateway.calls.registry
    await until(lambda: len(registry) > 0)
    return [active.call.call_id for active in registry][-1]


def listener_of(session: SipSession) -> RecordingListener:
    assert isinstance(session.listener, RecordingListener)
    return session.listener


def rtp_address(description: object) -> tuple[str, int]:
    assert isinstance(description, bytes)
    (line,) = [line for line in description.decode().split("\r\n") if line.startswith("m=audio")]
    return "127.0.0.1", int(line.split()[1])


async def speak(server: CallServer, call_id: str, text: str = "Good morning.") -> None:
    async with server.http() as client:
        answer = await client.post(f"/{call_id}/speech", content=text, headers={"content-type": "text/plain"})
        assert answer.status_code == 200, answer.text


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
            async with server.socket(call_id) as socket:
                phone.rtp.press("5")
                session.send_key("#")
                keys = [json.loads(message) async for message in _until_keys(socket, 2)]
                assert sorted(each["digit"] for each in keys) == ["#", "5"]
            session.hang_up()
            await until(lambda: len(server.gateway.calls.registry) == 0)
            await until(lambda: server_of(server).endpoint.sessions <= 1)

    run(call())


async def _until_keys(socket: Any, count: int) -> AsyncIterator[str]:
    while count:
        message = await asyncio.wait_for(socket.recv(), 5)
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


def test_a_phone_on_hold_hears_nothing_and_the_rest_after_it() -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port):
            session = phone.call(port)
            call_id = await up(server, session)
            speaking = asyncio.create_task(
                speak(server, call_id, "One two three four five six seven eight. " * 4)
            )
            await until(lambda: len(phone.rtp.packets) > 10)
            session.offer(phone.describe("a=sendonly"))
            await until(lambda: "confirmed" in listener_of(session).names())
            assert b"a=recvonly" in listener_of(session).last("confirmed")  # type: ignore[operator]
            await asyncio.sleep(0.1)
            before = len(phone.rtp.packets)
            await asyncio.sleep(0.4)
            assert len(phone.rtp.packets) == before
            assert not speaking.done()
            session.offer(phone.describe("a=sendrecv"))
            await asyncio.wait_for(speaking, 20)
            assert len(phone.rtp.packets) > before

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


def test_a_program_calls_a_registered_phone_and_learns_how_it_went() -> None:
    async def call() -> None:
        users = {"anna": "secret"}
        async with gateway(sip_users=users, sip_peers=["10.9.9.9"]) as (
            server,
            phone,
            port,
        ):
            host, own = phone.address
            contact = ("contact", f"<sip:anna@{host}:{own}>;expires=600")
            assert (
                await phone.request("REGISTER", port, contact, user="anna", password="secret")
            ).status == 200
            states = []
            for takes in (lambda session: session.reject(486), phone.answer):
                phone.takes = takes
                async with server.http() as client:
                    placed = await client.post("", json={"over": "sip", "to": "anna"})
                    assert placed.status_code == 202, placed.text
                    outgoing = server.gateway.calls.registry.outgoing.get(placed.json()["call"])
                    assert outgoing is not None
                    await until(lambda outgoing=outgoing: outgoing.state.value in ("busy", "answered"))
                    states.append((outgoing.state.value, outgoing.sip))
            assert states == [("busy", 486), ("answered", 200)]
            call_id = await up(server, phone.calls[-1])  # type: ignore[arg-type]
            await speak(server, call_id)
            assert len(phone.rtp.packets) > 10
            async with server.http() as client:
                refused = await client.post("", json={"over": "sip", "to": "+900123"})
                assert (refused.status_code, "destinations" in refused.text) == (400, True)

    run(call())


def test_a_trunk_is_registered_at_and_called_through() -> None:
    async def call() -> None:
        async with sip_phone() as provider:
            host, own = provider.address
            trunk = {"host": host, "port": own, "user": "4930", "password": "secret", "codecs": ["ulaw"]}
            outgoing = {"destinations": ["+4930"], "max_calls": 1}
            changes = {"sip_trunks": {"trunk": trunk}, "sip_outgoing": outgoing, "sip_peers": []}
            async with gateway(**changes) as (server, _, port):
                await until(lambda: provider.registered)
                contact = provider.registered[0].headers.get("contact")
                user = contact.partition("sip:")[2].partition("@")[0]
                incoming = provider.call(port, user=user, caller="sip:+4940123@provider")
                await up(server, incoming)
                (listed,) = server.gateway.calls.registry
                assert listed.call.caller.number == "+4940123"
                assert dict(listed.call.caller.variables) == {"trunk": "trunk"}
                incoming.hang_up()
                async with server.http() as client:
                    first = await client.post("", json={"over": "sip", "to": "+4930777", "caller_id": "4930"})
                    assert first.status_code == 202
                    await until(lambda: provider.calls)
                    request = provider.calls[0].request
                    assert request.uri == f"sip:+4930777@{host}:{own}"
                    assert request.from_.uri == f"sip:4930@{host}:{own}"
                    second = await client.post("", json={"over": "sip", "to": "+4930778"})
                    assert second.status_code == 503  # max_calls
                    assert (await client.post("", json={"over": "sip", "to": "+1555"})).status_code == 400
                    provider.calls[0].hang_up()

    run(call())


@pytest.mark.parametrize(
    ("contact", "state"),
    [("+4930888@TRUNK", "answered"), ("+900123@TRUNK", "unreachable"), ("x@10.9.9.9", "unreachable")],
)
def test_a_redirect_goes_only_where_calls_may_go(contact: str, state: str) -> None:
    async def call() -> None:
        async with sip_phone() as provider:
            host, own = provider.address
            trunk = {"host": host, "port": own, "user": "4930", "password": "secret", "codecs": ["ulaw"]}
            changes = {
                "sip_trunks": {"trunk": trunk},
                "sip_outgoing": {"destinations": ["+4930"]},
                "sip_peers": [],
            }
            address = contact.replace("TRUNK", f"{host}:{own}")

            def redirect(session: IncomingSession) -> None:
                provider.takes = provider.answer
                session.reject(302, ("contact", f"<sip:{address}>"))

            provider.takes = redirect
            async with gateway(**changes) as (server, _, _port):
                await until(lambda: provider.registered)
                async with server.http() as client:
                    placed = await client.post("", json={"over": "sip", "to": "+4930777"})
                    call_id = placed.json()["call"]
                outgoing = server.gateway.calls.registry.outgoing.get(call_id)
                assert outgoing is not None
                await until(lambda: outgoing.state.value == state)
                called = [session.request.uri.partition("@")[0] for session in provider.calls]
                assert called == ["sip:+4930777", "sip:+4930888"][: 1 + (state == "answered")]

    run(call())


def test_a_call_goes_on_at_the_next_server_of_a_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call() -> None:
        async with sip_phone() as first, sip_phone() as second:
            first.takes = lambda session: session.reject(503)
            servers = [SipFlow("udp", phone.address) for phone in (first, second)]

            async def find(*_: object) -> list[SipFlow]:
                return list(servers)

            monkeypatch.setattr(SipResolver, "find", find)
            changes = {
                "sip_trunks": {"trunk": {"host": "trunk.example"}},
                "sip_outgoing": {"destinations": ["+4930"]},
            }
            async with gateway(**changes) as (server, _, _port):
                for _ in range(2):
                    async with server.http() as client:
                        placed = await client.post("", json={"over": "sip", "to": "+4930777"})
                    outgoing = server.gateway.calls.registry.outgoing.get(placed.json()["call"])
                    assert outgoing is not None
                    await until(lambda outgoing=outgoing: outgoing.state.value == "answered")
                assert (len(first.calls), len(second.calls)) == (1, 2)  # the second call avoids the first one
                assert second.calls[0].request.uri == "sip:+4930777@trunk.example"

    run(call())


def test_a_caller_is_transferred_by_its_own_telephone_or_stays() -> None:
    async def call() -> None:
        async with gateway(sip_outgoing={"destinations": ["60"]}) as (server, phone, port):
            session = phone.call(port)
            call_id = await up(server, session)
            async with server.http() as client:
                refused = asyncio.create_task(client.post(f"/{call_id}/transfer", json={"to": "602"}))
                await until(lambda: "refer" in listener_of(session).names())
                session.notify_transfer(486, "Busy Here")
                answer = await refused
                assert (answer.status_code, "486" in answer.text) == (409, True)
                assert len(server.gateway.calls.registry) == 1
                assert (await client.post(f"/{call_id}/transfer", json={"to": "900"})).status_code == 400
                done = asyncio.create_task(client.post(f"/{call_id}/transfer", json={"to": "602"}))
                await until(lambda: listener_of(session).names().count("refer") == 2)
                session.notify_transfer(200, "OK")
                assert (await done).status_code == 200
            await until(lambda: listener_of(session).names()[-1] == "ended")

    run(call())


def test_two_callers_are_joined_after_an_attended_transfer() -> None:
    async def call() -> None:
        async with sip_phone() as colleague:
            host, own = colleague.address
            outgoing = {"destinations": [f"sip:*@{host}:*"]}
            async with gateway(sip_outgoing=outgoing) as (server, phone, port):
                session = phone.call(port)
                call_id = await up(server, session)
                wanted = {"to": f"sip:bob@{host}:{own}", "attended": {"announcement": "Anna calls."}}
                async with server.http() as client:
                    answer = await client.post(f"/{call_id}/transfer", json=wanted)
                assert answer.status_code == 200, answer.text
                assert len(colleague.rtp.packets) > 5  # the announcement
                await until(lambda: len(server.gateway.calls.registry) == 0)
                phone.rtp.server = rtp_address(listener_of(session).last("answered"))
                heard = len(colleague.rtp.heard)
                tone = (8000 * np.sin(np.arange(160) * 0.3)).astype("<i2").tobytes()
                for _ in range(25):
                    phone.rtp.speak(tone)
                    await asyncio.sleep(0.02)
                loud = np.frombuffer(colleague.rtp.heard[heard:], "<i2").astype(float)
                assert np.abs(loud).max() > 7000
                colleague.calls[0].hang_up()
                await until(lambda: listener_of(session).names()[-1] == "ended")

    run(call())
