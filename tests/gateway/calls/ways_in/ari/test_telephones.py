"""What telephones do to calls of a Stasis application: refuse transfers, hold, forward, do not answer."""

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest

from shared.calls.ari_server import AriServer, ari_server
from shared.calls.call_server import run, send_utterance, until, words
from shared.calls.simulated_ari import AriTestChannel, SimulatedAri
from vivavoce.gateway.calls.ways_in.ari import ari_call, gateway_identity

ADDRESS = "sip:bob@example.org"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ari_call, "_TRANSFERRED_S", 0.1)
    monkeypatch.setattr(gateway_identity, "WATCH_S", 0.1)


async def originated(running: AriServer, client: httpx.AsyncClient, **wanted: Any) -> AriTestChannel:
    body = {"over": "ari", "endpoint": "PJSIP/bob", "caller_id": '"Bank" <800>', **wanted}
    answer = await client.post("", json=body)
    assert answer.status_code == 202, answer.text
    return running.ari.channels[answer.json()["call"]]


async def transfer_begun(
    running: AriServer, client: httpx.AsyncClient
) -> tuple[SimulatedAri, AriTestChannel, "asyncio.Task[httpx.Response]"]:
    """Have a caller transferred to PJSIP/bob, who is asked first; return the request that waits for it."""
    caller = await running.ari.ring("1700.1")
    await running.call_up(caller)
    order = {"to": "PJSIP/bob", "attended": {}}
    return running.ari, caller, asyncio.create_task(client.post("/1700.1/transfer", json=order))


async def consulted(running: AriServer, number: int = 0) -> AriTestChannel:
    """Wait for a call to the target of a transfer; return its channel."""
    await running.until(lambda: len(running.ari.did("POST", "channels")) > number)
    channel_id = running.ari.did("POST", "channels")[number]["channelId"]
    await running.until(lambda: channel_id in running.ari.channels)
    return running.ari.channels[channel_id]


def test_a_refused_transfer_leaves_the_caller_with_the_agent_or_in_the_dial_plan() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await running.ari.ring("1700.1")
            await running.call_up(channel)
            answer = await client.post("/1700.1/transfer", json={"to": ADDRESS})
            assert answer.status_code == 409 and "is still on the call" in answer.json()["error"]
            (members,) = running.ari.bridges.values()
            assert channel.id in members  # it is back with the agent
            async with running.server.socket(channel.id) as socket:
                await until(socket, "started")
                await socket.send(f'{{"type": "transfer", "to": "{ADDRESS}"}}')
                assert "has not reached" in (await until(socket, "error"))[-1]["message"]
                await send_utterance(socket, "One.")
                assert words(await until(socket, "speech_finished")) == ["One"]
            order = {"to": ADDRESS, "if_refused": "dial_plan"}
            assert (await client.post("/1700.1/transfer", json=order)).status_code == 409
            assert await running.continued(channel) == {}

    run(scenario())


def test_a_transfer_that_rings_in_vain_waits_until_it_is_over_and_the_caller_is_back() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            ari, channel = running.ari, await running.ari.ring("1700.1")
            channel.refers = "tries"
            await running.call_up(channel)
            (bridge,) = ari.bridges
            asking = asyncio.create_task(client.post("/1700.1/transfer", json={"to": ADDRESS}))
            await running.until(lambda: len(ari.did("POST", f"bridges/{bridge}/addChannel")) == 2)
            assert channel.id not in ari.bridges[bridge] and not asking.done()
            ari.end_transfer(channel)
            assert ((await asking).status_code, channel.id in ari.bridges[bridge]) == (409, True)

    run(scenario())


def test_a_telephone_that_holds_after_its_transfer_has_gone_there() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await running.ari.ring("1700.1")
            channel.refers = "holds"
            await running.call_up(channel)
            assert (await client.post("/1700.1/transfer", json={"to": ADDRESS})).status_code == 200
            await running.until(lambda: channel.id not in running.ari.channels)
            assert not running.ari.did("POST", "channels/1700.1/continue")

    run(scenario())


def test_a_hold_is_told_and_the_speech_waits() -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            channel = await running.ari.ring("1700.1")
            await running.call_up(channel)
            async with running.server.socket(channel.id) as socket:
                await until(socket, "started")
                await running.ari.emit("ChannelHold", channel)
                assert (await until(socket, "hold"))[-1]["on"] is True
                await send_utterance(socket, "One two.")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(until(socket, "word"), 1.0)
                async with running.server.http() as client:
                    assert (await client.get("/1700.1")).json()["on_hold"] is True
                await running.ari.emit("ChannelUnhold", channel)
                assert words(await until(socket, "speech_finished")) == ["One", "two"]

    run(scenario())


def test_keys_go_to_the_far_end() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            await running.call_up(await running.ari.ring("1700.1"))
            assert (await client.post("/1700.1/keys", json={"digits": "12w#"})).status_code == 200
            sent = running.ari.did("POST", "channels/1700.1/dtmf")
            assert [query["dtmf"] for query in sent] == ["12", "#"]
            assert (await client.post("/1700.1/keys", json={"digits": "1x"})).status_code == 400

    run(scenario())


@pytest.mark.parametrize(
    ("progress", "cause", "sip", "state"),
    [
        ("RINGING", 17, 486, "busy"),
        ("RINGING", 21, 603, "declined"),
        ("RINGING", 19, 480, "no_answer"),
        ("PROGRESS", 3, 404, "unreachable"),
        ("", 3, 404, "unreachable"),
        ("", 16, None, "unreachable"),
    ],
)
def test_an_outgoing_call_that_is_not_answered_says_why(
    progress: str, cause: int, sip: int | None, state: str
) -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await originated(running, client)
            async with running.server.socket(channel.id) as socket:
                assert (await until(socket, "call_state"))[-1]["state"] == "placed"
                if progress:
                    await running.ari.emit("Dial", channel, dialstatus=progress)
                    reached = (await until(socket, "call_state"))[-1]["state"]
                    assert reached == {"RINGING": "ringing", "PROGRESS": "early_media"}[progress]
                await running.ari.caller_hangs_up(channel, cause)
                assert (await until(socket, "call_state"))[-1] == {
                    "type": "call_state", "state": state, "sip": sip
                }  # fmt: skip
                await until(socket, "hung_up")
            record = (await client.get(f"/{channel.id}")).json()
            assert (record["state"], record["sip"]) == (state, sip)
            assert (record["caller"]["number"], record["caller"]["called"]) == ("800", "PJSIP/bob")

    run(scenario())


def test_an_outgoing_call_is_cancelled_while_it_rings_and_hung_up_if_it_answers_all_the_same() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await originated(running, client)
            assert (await client.delete(f"/{channel.id}")).status_code == 200
            assert (await client.get(f"/{channel.id}")).json()["state"] == "cancelled"
            await running.until(lambda: channel.id not in running.ari.channels)
            running.ari.channels[channel.id] = channel
            await running.ari.answer(channel)
            await running.until(lambda: channel.id not in running.ari.channels)

    run(scenario())


def test_an_outgoing_call_that_is_forwarded_keeps_its_id_and_its_sides() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await originated(running, client)
            async with running.server.socket(channel.id) as socket:
                other = await running.ari.forward_to_endpoint(channel, "1700.9")
                await running.ari.answer(other)
                received = await until(socket, "started")
                assert received[-2]["state"] == "answered" and received[-1]["call"] == channel.id
                assert received[-1]["caller"]["called"] == "PJSIP/bob"
                await running.ari.caller_hangs_up(other)
                await until(socket, "hung_up")
            await running.all_over()
            assert (await client.get(f"/{channel.id}")).json()["state"] == "ended"

    run(scenario())


def test_the_target_of_a_transfer_may_forward_it_and_is_not_served_as_a_caller() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            ari, caller, asking = await transfer_begun(running, client)
            await ari.answer(other := await ari.forward_to_endpoint(await consulted(running), "1700.9"))
            assert (await asking).status_code == 200
            await running.until(lambda: [[caller.id, other.id]] == list(ari.bridges.values()))

    run(scenario())


def test_the_extension_that_a_target_forwards_to_is_called_in_the_format_of_the_caller() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            ari, caller, asking = await transfer_begun(running, client)
            await ari.forward(await consulted(running), "605")
            other = await consulted(running, 1)
            query = ari.did("POST", "channels")[1]
            assert (query["endpoint"], query["originator"]) == ("Local/605@phones/n", caller.id)
            await ari.answer(other)
            assert (await asking).status_code == 200
            await running.until(lambda: [[caller.id, other.id]] == list(ari.bridges.values()))

    run(scenario())


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        (["605", "busy"], "is busy"),
        (["bob@elsewhere"], "forwards the call where it cannot be reached"),
        (["605"] * 6, "forwards the call where it cannot be reached"),
    ],
)
def test_a_target_that_forwards_in_vain_leaves_the_caller_where_they_are(
    extensions: list[str], said: str
) -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            ari, caller, asking = await transfer_begun(running, client)
            for number, extension in enumerate(extensions):
                target = await consulted(running, number)
                if extension == "busy":
                    await ari.caller_hangs_up(target, 17)
                else:
                    await ari.forward(target, extension)
            answer = await asking
            assert answer.status_code == 409 and said in answer.json()["error"]
            assert [caller.id in members for members in ari.bridges.values()] == [True]

    run(scenario())


def test_a_telephone_that_picks_up_the_call_to_a_target_gets_the_caller() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            ari, caller, asking = await transfer_begun(running, client)
            other = await ari.pick_up(await consulted(running), "1700.9")
            assert (await asking).status_code == 200
            await running.until(lambda: [[caller.id, other.id]] == list(ari.bridges.values()))

    run(scenario())


def test_a_caller_whom_a_receptionist_refers_here_has_its_own_number_and_what_was_called() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            receptionist = await running.ari.ring("1700.1")
            await running.call_up(receptionist)
            caller = await running.ari.refer_to(receptionist, "1700.9", "0301234")
            await running.call_up(caller)
            told = (await client.get("/1700.9")).json()["caller"]
            assert (told["number"], told["called"]) == ("0301234", "600")
            assert (await client.delete("/1700.9")).status_code == 200
            place = {"context": "from-phones", "extension": "600", "priority": "3"}
            assert await running.continued(caller) == place

    run(scenario())


def test_an_outgoing_call_follows_forwards_and_is_answered_by_a_telephone_that_picks_it_up() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await originated(running, client)
            await running.ari.forward(channel, "605")
            other = await consulted(running, 1)
            assert running.ari.did("POST", "channels")[1]["formats"] == "ulaw"
            await running.ari.emit("Dial", other, dialstatus="RINGING")
            await running.until_state(client, channel.id, "ringing")
            answered = await running.ari.pick_up(other, "1700.9")
            await running.until_state(client, channel.id, None)
            assert (await client.delete(f"/{channel.id}")).status_code == 200
            assert await running.continued(answered) == {}

    run(scenario())


def test_a_program_is_told_what_answered_and_the_record_keeps_it() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await originated(running, client, detect_answer=True)
            async with running.server.socket(channel.id) as socket:
                await running.ari.answer(channel)
                assert (await until(socket, "started"))[-1]["answered_by"] is None
                call = running.server.gateway.calls.registry.get(channel.id).call
                assert call.events.wants_caller_audio
                turns = 2 * np.pi * 1_100 / 8_000 * np.arange(4_800)
                call.listening.on_caller_audio((9_000 * np.sin(turns)).astype("<i2").tobytes(), 8_000)
                told = (await until(socket, "answered_by"))[-1]
                assert told["by"] == "fax" and told["at_s"] < 0.6
                assert not call.events.wants_caller_audio
                assert (await client.get(f"/{channel.id}")).json()["answered_by"] == "fax"
                await running.ari.caller_hangs_up(channel)
            await running.all_over()
            record = (await client.get(f"/{channel.id}")).json()
            assert (record["state"], record["answered_by"]) == ("ended", "fax")

    run(scenario())


def test_an_outgoing_call_that_is_forwarded_is_cancelled_where_it_rings() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await originated(running, client)
            await running.ari.forward(channel, "605")
            other = await consulted(running, 1)
            assert (await client.delete(f"/{channel.id}")).status_code == 200
            await running.until(lambda: other.id not in running.ari.channels)
            assert (await client.get(f"/{channel.id}")).json()["state"] == "cancelled"

    run(scenario())


def test_the_variables_of_the_media_are_not_the_callers() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            own = {
                "MEDIA_WEBSOCKET_CONNECTION_ID": "x",
                "DIALEDPEERNUMBER": "y",
                "UNICASTRTP_LOCAL_PORT": "1",
            }
            await running.call_up(await running.ari.ring("1700.1", LEVEL="gold", **own))
            assert (await client.get("/1700.1")).json()["caller"]["variables"] == {"LEVEL": "gold"}

    run(scenario())
