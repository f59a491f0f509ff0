"""Phones that hold a call over SIP, and keys that are pressed on it."""

import asyncio

import pytest

from shared.calls.call_server import run, send_utterance, words
from shared.calls.call_server import until as told
from shared.sip.gateway import gateway, up
from shared.sip.network import listener_of
from shared.sip.phone import until
from vivavoce.adapters.rtp.telephone_events import TelephoneEventDecoder


def test_a_phone_on_hold_hears_nothing_and_the_rest_after_it() -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port), server.http() as client:
            session = phone.call(port)
            call_id = await up(server, session)
            async with server.socket(call_id) as socket:
                await send_utterance(socket, "One two three four five six seven eight.")
                messages = await told(socket, "word")
                session.offer(phone.describe("a=sendonly"))
                messages += await told(socket, "hold")
                assert messages[-1]["on"] is True
                await until(lambda: "confirmed" in listener_of(session).names())
                assert b"a=recvonly" in listener_of(session).last("confirmed")  # type: ignore[operator]
                assert (await client.get(f"/{call_id}")).json()["on_hold"] is True
                await asyncio.sleep(0.1)
                packets = len(phone.rtp.packets)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(socket.recv(), 0.5)  # no word is heard
                assert len(phone.rtp.packets) == packets
                session.offer(phone.describe("a=sendrecv"))
                messages += await told(socket, "hold")
                assert messages[-1]["on"] is False
                assert (await client.get(f"/{call_id}")).json()["on_hold"] is False
                messages += await told(socket, "speech_finished")
            assert words(messages) == ["One", *"two three four five six seven eight".split()]
            assert len(phone.rtp.packets) > packets

    run(call())


@pytest.mark.parametrize("codecs", ["0 101", "0"])
def test_keys_go_to_the_phone_in_rtp_or_in_info(codecs: str) -> None:
    async def call() -> None:
        async with gateway() as (server, phone, port), server.http() as client:
            session = phone.call(port, description=phone.describe(codecs=codecs))
            call_id = await up(server, session)
            assert (await client.post(f"/{call_id}/keys", json={"digits": "5w#"})).status_code == 200

            def in_rtp() -> list[str]:
                decoder = TelephoneEventDecoder()
                events = (packet for packet in phone.rtp.packets if packet.payload_type == 101)
                return [key for event in events if (key := decoder.push(event)) is not None]

            def in_info() -> list[object]:
                return [value for name, value in listener_of(session).events if name == "key"]

            await until(lambda: len(in_rtp()) + len(in_info()) == 2)
            assert (in_info() if codecs == "0" else in_rtp()) == ["5", "#"]

    run(call())
