"""Calls that a gateway makes over SIP on loopback: to phones, through trunks, and how they end."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from shared.calls.call_server import run
from shared.calls.call_server import until as told
from shared.sip.gateway import gateway, place, rtp_address, server_of, speak, up
from shared.sip.network import listener_of
from shared.sip.phone import SipTestPhone, sip_phone, until
from vivavoce.adapters.sip.incoming import IncomingSession
from vivavoce.adapters.sip.session import SDP
from vivavoce.adapters.sip.transactions import SipFlow
from vivavoce.gateway.calls.ways_in.sip.resolver import SipResolver


def test_a_program_calls_a_registered_phone_and_learns_how_it_went() -> None:
    async def call() -> None:
        users = {"anna": "secret"}
        async with gateway(sip_users=users, sip_peers=["10.9.9.9"]) as (
            server,
            phone,
            port,
        ):
            await phone.register(port)
            states = []
            for takes in (lambda session: session.reject(486), phone.answer):
                phone.takes = takes
                outgoing = await place(server, "anna")
                await until(lambda outgoing=outgoing: outgoing.state.value in ("busy", "answered"))
                states.append((outgoing.state.value, outgoing.sip))
            assert states == [("busy", 486), ("answered", 200)]
            call_id = await up(server, phone.calls[-1])
            await speak(server, call_id)
            assert len(phone.rtp.packets) > 10
            async with server.http() as client:
                refused = await client.post("", json={"over": "sip", "to": "+900123"})
                assert (refused.status_code, "destinations" in refused.text) == (400, True)

    run(call())


@pytest.mark.parametrize(
    ("statuses", "state"),
    [
        ((0, 200), "answered"),  # the first phone rings on, and is cancelled
        ((486, 200), "answered"),
        ((486, 480), "no_answer"),
        ((603, 0), "declined"),  # for all
        ((0, 0), "cancelled"),
    ],
)
def test_all_phones_of_a_user_ring_and_the_first_answer_counts(statuses: tuple[int, int], state: str) -> None:
    def takes(phone: SipTestPhone, status: int, delay_s: float) -> Callable[[IncomingSession], None]:
        def act(session: IncomingSession) -> None:
            if status == 200:
                phone.answer(session)
            else:
                session.reject(status)

        def take(session: IncomingSession) -> None:
            session.ring()
            if status:
                asyncio.get_running_loop().call_later(delay_s, act, session)

        return take

    async def call() -> None:
        async with (
            gateway(sip_users={"anna": "secret"}, sip_peers=[]) as (server, first, port),
            sip_phone() as second,
        ):
            for phone, status, delay_s in zip((first, second), statuses, (0.1, 0.3), strict=True):
                await phone.register(port)
                phone.takes = takes(phone, status, delay_s)
            outgoing = await place(server, "anna")
            await until(lambda: first.calls and second.calls)
            if state == "cancelled":
                async with server.http() as client:
                    assert (await client.delete(f"/{outgoing.call_id}")).status_code == 200
            await until(lambda: outgoing.state.value == state)
            if state == "answered":
                await speak(server, await up(server, second.calls[0]))
                assert len(second.rtp.packets) > 10 and not first.rtp.packets
                second.calls[0].hang_up()
                await until(lambda: outgoing.state.value == "ended")
            for phone, status in zip((first, second), statuses, strict=True):
                if status == 0:
                    ended = listener_of(phone.calls[0])
                    await until(lambda ended=ended: ended.events == [("ended", 487)])
            await until(lambda: len(server.gateway.calls.registry) == 0)

    run(call())


ANY_PORT = {"destinations": ["sip:*@127.0.0.1:*"]}


async def next_state(socket: ClientConnection) -> tuple[str, int | None]:
    message = (await told(socket, "call_state"))[-1]
    return message["state"], message.get("sip")


@pytest.mark.parametrize(
    ("status", "state"),
    [(486, "busy"), (603, "declined"), (480, "no_answer"), (408, "no_answer"), (404, "unreachable")],
)
def test_a_program_is_told_how_far_its_call_has_come(status: int, state: str) -> None:
    async def call() -> None:
        async with gateway(sip_outgoing=ANY_PORT) as (server, phone, _):
            phone.takes = lambda session: None
            outgoing = await place(server, f"sip:bob@127.0.0.1:{phone.address[1]}")
            async with server.socket(outgoing.call_id) as socket:
                assert await next_state(socket) == ("placed", None)
                await until(lambda: phone.calls)
                (session,) = phone.calls
                session.ring()
                assert await next_state(socket) == ("ringing", 180)
                early = session.request.response(
                    183, to_tag=session.dialog.local.tag, body=phone.describe(), content_type=SDP
                )
                phone.endpoint.send(bytes(early), session.dialog.flow)
                assert await next_state(socket) == ("early_media", 183)
                session.reject(status)
                assert await next_state(socket) == (state, status)
                await told(socket, "hung_up")
            async with server.http() as client:
                record = (await client.get(f"/{outgoing.call_id}")).json()
            assert (record["state"], record["sip"]) == (state, status)

    run(call())


@pytest.mark.parametrize(
    ("gives_up", "state"), [("program", ("cancelled", 487)), ("ring_s", ("no_answer", 480))]
)
def test_a_call_that_rings_is_given_up(gives_up: str, state: tuple[str, int]) -> None:
    async def call() -> None:
        async with gateway(sip_outgoing=ANY_PORT) as (server, phone, _):
            phone.takes = IncomingSession.ring
            ring_s = 60.0 if gives_up == "program" else 0.5
            outgoing = await place(server, f"sip:bob@127.0.0.1:{phone.address[1]}", ring_s=ring_s)
            async with server.socket(outgoing.call_id) as socket, server.http() as client:
                while await next_state(socket) != ("ringing", 180):
                    pass
                if gives_up == "program":
                    assert (await client.delete(f"/{outgoing.call_id}")).status_code == 200
                assert await next_state(socket) == state
            await until(lambda: listener_of(phone.calls[0]).events == [("ended", 487)])

    run(call())


def test_what_answers_is_detected() -> None:
    async def call() -> None:
        async with gateway(sip_outgoing=ANY_PORT) as (server, phone, _):
            outgoing = await place(server, f"sip:fax@127.0.0.1:{phone.address[1]}", detect_answer=True)
            async with server.socket(outgoing.call_id) as socket, server.http() as client:
                await told(socket, "started")
                phone.rtp.server = rtp_address(phone.calls[0].request.body)
                tone = (9_000 * np.sin(2 * np.pi * 1_100 / 8_000 * np.arange(160))).astype("<i2").tobytes()
                for _ in range(40):
                    phone.rtp.speak(tone)
                    await asyncio.sleep(0.02)
                assert (await told(socket, "answered_by"))[-1]["by"] == "fax"
                assert (await client.get(f"/{outgoing.call_id}")).json()["answered_by"] == "fax"

    run(call())


@pytest.mark.parametrize("trunk", ["second", "absent"])
def test_a_call_goes_through_the_trunk_that_is_named(trunk: str) -> None:
    async def call() -> None:
        async with sip_phone() as second:
            tables = {
                name: {"host": "127.0.0.1", "port": phone_port, "user": f"4930{name}", "expires_s": 0}
                for name, phone_port in (("first", 9), ("second", second.address[1]))
            }
            changes = {"sip_trunks": tables, "sip_outgoing": {"destinations": ["+49"]}}
            async with gateway(**changes) as (server, _, _port):
                if trunk == "absent":
                    async with server.http() as client:
                        wanted = {"over": "sip", "to": "+4930777", "trunk": trunk}
                        refused = await client.post("", json=wanted)
                    assert refused.status_code == 400
                    assert "'absent'" in refused.text and "first, second" in refused.text
                    return
                await until(lambda: server_of(server).trunks["second"].server)
                outgoing = await place(server, "+4930777", trunk=trunk)
                await until(lambda: outgoing.state.value == "answered")
                request = second.calls[0].request
                assert (request.to.sip_uri.user, request.from_.sip_uri.user) == ("+4930777", "4930second")

    run(call())


def test_the_calls_of_a_trunk_have_its_agent(tmp_path: Path) -> None:
    (tmp_path / "sales.txt").write_text("Sales here.")

    async def call() -> None:
        async with sip_phone() as provider:
            trunk = {"host": "127.0.0.1", "port": provider.address[1], "user": "4930", "agent": "sales"}
            agents = {"sales": f"script:{tmp_path / 'sales.txt'}"}
            async with gateway(sip_trunks={"trunk": trunk}, agents=agents) as (_, _phone, port):
                session = provider.call(port)
                # A script ends the call; without an agent it would stay up.
                await until(lambda: listener_of(session).names()[-1:] == ["ended"])
                assert len(provider.rtp.packets) > 5

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
                outgoing = await place(server, "+4930777")
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
                    outgoing = await place(server, "+4930777")
                    await until(lambda outgoing=outgoing: outgoing.state.value == "answered")
                assert (len(first.calls), len(second.calls)) == (1, 2)  # the second call avoids the first one
                assert second.calls[0].request.uri == "sip:+4930777@trunk.example"

    run(call())
