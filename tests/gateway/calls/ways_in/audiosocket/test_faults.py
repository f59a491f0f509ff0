"""The AudioSocket call server over loopback sockets: invalid and slow peers, and concurrent calls."""

import asyncio
import logging
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import numpy as np
import pytest

from shared.calls.audiosocket_server import (
    CALL_ID,
    SILENCE,
    FunctionAgent,
    RunningServer,
    SpeakingAgent,
    call_id_message,
    connect,
    message,
    run_server,
)
from shared.process_footprint import ProcessFootprint
from vivavoce.adapters.audio.formats.g711 import ulaw_encode
from vivavoce.adapters.audiosocket import wire
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.call_options import CallSpeechOptions


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "vivavoce")
    return caplog


# Invalid peers


GARBAGE = {
    "an unknown kind": message(0x7F, b"bytes"),
    "a second call id": call_id_message(9),
    "a call id of the wrong length": message(0x01, b"short"),
    "a zero-length audio message": message(0x10),
    "65,535 bytes of audio": message(0x10, bytes(65_535)),
    "an odd length": message(0x10, bytes(319)),
    "an unknown DTMF digit": message(0x03, b"\xff"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n",
    "random bytes": random.Random(1).randbytes(4096),
    "an error message": message(0xFF, b"\x01"),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_invalid_message_ends_only_its_call_with_one_warning(
    garbage: bytes, log: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with (
            run_server() as server,
            connect(server, call_id_message(1)) as good,
            connect(server, call_id_message()) as bad,
        ):
            await bad.receive_packets(2)
            await bad.send(garbage)
            _, got_hangup = await bad.receive_all()
            assert got_hangup
            await server.until(lambda: len(server.audiosocket.registry) == 1)
            await good.receive_packets(3)

    asyncio.run(scenario())
    warnings = [record for record in log.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].getMessage().startswith(f"Call {CALL_ID}: ")


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_invalid_first_message_ends_the_connection(garbage: bytes) -> None:
    async def scenario() -> None:
        async with run_server(first_message_s=0.2) as server, connect(server, garbage) as bad:
            packets, got_hangup = await bad.receive_all()
            assert got_hangup
            if garbage != GARBAGE["a second call id"]:
                assert packets == []
            await server.until(lambda: len(server.audiosocket.registry) == 0)

    # A call id alone is valid, and only the agent ends such a call.
    if garbage != GARBAGE["a second call id"]:
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n", "HTTP"),
        (b"POST /v1/audio/speech HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
        (bytes.fromhex("160301007b0100007703034a5b6c7d"), "TLS"),
    ],
)
def test_a_client_of_another_protocol_is_named_in_the_log(
    first: bytes, protocol: str, log: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with run_server() as server, connect(server, first) as client:
            assert await client.receive_all() == ([], True)

    asyncio.run(scenario())
    assert f"this is {protocol}, but this port speaks Asterisk's AudioSocket" in log.text
    assert " bytes" not in log.text


def test_a_connection_without_a_call_id_is_ended_at_the_timeout(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with run_server(first_message_s=0.05) as server, connect(server) as peer:
            assert await peer.receive_all() == ([], True)
            assert server.metric("active_calls") == 0

    asyncio.run(scenario())
    assert "no call id within 0.05 s" in log.text


def test_an_incomplete_message_ends_its_call_at_the_timeout(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with run_server(stalled_s=0.1) as server, connect(server, call_id_message()) as peer:
            await peer.send(message(0x10, SILENCE)[:2])
            _, got_hangup = await peer.receive_all()
            assert got_hangup

    asyncio.run(scenario())
    assert f"Call {CALL_ID}: a message stayed incomplete for 0.1 s" in log.text


@pytest.mark.parametrize("ptime_ms", [10, 20, 30, 40, 60])
def test_ulaw_labelled_as_16_bit_audio_ends_the_call_with_advice(
    ptime_ms: int, log: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with run_server() as server, connect(server, call_id_message()) as peer:

            async def talk() -> None:
                samples = np.random.default_rng(1).normal(0, 3000, 8 * ptime_ms).astype("<i2")
                while True:
                    await peer.send(message(0x10, ulaw_encode(samples.tobytes())))
                    await asyncio.sleep(ptime_ms / 1000)

            talking = asyncio.create_task(talk())
            _, got_hangup = await peer.receive_all()
            talking.cancel()
            await asyncio.wait({talking})
            assert got_hangup

    asyncio.run(scenario())
    assert "c(slin)" in log.text


def test_messages_faster_than_a_phone_sends_them_end_their_call_only(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            run_server() as server,
            connect(server, call_id_message(1)) as good,
            connect(server, call_id_message()) as bad,
        ):
            await good.receive_packets(1)
            await bad.send(message(0x03, b"1") * 20_000)
            _, got_hangup = await bad.receive_all()
            assert got_hangup
            await good.receive_packets(3)

    asyncio.run(scenario())
    assert "got more than 400 control messages at once" in log.text


def test_a_peer_that_does_not_close_after_the_hangup_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LINGER_S", 0.05)

    async def scenario() -> None:
        async with run_server(SpeakingAgent("One.")) as server, connect(server, call_id_message()) as peer:
            assert (await peer.receive_all())[1]
            while not peer.writer.transport.is_closing():
                await peer.send(message(0x10, SILENCE))
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_data_received_after_the_hangup_is_ignored() -> None:
    async def scenario() -> None:
        async with run_server(SpeakingAgent("Bye.")) as server, connect(server, call_id_message()) as peer:
            while (received := await peer.receive()) is not None and received[0] != 0x00:
                await peer.send(message(0x10, SILENCE))
            for _ in range(20):
                await peer.send(message(0x10, SILENCE))
            assert await peer.reader.read() == b""  # the end of the connection, not a reset

    asyncio.run(scenario())


def test_a_peer_that_reads_late_loses_whole_messages_only(
    log: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with run_server() as server, connect(server, call_id_message(), receive_buffer=2304) as peer:
            await peer.receive_packets(1)
            peer.writer.transport.pause_reading()
            await server.until(lambda: dropped_by(server) > 5)
            peer.writer.transport.resume_reading()
            for _ in range(60):
                assert await peer.receive() == (0x10, SILENCE)
            assert len(server.audiosocket.registry) == 1

    asyncio.run(scenario())
    assert " 0 dropped" not in log.text


def test_a_peer_that_stops_reading_is_disconnected_at_the_timeout(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            run_server(stalled_s=0.2) as server,
            connect(server, call_id_message(1)) as good,
            connect(server, call_id_message(), receive_buffer=2304) as bad,
        ):
            bad.writer.transport.pause_reading()
            await server.until(lambda: len(server.audiosocket.registry) == 2)
            await server.until(lambda: len(server.audiosocket.registry) == 1)
            await good.receive_packets(3)

    asyncio.run(scenario())
    assert f"Call {CALL_ID}: the peer has taken nothing for 0.2 s" in log.text
    assert "the peer stopped reading" in log.text


# Asterisk's side of a call, in real time; a program of its own, so that it can be stopped.
TALKING_PHONE = """
import select, socket, sys, time
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(bytes.fromhex(sys.argv[2]))
due = time.monotonic()
while True:
    due += 0.02
    while select.select([sock], [], [], max(0, due - time.monotonic()))[0]:
        sock.recv(65_536) or sys.exit()
    sys.argv[3] == "talks" and sock.sendall(bytes.fromhex("100140") + bytes(320))
"""


@asynccontextmanager
async def phone_process(server: RunningServer, manner: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TALKING_PHONE, str(server.port), call_id_message().hex(), manner
    )
    try:
        await server.until(lambda: len(server.audiosocket.registry) == 1)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.slow
def test_a_frozen_peer_is_disconnected_when_it_has_sent_nothing_for_silent_s(
    log: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with run_server(silent_s=2.0) as server, phone_process(server, "talks") as phone:
            await asyncio.sleep(3.0)
            assert len(server.audiosocket.registry) == 1
            phone.send_signal(signal.SIGSTOP)
            await server.until(lambda: len(server.audiosocket.registry) == 0)

    asyncio.run(scenario())
    assert f"Call {CALL_ID}: the caller has sent nothing for 2 s" in log.text


@pytest.mark.slow
def test_a_phone_that_sends_nothing_is_served_without_a_limit() -> None:
    async def scenario() -> None:
        async with run_server(stalled_s=2.0) as server, phone_process(server, "listens"):
            await asyncio.sleep(5.0)
            assert len(server.audiosocket.registry) == 1

    asyncio.run(scenario())


def dropped_by(server: RunningServer) -> int:
    return sum(active_call.call.media.report.dropped for active_call in server.audiosocket.registry)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_fifty_calls_leak_no_task_file_thread_or_memory() -> None:
    async def one_call(server: RunningServer, number: int) -> None:
        async with connect(server, call_id_message(number)) as peer:
            await peer.receive_packets(2)
            if number % 2:
                await peer.send(message(0x00))
                await peer.receive_all()
        await server.until(lambda: not server.media.calls)

    async def scenario() -> None:
        async with run_server(SpeakingAgent("One two three.")) as server:
            for number in range(10):
                await one_call(server, number)
            before = ProcessFootprint.now()
            for number in range(50):
                await one_call(server, number)
            await server.until(lambda: ProcessFootprint.now().is_at_most(before))
            assert ProcessFootprint.now().resident_mb - before.resident_mb < 5

    asyncio.run(scenario())


# Concurrent calls


TONES_HZ = tuple(range(300, 3300, 150))


class ToneAgent:
    """Speaks with a voice of its own for each call id below 20."""

    async def run(self, call: Call) -> None:
        tone = TONES_HZ[UUID(call.call_id).int]
        await call.speech.speak("la " * 10 + "la.", speech=CallSpeechOptions(voice=f"tone-{tone}"))


async def send_garbage(server: RunningServer, seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(5):
        with suppress(ConnectionError, TimeoutError):
            async with connect(
                server, call_id_message(1000 + seed) if generator.random() < 0.7 else b""
            ) as peer:
                await peer.send(generator.choice(list(GARBAGE.values())))
                await asyncio.sleep(generator.random() * 0.2)


@pytest.mark.slow
def test_twenty_calls_receive_only_their_own_voice_while_other_peers_send_garbage() -> None:
    async def receive_audio(server: RunningServer, number: int) -> bytes:
        async with connect(server, call_id_message(number)) as peer:
            packets, got_hangup = await peer.receive_all()
            assert got_hangup
            return b"".join(packets)

    async def scenario() -> list[bytes]:
        agent = FunctionAgent(
            lambda call: ToneAgent().run(call) if UUID(call.call_id).int < 20 else call.end.wait_closed()
        )
        async with run_server(agent, pitches_hz=TONES_HZ) as server:
            async with asyncio.TaskGroup() as tasks:
                receiving = [tasks.create_task(receive_audio(server, number)) for number in range(20)]
                for seed in range(5):
                    tasks.create_task(send_garbage(server, seed))
            return [task.result() for task in receiving]

    for number, pcm in enumerate(asyncio.run(scenario())):
        levels = _levels_of_tones(pcm)
        assert int(np.argmax(levels)) == number
        others = np.delete(levels, number)
        assert others.max() < levels[number] * 1e-3


def _levels_of_tones(pcm: bytes) -> np.ndarray:
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    loud = np.flatnonzero(np.abs(samples) > 1000)
    middle = (loud[0] + loud[-1]) // 2
    speech = samples[middle - 4000 : middle + 4000]  # 1 s: a whole number of periods of every tone
    spectrum = np.abs(np.fft.rfft(speech * np.hanning(len(speech))))
    return np.array([spectrum[tone] for tone in TONES_HZ])
