"""Transfers of calls over SIP on loopback."""

import asyncio

import numpy as np

from shared.calls.call_server import run
from shared.sip.gateway import gateway, rtp_address, up
from shared.sip.network import listener_of
from shared.sip.phone import SipTestPhone, sip_phone, until
from vivavoce.adapters.sip.session import SessionState


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


async def loudness(speaker: SipTestPhone, listener: SipTestPhone) -> float:
    """Return the loudest sample that reaches a phone while another one sends half a second of tone."""
    heard = len(listener.rtp.heard)
    tone = (8000 * np.sin(np.arange(160) * 0.3)).astype("<i2").tobytes()
    for _ in range(25):
        speaker.rtp.speak(tone)
        await asyncio.sleep(0.02)
    return float(np.abs(np.frombuffer(listener.rtp.heard[heard:], "<i2").astype(float)).max())


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
                assert await loudness(phone, colleague) > 7000
                colleague.calls[0].hang_up()
                await until(lambda: listener_of(session).names()[-1] == "ended")

    run(call())


def test_two_callers_are_joined_by_a_transfer_to_a_call() -> None:
    async def call() -> None:
        async with gateway() as (server, first, port), sip_phone() as second, server.http() as client:
            sessions = []
            for phone in (first, second):
                sessions.append(phone.call(port))
                await until(lambda: sessions[-1].state is SessionState.UP)
                phone.rtp.server = rtp_address(listener_of(sessions[-1]).last("answered"))
            ids = [active.call.call_id for active in server.gateway.calls.registry]
            for wrong in ("call:unknown", f"call:{ids[0]}"):
                refused = await client.post(f"/{ids[0]}/transfer", json={"to": wrong})
                assert refused.status_code == 400, refused.text
            joined = await client.post(f"/{ids[0]}/transfer", json={"to": f"call:{ids[1]}"})
            assert joined.status_code == 200, joined.text
            await until(lambda: len(server.gateway.calls.registry) == 0)
            assert await loudness(first, second) > 7000
            assert await loudness(second, first) > 7000
            sessions[0].hang_up()
            await until(lambda: listener_of(sessions[1]).names()[-1] == "ended")

    run(call())
