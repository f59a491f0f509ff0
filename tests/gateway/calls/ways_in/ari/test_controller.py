"""Calls of a Stasis application, against a simulated Asterisk on sockets."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shared.audio.tones import pitch_of, tone
from shared.calls.ari_server import WAYS, AriServer, ari_server
from shared.calls.call_server import call_server, run, send_utterance, until, words
from shared.calls.simulated_ari import APP, PASSWORD, AriTestChannel, simulated_ari
from shared.calls.simulated_media import AudioSocketMedia, RtpMedia
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls.call_options import Caller
from vivavoce.gateway.calls.events import CallerAudio
from vivavoce.gateway.calls.transfers import AttendedTransfer, TransferFailed
from vivavoce.gateway.calls.ways_in.ari.client import AriClient, AriFailed
from vivavoce.gateway.calls.ways_in.ari.consultation import caller_id_of


@pytest.mark.parametrize("way", WAYS)
def test_a_caller_is_answered_bridged_spoken_to_and_left_to_the_dial_plan(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    modules, settings = WAYS[way]

    async def scenario() -> None:
        async with ari_server(modules, **settings) as running:
            ari, server, registry = running.ari, running.server, running.server.gateway.calls.registry
            up_when_bridged: list[int] = []
            ari.on_bridged = lambda: up_when_bridged.append(len(registry))
            channel = await ari.ring("1700.1", "menu", "customer=7", LEVEL="gold")
            await running.call_up(channel)
            (media,) = ari.media
            assert channel.is_answered
            assert list(ari.bridges.values()) == [[channel.id, media.id]]
            assert up_when_bridged == [0]  # what is spoken before is lost
            async with server.socket(channel.id) as socket:
                (started,) = await until(socket, "started")
                caller = started["caller"]
                assert (caller["number"], caller["name"], caller["called"]) == ("100", "Alice", "600")
                assert caller["variables"].items() >= {"LEVEL": "gold", "customer": "7"}.items()
                await ari.press(channel, "5")
                assert (await until(socket, "dtmf"))[-1]["digit"] == "5"
                await send_utterance(socket, "One two three.")
                spoken = await until(socket, "speech_finished")
                assert words(spoken) == ["One", "two", "three"]
                assert "dtmf" not in [message["type"] for message in spoken]  # the key came once
                await socket.send('{"type": "hang_up"}')
                await until(socket, "hung_up")
            assert await running.continued(channel) == {}
            await running.all_over()
            assert media.media is not None
            samples = np.abs(np.frombuffer(media.media.heard, "<i2").astype(int))
            assert 0.5 < np.count_nonzero(samples > 500) / 8000 < 0.65  # three words of 0.2 s
            await running.call_up(gone := await ari.ring("1700.2"))
            await ari.caller_hangs_up(gone)
            await running.all_over()
            assert not ari.did("POST", "channels/1700.2/continue")

    with caplog.at_level(logging.INFO):
        run(scenario())
    (chosen,) = [text for text in caplog.messages if text.startswith("External media")]
    assert f"goes over {way.partition(',')[0]}: " in chosen


@pytest.mark.parametrize("number", ["601", "sip:bob@example.org"])
def test_a_caller_is_transferred_to_an_extension_or_an_address(number: str) -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            channel = await running.ari.ring()
            channel.refers = "hangs up"
            await running.call_up(channel)
            async with running.server.http() as client:
                answer = await client.post(f"/{channel.id}/transfer", json={"to": number})
                assert answer.status_code == 200, answer.text
            await running.all_over()
            if number == "601":
                place = await running.continued(channel)
                assert place == {"context": "from-phones", "extension": "601", "priority": "1"}
            else:
                await running.until(lambda: bool(running.ari.did("POST", f"channels/{channel.id}/redirect")))
                (place,) = running.ari.did("POST", f"channels/{channel.id}/redirect")
                assert place == {"endpoint": "PJSIP/sip:bob@example.org"}

    run(scenario())


async def join(running: AriServer) -> tuple[AriTestChannel, AriTestChannel]:
    """Transfer the caller of one call to that of another; return both channels."""
    channels = await running.ari.ring("1700.1"), await running.ari.ring("1700.2")
    for channel in channels:
        await running.call_up(channel)
    async with running.server.http() as client:
        answer = await client.post("/1700.1/transfer", json={"to": "call:1700.2"})
        assert answer.status_code == 200, answer.text
    registry = running.server.gateway.calls.registry
    await running.until(lambda: len(registry) == 0 and not running.ari.media)
    return channels


@pytest.mark.parametrize("leaver", [0, 1])
def test_two_callers_are_joined_until_one_hangs_up(leaver: int) -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            ari, channels = running.ari, await join(running)
            await running.until(lambda: list(ari.bridges.values()) == [["1700.1", "1700.2"]])
            assert not any(path.endswith("/continue") for _, path, _ in ari.requests)
            await running.call_up(await ari.ring("1700.3"))  # another call is served meanwhile
            await ari.caller_hangs_up(channels[leaver])
            await running.until(lambda: channels[1 - leaver].id not in ari.channels and len(ari.bridges) == 1)
            assert "1700.3" in ari.channels

    run(scenario())


def test_callers_who_cannot_be_joined_are_left_to_the_dial_plan(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        raise AriFailed("no bridge")

    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.ari.joined_callers.JoinedCallers.join", fail)

    async def scenario() -> None:
        async with ari_server() as running:
            for channel in await join(running):
                assert await running.continued(channel) == {}

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "no bridge" in caplog.text


def test_a_joined_caller_who_left_while_the_connection_was_lost_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.ari.controller._RETRY_S", (0.2,))

    async def scenario() -> None:
        async with ari_server() as running:
            ari, (first, second) = running.ari, await join(running)
            await running.until(lambda: [len(members) for members in ari.bridges.values()] == [2])
            (socket,) = ari.sockets
            ari.sockets.clear()
            await socket.close()
            await ari.caller_hangs_up(second)  # nobody is told
            await running.until(lambda: first.id not in ari.channels and not ari.bridges)

    run(scenario())


async def attend(
    running: AriServer, to: str
) -> tuple[AriTestChannel, AriTestChannel, "asyncio.Task[httpx.Response]"]:
    """Ask for an attended transfer; return the caller's channel and the target's, which rings."""
    caller = await running.ari.ring("1700.1")
    await running.call_up(caller)
    attended = {"announcement": "Alice is calling.", "ring_s": 20}

    async def ask() -> httpx.Response:
        async with running.server.http() as client:
            return await client.post("/1700.1/transfer", json={"to": to, "attended": attended})

    asking = asyncio.create_task(ask())
    await running.until(lambda: bool(running.ari.did("POST", "channels")))
    (asked,) = running.ari.did("POST", "channels")
    return caller, running.ari.channels[asked["channelId"]], asking


@pytest.mark.parametrize("way", ["RTP", "chan_websocket"])
def test_an_attended_transfer_announces_the_caller_and_joins_both(way: str) -> None:
    async def scenario() -> None:
        async with ari_server(*WAYS[way][:1]) as running:
            registry = running.server.gateway.calls.registry
            caller, target, asking = await attend(running, "200")
            (asked,) = running.ari.did("POST", "channels")
            assert asked["endpoint"] == "Local/200@from-phones/n" and asked["timeout"] == "20"
            assert asked["originator"] == caller.id  # else it would have linear audio at 192 kHz
            assert asked["callerId"] == '"Alice" <100>'
            waiting = asyncio.create_task(registry.next_unattached())
            await running.ari.answer(target)
            await running.call_up(target)
            assert (await waiting).call.call_id == caller.id  # the target's is not for programs
            media = max(running.ari.media, key=lambda one: list(running.ari.channels).index(one.id))
            answer = await asking
            assert (answer.status_code, answer.json()["status"]) == (200, "transferred"), answer.text
            await running.until(lambda: [[caller.id, target.id]] == list(running.ari.bridges.values()))
            assert media.media is not None
            samples = np.abs(np.frombuffer(media.media.heard, "<i2").astype(int))
            assert np.count_nonzero(samples > 500) / 8000 > 0.5  # the announcement, whole

    run(scenario())


@pytest.mark.parametrize(
    ("cause", "answers", "reason"),
    [
        (17, False, "PJSIP/200 is busy; the caller is still on the call"),
        (3, False, "PJSIP/200 cannot be reached; the caller is still on the call"),
        (16, False, "PJSIP/200 does not answer; the caller is still on the call"),
        (16, True, "PJSIP/200 hung up before the callers were joined; the caller is still on the call"),
    ],
)
def test_a_target_that_is_not_reached_leaves_the_caller_on_the_call(
    cause: int, answers: bool, reason: str
) -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            ari = running.ari
            caller, target, asking = await attend(running, "PJSIP/200")
            await ari.emit("Dial", target, dialstatus="RINGING")
            if answers:
                await ari.answer(target)
                await running.call_up(target)
            await ari.caller_hangs_up(target, cause)
            answer = await asking
            assert (answer.status_code, answer.json()["error"]) == (409, reason)
            async with running.server.socket(caller.id) as socket:
                await until(socket, "started")
                ari.refused = {"channels"}
                await socket.send('{"type": "transfer", "to": "200", "attended": {}}')
                (*_, error) = await until(socket, "error")
                assert error["message"].startswith("200 cannot be called: Asterisk refused")
                await socket.send('{"type": "transfer", "to": "sip:bob@example.org", "attended": {}}')
                (*_, error) = await until(socket, "error")
                assert "goes to an extension, or to an endpoint" in error["message"]
                await send_utterance(socket, "One.")
                assert words(await until(socket, "speech_finished")) == ["One"]

    run(scenario())


def test_a_caller_who_hangs_up_ends_the_ringing_of_the_target() -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            caller, target, asking = await attend(running, "PJSIP/200")
            async with running.server.http() as client:
                again = await client.post(f"/{caller.id}/transfer", json={"to": "201", "attended": {}})
            assert (again.status_code, "PJSIP/200 is under way" in again.text) == (400, True)
            await running.ari.caller_hangs_up(caller)
            assert (await asking).json()["error"] == "the caller hung up before the transfer"
            await running.until(lambda: target.id not in running.ari.channels)

    run(scenario())


def test_a_target_rings_no_longer_if_asterisk_does_not_answer_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    originate = AriClient.originate

    async def time_out(*args: Any, **keywords: Any) -> None:
        await originate(*args, **keywords)
        raise AriFailed("Asterisk does not answer")

    monkeypatch.setattr(AriClient, "originate", time_out)

    async def scenario() -> None:
        async with ari_server() as running:
            caller = await running.ari.ring("1700.1")
            await running.call_up(caller)
            async with running.server.http() as client:
                answer = await client.post(f"/{caller.id}/transfer", json={"to": "200", "attended": {}})
            assert answer.json()["error"] == "200 cannot be called: Asterisk does not answer"
            (asked,) = running.ari.did("POST", "channels")
            await running.until(lambda: asked["channelId"] not in running.ari.channels)

    run(scenario())


def test_no_target_is_called_for_a_call_that_is_over() -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            caller = await running.ari.ring("1700.1")
            await running.call_up(caller)
            call = running.server.gateway.calls.registry.get(caller.id).call
            await running.ari.caller_hangs_up(caller)
            await running.all_over()
            with pytest.raises(TransferFailed, match="the call is not up"):
                await call.end.transfer_attended(AttendedTransfer("200", "", 20.0))
            assert not running.ari.did("POST", "channels")

    run(scenario())


def test_a_transfer_to_a_call_that_is_not_up_is_refused_and_the_call_goes_on() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            channel = await running.ari.ring("1700.1")
            await running.call_up(channel)
            for target in ("call:1700.1", "call:1700.9", "call:", "PJSIP/200"):
                answer = await client.post("/1700.1/transfer", json={"to": target})
                assert (answer.status_code, target in answer.text) == (400, True)
            assert len(running.server.gateway.calls.registry) == 1
            assert (await client.post("/1700.1/transfer", json={"to": "601"})).status_code == 200
            assert (await running.continued(channel))["extension"] == "601"

    run(scenario())


def test_the_end_of_either_channel_ends_that_call_and_no_other() -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            first, second, third = [await running.ari.ring(f"1700.{number}") for number in range(3)]
            for channel in (first, second, third):
                await running.call_up(channel)
            registry = running.server.gateway.calls.registry
            await running.ari.caller_hangs_up(first)
            await running.until(lambda: len(registry) == 2 and len(running.ari.media) == 2)
            assert not running.ari.did("POST", f"channels/{first.id}/continue")
            bridged = next(members for members in running.ari.bridges.values() if second.id in members)
            await running.ari.caller_hangs_up(running.ari.channels[bridged[1]])
            assert await running.continued(second) == {}
            await running.until(lambda: len(registry) == 1)
            assert third.id in [active.call.call_id for active in registry]

    run(scenario())


def test_a_call_that_asterisk_does_not_connect_is_left_to_the_dial_plan(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.ari.ari_call._ENTER_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        async with ari_server(rtp_ports="41010-41011") as running:
            ari = running.ari
            for number, refused in enumerate(("answer", "externalMedia", "addChannel", "nothing")):
                ari.refused = {refused}
                ari.media_enters = refused != "nothing"
                channel = await ari.ring(f"1700.{number}")
                assert await running.continued(channel) == {}
                await running.all_over()
            ari.refused, ari.media_enters = set(), True
            channel = await ari.ring("1700.9")  # the only port is free again
            await running.call_up(channel)
            assert "did not enter" in caplog.text
            assert "Allocation failed" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_a_caller_who_is_gone_before_the_call_is_up_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            ari = running.ari
            unknown = AriTestChannel("1700.1", "PJSIP/alice-1", {"id": "1700.1", "name": "PJSIP/alice-1"})
            await ari.emit("StasisStart", unknown, args=[])  # it is gone when the gateway answers
            await running.until(lambda: "channel PJSIP/alice-1 could not be connected" in caplog.text)
            ari.media_enters = False
            channel = await ari.ring("1700.2")
            await running.until(lambda: bool(ari.media))
            await ari.caller_hangs_up(channel)
            await running.until(lambda: f"channel {channel.name} could not be connected" in caplog.text)
            await running.all_over()

    with caplog.at_level(logging.INFO):
        run(scenario())
    levels = [record.levelno for record in caplog.records if "could not be connected" in record.getMessage()]
    assert levels == [logging.INFO, logging.INFO]


def test_no_request_to_asterisk_is_logged_with_a_number(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            wanted = {"over": "ari", "endpoint": "PJSIP/0301234", "caller_id": "Bank <0305678>"}
            assert (await client.post("", json=wanted)).status_code == 202

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert [record for record in caplog.records if record.name.startswith("http")] == []
    assert "0305678" not in caplog.text


def test_a_wideband_call_over_audiosocket_is_wideband_both_ways() -> None:
    async def scenario() -> None:
        async with ari_server({"chan_audiosocket.so"}, ari_codec="slin16") as running:
            channel = await running.ari.ring()
            await running.call_up(channel)
            (media,) = running.ari.media
            assert isinstance(media.media, AudioSocketMedia)
            phone, call = media.media.phone, running.server.gateway.calls.registry.get(channel.id).call
            heard: list[CallerAudio] = []
            call.events.add_listener(
                lambda event: heard.append(event) if isinstance(event, CallerAudio) else None,
                wants_audio=True,
            )
            phone.send_audio(16_000, tone(5_000, 16_000, 0, 3_200))
            await running.until(lambda: sum(len(event.pcm) for event in heard) >= 3_200)
            assert {event.sample_rate for event in heard} == {16_000}
            pcm = b"".join(event.pcm for event in heard)
            assert pitch_of(pcm, 16_000) == pytest.approx(5_000, rel=0.02)
            phone.heard.clear()
            await call.speech.speak("One two three.")
            await call.speech.wait_played()
            assert phone.rates == {24_000}  # which Asterisk converts to the rate of its channel
            assert pitch_of(bytes(phone.heard), 24_000) == pytest.approx(440, rel=0.03)

    run(scenario())


def test_a_call_beyond_the_limit_is_refused_as_congestion() -> None:
    async def scenario() -> None:
        async with ari_server(calls_max_calls=1) as running:
            first = await running.ari.ring("1700.1")
            await running.call_up(first)
            await running.ari.ring("1700.2")
            path = "channels/1700.2"
            await running.until(lambda: bool(running.ari.did("DELETE", path)))
            assert running.ari.did("DELETE", path) == [{"reason": "congestion"}]

    run(scenario())


def test_a_call_is_originated_and_comes_in_under_its_id_when_it_is_answered() -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            wanted = {"over": "ari", "endpoint": "PJSIP/alice", "caller_id": "Bank <800>"}
            answer = await client.post("", json=wanted)
            assert answer.status_code == 202, answer.text
            call_id = answer.json()["call"]
            (asked,) = running.ari.did("POST", "channels")
            assert asked == {
                "channelId": call_id, "endpoint": "PJSIP/alice", "app": APP, "callerId": "Bank <800>",
                "appArgs": f"vivavoce-call:{call_id}",
            }  # fmt: skip
            await running.ari.answer(channel := running.ari.channels[call_id])
            await running.call_up(channel)
            local = await client.post("", json=wanted | {"endpoint": "Local/605@phones/n"})
            assert local.status_code == 202
            # Else it would have linear audio at 192 kHz.
            assert running.ari.did("POST", "channels")[1]["formats"] == "ulaw"
            running.ari.refused = {"channels"}
            assert (await client.post("", json=wanted)).status_code == 502

    run(scenario())


@pytest.mark.parametrize(
    "changed",
    [
        {"caller_id": "Bank <800>\r\nX-Header: y"},
        {"caller_id": "${SHELL(id)}"},
        {"endpoint": "PJSIP/${GLOBAL(x)}"},
        {"endpoint": "PJSIP/100\x1b"},
        {"variables": {"SHELL(id)": "x"}},
        {"variables": {"DB(family/key)": "x"}},
        {"variables": {"note": "a\nb"}},
        {"variables": {"note": "$[1+1]"}},
        {"variables": {"__very bad": "x"}},
    ],
    ids=str,
)
def test_line_ends_and_functions_of_the_dial_plan_never_reach_asterisk(changed: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            wanted = {"over": "ari", "endpoint": "PJSIP/alice", "variables": {"__customer_2": "7 $ [x]"}}
            assert (await client.post("", json=wanted)).status_code == 202
            refused = await client.post("", json=wanted | changed)
            assert refused.status_code == 400, refused.text
            assert len(running.ari.did("POST", "channels")) == 1

    run(scenario())


def test_the_name_of_a_caller_is_shown_without_what_asterisk_would_interpret() -> None:
    caller = Caller(number="+1555\r\n0100", name='Ann "${SHELL(id)}"\r\n<x>')
    assert caller_id_of(caller) == '"Ann {SHELL(id)}x" <+15550100>'


def test_a_caller_whose_telephone_suppresses_silence_is_not_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.rtp.way_in._SILENT_S", 0.3)

    async def scenario() -> None:
        async with ari_server() as running:
            await running.call_up(channel := await running.ari.ring())
            (media,) = running.ari.media
            assert isinstance(media.media, RtpMedia)
            media.media.phone.speak(bytes(1_600))  # 0.1 s, and then nothing
            async with running.server.socket(channel.id) as socket_:
                await send_utterance(socket_, "One two three four five.")  # 1 s
                assert len(words(await until(socket_, "speech_finished"))) == 5

    run(scenario())


def test_shutdown_leaves_the_callers_to_the_dial_plan() -> None:
    async def scenario() -> None:
        async with simulated_ari() as ari:
            settings: dict[str, Any] = {"ari_url": ari.url, "ari_password": PASSWORD}
            async with call_server(**settings) as server:
                running = AriServer(ari, server)
                await running.until(lambda: bool(ari.sockets))
                channel = await ari.ring()
                await running.call_up(channel)
            assert ari.did("POST", f"channels/{channel.id}/continue") == [{}]
            assert not ari.media and not ari.bridges

    run(scenario())


@pytest.mark.parametrize("enters", [False, True])
def test_a_shutdown_while_a_call_is_being_connected_ends_it_and_the_others(
    enters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.registry._END_TIMEOUT_S", 1.0)

    async def scenario() -> None:
        async with ari_server() as running:
            ari, registry = running.ari, running.server.gateway.calls.registry
            ari.media_enters = False
            connecting = await ari.ring("1700.1")
            await running.until(lambda: bool(ari.media))
            ari.media_enters = True
            up = await ari.ring("1700.2")
            await running.call_up(up)
            finishing = asyncio.create_task(registry.finish_calls(5.0))
            await running.continued(up)
            if enters:
                await ari.emit("StasisStart", ari.media[0], args=[])
                assert await running.continued(connecting) == {}
            await finishing
        assert ari.did("POST", "channels/1700.1/continue") == [{}]
        assert not ari.media and not ari.bridges

    run(scenario())


def placing_key(tmp_path: Path, limits: KeyLimits) -> dict[str, Any]:
    """Settings of a server with one key that places calls, and sees those."""
    scopes = (Scope.ORIGINATE, Scope.CALLS_OWN)
    key = KeysFile(tmp_path / "keys.json").add("program", scopes, limits, destinations=("PJSIP/*",))
    return {"keys_file": tmp_path / "keys.json", "key": key}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "chan_websocket, Asterisk connects"])
def test_a_call_that_a_key_placed_belongs_to_it_and_ends_with_it(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = placing_key(tmp_path, KeyLimits(max_calls=1))

    async def scenario() -> None:
        modules, settings = WAYS[way]
        async with ari_server(modules, **settings, **secured) as running, running.server.http() as client:
            registry = running.server.gateway.calls.registry
            # On a busy machine, it would refuse calls.
            monkeypatch.setattr(registry.pressure, "refusal", lambda now: None)
            wanted = {"over": "ari", "endpoint": "PJSIP/alice"}
            call_id = (await client.post("", json=wanted)).json()["call"]
            assert (await client.post("", json=wanted)).status_code == 429  # it counts while it rings
            await running.ari.answer(channel := running.ari.channels[call_id])
            await running.call_up(channel)
            await running.call_up(await running.ari.ring("1700.9"))
            assert [call["call"] for call in (await client.get("")).json()["calls"]] == [call_id]
            KeysFile(secured["keys_file"]).revoke(secured["key"][3:11])
            await running.until(lambda: [one.call.call_id for one in registry] == ["1700.9"])

    run(scenario())


def test_a_call_that_rings_is_hung_up_when_its_key_ends(tmp_path: Path) -> None:
    secured = placing_key(tmp_path, KeyLimits())

    async def scenario() -> None:
        async with ari_server(**secured) as running, running.server.http() as client:
            call_id = (await client.post("", json={"over": "ari", "endpoint": "PJSIP/alice"})).json()["call"]
            refused = await client.post("", json={"over": "ari", "endpoint": "PJSIP/alice/sip:0900@trunk"})
            assert refused.status_code == 403
            KeysFile(secured["keys_file"]).revoke(secured["key"][3:11])
            await running.until(lambda: call_id not in running.ari.channels)

    run(scenario())


def test_a_call_that_nobody_answers_counts_no_more(tmp_path: Path) -> None:
    secured, wanted = (
        placing_key(tmp_path, KeyLimits(max_calls=1)),
        {"over": "ari", "endpoint": "PJSIP/alice"},
    )

    async def scenario() -> None:
        async with ari_server(**secured) as running, running.server.http() as client:
            for _ in range(3):
                answer = await client.post("", json=wanted)
                while answer.status_code == 429:  # until Asterisk has said that the one before is over
                    await asyncio.sleep(0.01)
                    answer = await client.post("", json=wanted)
                await running.ari.caller_hangs_up(running.ari.channels[answer.json()["call"]], cause=19)

    run(scenario())
