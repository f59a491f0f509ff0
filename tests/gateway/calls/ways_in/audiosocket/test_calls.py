"""The AudioSocket call server over loopback sockets: valid calls, admission, shutdown, faults of agents."""

import asyncio
import logging
import socket
import struct
from typing import Any

import pytest

from shared.calls.audiosocket_server import (
    CALL_ID,
    SILENCE,
    FunctionAgent,
    SpeakingAgent,
    call_id_message,
    connect,
    level_dbfs,
    message,
    run_server,
)
from vivavoce.adapters.media.servers import phone_call
from vivavoce.adapters.playback.playout import Playout
from vivavoce.gateway.calls.agents.kinds.keys import KeysAgent
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.call_options import UNKNOWN_CALLER
from vivavoce.gateway.calls.expected_calls import ExpectedCalls
from vivavoce.gateway.calls.registry import CallLeg


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "vivavoce")
    return caplog


# Valid calls


def test_a_silent_call_gets_packets_of_silence_from_the_first_tick() -> None:
    async def scenario() -> None:
        async with run_server() as server, connect(server, call_id_message()) as peer:
            assert await peer.receive_packets(5) == [SILENCE] * 5

    asyncio.run(scenario())


def test_packets_at_24_khz_have_kind_0x13() -> None:
    async def scenario() -> None:
        async with run_server(sample_rate=24000) as server, connect(server, call_id_message()) as peer:
            assert await peer.receive() == (0x13, bytes(960))

    asyncio.run(scenario())


def test_the_agent_s_speech_is_followed_by_a_hangup_message() -> None:
    async def scenario() -> None:
        async with (
            run_server(SpeakingAgent("One two three four five.")) as server,
            connect(server, call_id_message()) as peer,
        ):
            packets, got_hangup = await peer.receive_all()
            speech = [packet for packet in packets if level_dbfs(packet) > -30]
            assert got_hangup
            assert {len(packet) for packet in packets} == {320}
            assert 49 <= len(speech) <= 52  # five words of 0.2 s
            await server.until(lambda: len(server.audiosocket.registry) == 0)

    asyncio.run(scenario())


def test_a_call_id_in_any_split_opens_the_call() -> None:
    async def scenario() -> None:
        async with run_server() as server, connect(server) as peer:
            for byte in call_id_message():
                await peer.send(bytes([byte]))
                await asyncio.sleep(0.001)
            assert await peer.receive_packets(1) == [SILENCE]

    asyncio.run(scenario())


def test_a_payload_may_arrive_later_than_its_header() -> None:
    async def scenario() -> None:
        async with run_server() as server, connect(server, call_id_message()) as peer:
            await peer.send(message(0x10, SILENCE)[:3])
            await peer.receive_packets(2)
            await peer.send(SILENCE)
            await peer.receive_packets(2)
            assert len(server.audiosocket.registry) == 1

    asyncio.run(scenario())


def test_a_dtmf_digit_interrupts_the_keys_agent() -> None:
    async def scenario() -> None:
        async with run_server(KeysAgent()) as server, connect(server, call_id_message()) as peer:
            await peer.receive_packets(20)
            await peer.send(message(0x03, b"#"))
            packets, got_hangup = await peer.receive_all()
            assert got_hangup
            assert len(packets) < 200  # the greeting alone is longer

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "last",
    [b"", message(0x00), message(0x00) + message(0x10, SILENCE)],
    ids=["by closing", "with 0x00", "with 0x00 and more data"],
)
def test_a_caller_who_hangs_up_is_a_normal_end(last: bytes, log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with run_server(SpeakingAgent("Word " * 100)) as server:
            async with connect(server, call_id_message()) as peer:
                await peer.receive_packets(3)
                await peer.send(last)
            await server.until(lambda: len(server.audiosocket.registry) == 0)

    asyncio.run(scenario())
    assert f"Call {CALL_ID} closed after" in log.text
    assert "the caller hung up" in log.text
    assert [record for record in log.records if record.levelno > logging.INFO] == []


def test_a_connection_reset_is_a_normal_end(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with run_server(SpeakingAgent("Word " * 100)) as server:
            async with connect(server, call_id_message()) as peer:
                await peer.receive_packets(3)
                linger = struct.pack("ii", 1, 0)
                peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await server.until(lambda: len(server.audiosocket.registry) == 0)

    asyncio.run(scenario())
    assert f"Call {CALL_ID} closed after" in log.text
    assert [record for record in log.records if record.levelno > logging.INFO] == []


def test_an_agent_is_cancelled_when_its_caller_hangs_up() -> None:
    cancelled = asyncio.Event()

    async def wait_forever(call: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def scenario() -> None:
        async with run_server(FunctionAgent(wait_forever)) as server:
            async with connect(server, call_id_message()) as peer:
                await peer.receive_packets(1)
            async with asyncio.timeout(30):
                await cancelled.wait()

    asyncio.run(scenario())


def test_the_start_and_the_end_of_a_call_are_logged_with_its_counters(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            run_server(SpeakingAgent("Secret words.")) as server,
            connect(server, call_id_message()) as peer,
        ):
            await peer.receive_all()

    asyncio.run(scenario())
    assert f"Call {CALL_ID} opened from 127.0.0.1:" in log.text
    closed = next(record.getMessage() for record in log.records if "closed" in record.getMessage())
    for number in ("packets", "late", "skipped", "dropped", "underruns", "ms discarded"):
        assert number in closed
    assert "Secret" not in log.text


def test_calls_and_packets_are_counted() -> None:
    async def scenario() -> None:
        async with run_server() as server:
            async with connect(server, call_id_message(1)) as one, connect(server, call_id_message(2)) as two:
                await one.receive_packets(3)
                await two.receive_packets(3)
                assert server.metric("active_calls") == 2
            await server.until(lambda: server.metric("active_calls") == 0)
            assert server.metric("packets_total") >= 6

    asyncio.run(scenario())


# Admission and shutdown


def test_calls_beyond_max_calls_are_refused_at_once_with_the_reason(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with run_server(max_calls=1) as server:
            async with (
                connect(server, call_id_message(1)) as first,
                connect(server, call_id_message(2)) as second,
            ):
                await first.receive_packets(1)
                assert await second.receive_all() == ([], True)
                assert server.metric("refusals_total", reason="calls") == 1
                await first.receive_packets(3)
            await server.until(lambda: len(server.audiosocket.registry) == 0)
            async with connect(server, call_id_message(3)) as third:
                await third.receive_packets(1)

    asyncio.run(scenario())
    assert "refused: 1 calls are up, which is max_calls" in log.text


def test_connections_without_a_call_id_take_no_place_of_a_call_and_end_after_a_time() -> None:
    async def scenario() -> None:
        async with (
            run_server(max_calls=1, first_message_s=1.0) as server,
            connect(server) as stranger,
            connect(server) as second_stranger,
            connect(server, call_id_message()) as caller,
        ):
            await caller.receive_packets(3)
            assert await stranger.receive_all() == ([], True)
            assert await second_stranger.receive_all() == ([], True)
            await caller.receive_packets(3)

    asyncio.run(scenario())


def test_the_oldest_connection_without_a_call_id_is_closed_for_a_caller() -> None:
    async def scenario() -> None:
        async with (
            run_server(max_unidentified=2, first_message_s=300.0) as server,
            connect(server) as stranger,
            connect(server, call_id_message()) as caller,
        ):
            await caller.receive_packets(3)
            assert await stranger.receive() is None

    asyncio.run(scenario())


def test_a_call_that_is_not_expected_takes_no_place() -> None:
    async def scenario() -> None:
        expected = ExpectedCalls(required=True)
        expected.announce(UNKNOWN_CALLER, call_id=CALL_ID, agent=None, expires_s=300.0)
        async with run_server(max_calls=1, expected=expected) as server:
            admitted = []
            admit = server.audiosocket.registry.admit

            def noted_admit(leg: CallLeg, *, peer: str) -> None:
                admitted.append(leg)
                admit(leg, peer=peer)

            server.audiosocket.registry.admit = noted_admit  # type: ignore[method-assign]
            async with connect(server, call_id_message(9)) as stranger:
                assert await stranger.receive_all() == ([], True)
            assert admitted == []
            async with connect(server, call_id_message()) as caller:
                await caller.receive_packets(3)
            assert len(admitted) == 1

    asyncio.run(scenario())


def test_two_callers_with_one_place_get_one_call_and_one_refusal() -> None:
    """Both connections see room for a call before either has sent its id."""

    async def scenario() -> None:
        async with (
            run_server(max_calls=1) as server,
            connect(server) as first,
            connect(server) as second,
        ):
            await first.send(call_id_message(1))
            await first.receive_packets(3)
            await second.send(call_id_message(2))
            assert await second.receive_all() == ([], True)
            assert server.metric("refusals_total", reason="calls") == 1
            await first.receive_packets(3)

    asyncio.run(scenario())


def test_a_shutdown_finishes_the_current_sentence_and_refuses_new_calls(
    log: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        sentence = "One two three four five six. "
        async with (
            run_server(SpeakingAgent(sentence * 20)) as server,
            connect(server, call_id_message()) as peer,
        ):
            await peer.receive_packets(30)
            finishing = asyncio.create_task(server.audiosocket.registry.finish_calls(15.0))
            await asyncio.sleep(0)
            async with connect(server, call_id_message(2)) as second:
                assert await second.receive_all() == ([], True)
            packets, got_hangup = await peer.receive_all()
            await finishing
            assert got_hangup
            assert len(packets) < 200  # fewer than the twenty sentences take
            spoken = sum(level_dbfs(packet) > -30 for packet in packets)
            assert spoken > 10
            assert server.metric("refusals_total", reason="shutting_down") == 1

    asyncio.run(scenario())
    assert "the server is shutting down" in log.text


def test_a_shutdown_ends_calls_at_its_time_limit() -> None:
    async def endless(call: Call) -> None:
        await call.speech.speak("Word " * 1000)

    async def scenario() -> None:
        async with run_server(FunctionAgent(endless)) as server, connect(server, call_id_message()) as peer:
            await peer.receive_packets(3)
            async with asyncio.timeout(60):  # the words would take 200 s
                await server.audiosocket.registry.finish_calls(0.1)
            _, got_hangup = await peer.receive_all()
            assert got_hangup

    asyncio.run(scenario())


# Faults of the server


def test_an_agent_that_raises_ends_its_own_call_only(log: pytest.LogCaptureFixture) -> None:
    async def faulty(call: Call) -> None:
        if call.call_id == str(CALL_ID):
            raise RuntimeError("a fault of the agent")
        await call.end.wait_closed()

    async def scenario() -> None:
        async with run_server(FunctionAgent(faulty)) as server, connect(server, call_id_message(1)) as good:
            await good.receive_packets(1)
            async with connect(server, call_id_message()) as bad:
                _, got_hangup = await bad.receive_all()
                assert got_hangup
            await good.receive_packets(3)

    asyncio.run(scenario())
    assert f"Call {CALL_ID} failed" in log.text
    assert "RuntimeError: a fault of the agent" in log.text


def test_a_fault_in_a_call_s_tick_ends_that_call_only(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    playouts: list[Playout] = []

    def recorded_playout(**arguments: Any) -> Playout:
        playouts.append(Playout(**arguments))
        return playouts[-1]

    def broken(now: float) -> list[bytes]:
        raise ValueError("no packets")

    monkeypatch.setattr(phone_call, "Playout", recorded_playout)

    async def scenario() -> None:
        async with (
            run_server() as server,
            connect(server, call_id_message(1)) as good,
            connect(server) as bad,
        ):
            await good.receive_packets(1)
            await bad.send(call_id_message())
            await bad.receive_packets(1)
            playouts[1].due = broken  # type: ignore[method-assign]
            _, got_hangup = await bad.receive_all()
            assert got_hangup
            await good.receive_packets(3)

    asyncio.run(scenario())
    assert f"Call {CALL_ID} failed" in log.text


def test_closing_the_server_hangs_up_every_call() -> None:
    async def scenario() -> None:
        async with (
            run_server(SpeakingAgent("Word " * 100)) as server,
            connect(server, call_id_message()) as peer,
        ):
            await peer.receive_packets(3)
            closing = asyncio.create_task(server.audiosocket.aclose())
            _, got_hangup = await peer.receive_all()
            assert got_hangup
            peer.writer.close()
            await closing
            assert len(server.audiosocket.registry) == 0

    asyncio.run(scenario())
