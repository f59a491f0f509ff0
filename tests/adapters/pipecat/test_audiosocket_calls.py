"""Ends, faults and concurrency of AudioSocket calls, with real Pipecat pipelines over loopback."""

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
import uuid
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)

from shared.calls.audiosocket_bot import SPEECH, Bot, Phone, open_call
from shared.calls.thread_phone import ThreadPhone
from shared.event_loop import in_loop, until
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
)
from vivavoce.adapters.audiosocket.server_connection import AudioSocketTimeouts
from vivavoce.adapters.pipecat import (
    AudioSocketParams,
    AudioSocketTransport,
    PipecatAudioSocketServer,
)
from vivavoce.adapters.pipecat.audiosocket import server as audiosocket_server

# The end of a call


@in_loop
async def test_an_end_frame_hangs_up_after_the_last_packet_of_speech() -> None:
    async with open_call() as (bot, phone, server):
        await bot.play(6)
        await bot.workers[0].queue_frame(EndFrame())
        await phone.until_ended()
        assert len(phone.speech) == 6
        assert phone.ended
        await until_idle(server)
        assert [name for name, _ in bot.events] == ["on_client_connected"]


@in_loop
async def test_a_cancel_frame_hangs_up_at_once() -> None:
    async with open_call() as (bot, phone, _):
        await bot.play(500)
        await phone.until(lambda: len(phone.speech) > 2)
        await bot.workers[0].queue_frame(CancelFrame())
        await phone.until_ended()
        assert len(phone.speech) < 50


@in_loop
async def test_a_caller_s_hangup_is_reported_to_the_bot_once_with_the_call_id() -> None:
    async with open_call() as (bot, phone, server):
        await phone.hang_up()
        await until_idle(server)
        assert [name for name, _ in bot.events] == ["on_client_connected", "on_client_disconnected"]
        assert {caller.call_id for _, caller in bot.events} == {phone.call_id}
        transport = bot.transports[0]
        assert transport.get_client_id(transport.caller) == str(phone.call_id)


async def until_idle(server: PipecatAudioSocketServer) -> None:
    async with asyncio.timeout(60):
        while server.calls or server.active_bots:
            await asyncio.sleep(0.01)


@in_loop
async def test_a_failing_bot_ends_only_its_own_call() -> None:
    bot = Bot()

    async def second_call_fails(transport: AudioSocketTransport) -> None:
        if len(bot.transports) == 1:
            raise RuntimeError("a fault of the bot")
        await bot(transport)

    logger.disable("vivavoce")
    try:
        async with PipecatAudioSocketServer(second_call_fails, port=0, media_processes=0) as server:
            first = await Phone.dial(server.port)
            await bot.until_connected()
            second = await Phone.dial(server.port)
            await second.until_ended()
            await bot.play(3)
            await first.until(lambda: len(first.speech) == 3)
            await first.hang_up()
            await second.hang_up()
    finally:
        logger.enable("vivavoce")


@in_loop
async def test_a_call_with_invalid_parameters_is_hung_up_and_the_next_call_is_accepted() -> None:
    factories = [lambda: AudioSocketParams(audio_out_sample_rate=11_025), AudioSocketParams]
    bot = Bot()
    logger.disable("vivavoce")
    try:
        async with PipecatAudioSocketServer(
            bot, port=0, media_processes=0, params=lambda: factories.pop(0)()
        ) as server:
            refused = await Phone.dial(server.port)
            await refused.until_ended()
            assert refused.got_hangup
            accepted = await Phone.dial(server.port)
            await bot.until_connected()
            await refused.hang_up()
            await accepted.hang_up()
    finally:
        logger.enable("vivavoce")


@in_loop
async def test_calls_beyond_the_limit_are_refused_at_once() -> None:
    async with open_call(max_calls=1) as (_, phone, server):
        second = await Phone.dial(server.port)
        await second.until_ended()
        assert second.received == []
        assert not phone.ended
        await second.hang_up()


@in_loop
async def test_closing_the_server_hangs_up_and_waits_for_the_bots() -> None:
    bot = Bot()
    server = PipecatAudioSocketServer(bot, port=0, media_processes=0)
    await server.start()
    phone = await Phone.dial(server.port)
    await bot.until_connected()
    await server.aclose()
    assert server.calls == 0
    assert not server.active_bots
    await phone.until_ended()
    assert [name for name, _ in bot.events][-1] == "on_client_disconnected"
    await phone.hang_up()


# Bad input


@pytest.mark.parametrize(
    "data",
    [
        b"\x42\x00\x00",
        b"\x10\x00\x01\x00",
        b"\x10\xff\xff",
        b"\x03\x00\x01Z",
        b"\x01\x00\x10" + bytes(16),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["unknown kind", "half a sample", "too long", "no DTMF digit", "second call id", "HTTP"],
)
def test_a_protocol_violation_ends_the_call(data: bytes) -> None:
    async def call() -> None:
        async with open_call() as (_, phone, server):
            phone.writer.write(data)
            await phone.until_ended()
            await until_idle(server)

    asyncio.run(call())


@pytest.mark.parametrize("data", [b"", b"\x01\x00", b"\x10\x01\x40" + bytes(320)])
def test_a_connection_without_a_call_id_starts_no_bot(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiosocket_server, "_TIMEOUTS", AudioSocketTimeouts(first_message_s=0.05))

    async def call() -> None:
        bot = Bot()
        async with PipecatAudioSocketServer(bot, port=0, media_processes=0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            async with asyncio.timeout(30):
                while await reader.read(100):
                    pass
            writer.close()
            await until_idle(server)
            assert bot.transports == []

    asyncio.run(call())


def test_an_incomplete_message_ends_the_call_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiosocket_server, "_TIMEOUTS", AudioSocketTimeouts(stalled_s=0.1))

    async def call() -> None:
        async with open_call() as (_, phone, _server):
            phone.writer.write(b"\x10\x01\x40\x00")
            await phone.until_ended()

    asyncio.run(call())


@in_loop
async def test_messages_faster_than_a_phone_sends_them_end_the_call() -> None:
    async with open_call() as (_, phone, _server):
        with contextlib.suppress(ConnectionError):
            for _ in range(60):
                phone.writer.write(b"\x10\x00\x02\x00\x00" * 100)
                await phone.writer.drain()
        await phone.until_ended()


@in_loop
async def test_g711_labelled_as_16_bit_audio_ends_the_call_and_logs_advice() -> None:
    warnings_logged: list[str] = []
    handler = logger.add(lambda message: warnings_logged.append(str(message)), level="WARNING")
    try:
        async with open_call() as (_, phone, _server):
            noise = np.random.default_rng(1).integers(0, 256, 160, dtype=np.uint8).tobytes()
            for _ in range(50):  # it is recognised by its bytes a second
                phone.send(AudioSocketAudio(8_000, noise))
                await asyncio.sleep(0.02)
            await phone.until_ended()
    finally:
        logger.remove(handler)
    assert any("c(slin)" in line for line in warnings_logged)


def test_a_peer_that_stops_reading_loses_whole_packets_before_its_call_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audiosocket_server, "_TIMEOUTS", AudioSocketTimeouts(stalled_s=0.2))

    async def call() -> None:
        bot = Bot()
        async with PipecatAudioSocketServer(bot, port=0, media_processes=0) as server:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
            connection = AudioSocketConnection(AudioSocketRole.CALLER)
            sock.send(connection.send(CallId(uuid.uuid4())))
            await bot.until_connected()
            handler = bot.transports[0]._audiosocket_handler
            handler._media._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
            await until_idle(server)
            assert handler.dropped >= 10
            sock.setblocking(True)
            sock.settimeout(30)
            with contextlib.suppress(ConnectionError):
                while data := sock.recv(1_000):
                    connection.receive_data(data)
                    assert all(isinstance(event, AudioSocketAudio) for event in connection.events())
            sock.close()

    asyncio.run(call())


def test_messages_beyond_the_inbox_of_a_stalled_pipeline_are_dropped() -> None:
    async def call() -> None:
        async with open_call() as (bot, phone, _):
            handler = bot.transports[0]._audiosocket_handler
            await bot.transports[0].input()._audiosocket_teardown()
            handler.is_receiving = True
            for _ in range(400):
                phone.send(AudioSocketAudio(8_000, SPEECH))
            async with asyncio.timeout(30):
                while len(handler.inbox) + handler.dropped_messages < 400:
                    await asyncio.sleep(0.01)
            assert len(handler.inbox) == 150
            await bot.workers[0].cancel()  # without an input task the pipeline does not learn of the hangup

    asyncio.run(call())


# Concurrent calls


@in_loop
async def test_a_pipeline_that_blocks_the_event_loop_is_not_heard() -> None:
    """Answering a call loads what its pipeline needs: with Silero and a turn model, 0.6 to 0.8 s."""
    bot = Bot()
    async with PipecatAudioSocketServer(bot, port=0, media_processes=1) as server:
        phone = ThreadPhone(socket.create_connection(("127.0.0.1", server.port)))
        phone.sock.sendall(b"\x01\x00\x10" + uuid.uuid4().bytes)
        await bot.until_connected()
        await bot.play(150)  # 3 s
        await until(lambda: phone.sounding() > 25)
        time.sleep(0.8)  # noqa: ASYNC251  # another call's pipeline is loaded
        await until(lambda: phone.sounding() >= 150)
        phone.close()
    sounds = [sounds for _, sounds in phone.arrivals]
    first = sounds.index(True)
    assert sounds[first : first + 150] == [True] * 150


@in_loop
async def test_twenty_concurrent_calls_receive_the_audio_of_their_own_bot() -> None:
    bot = Bot()
    async with PipecatAudioSocketServer(bot, port=0) as server:
        phones = [await Phone.dial(server.port) for _ in range(20)]
        await bot.until_connected(20)
        for number, transport in enumerate(bot.transports):
            sample = (transport.caller.call_id.int % 15_000 + 1).to_bytes(2, "little")
            await bot.workers[number].queue_frames(
                [TTSAudioRawFrame(sample * 160 * 20, 8_000, 1), TTSStoppedFrame()]
            )
        for phone in phones:
            await phone.until(lambda phone=phone: len(phone.speech) == 20)
            sample = (phone.call_id.int % 15_000 + 1).to_bytes(2, "little")
            assert {audio.payload for audio in phone.speech} == {sample * 160}
        for phone in phones:
            await phone.hang_up()


def test_fifty_calls_leak_no_task_descriptor_or_thread() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def calls() -> None:
        bot = Bot()
        async with PipecatAudioSocketServer(bot, port=0) as server:

            async def call() -> None:
                phone = await Phone.dial(server.port)
                await phone.until(lambda: len(phone.received) > 3)
                await phone.hang_up()

            await call()
            await until_idle(server)
            before = len(asyncio.all_tasks()), open_files(), threading.active_count()
            for _ in range(5):
                await asyncio.gather(*(call() for _ in range(10)))
                await until_idle(server)
            gc.collect()
            await until(lambda: len(asyncio.all_tasks()) <= before[0] and open_files() <= before[1])
            await until(lambda: threading.active_count() <= before[2])
            assert len(bot.events) == 102

    asyncio.run(calls())
