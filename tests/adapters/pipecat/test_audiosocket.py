"""AudioSocket as a Pipecat transport: real calls over loopback, into real pipelines."""

import asyncio
import contextlib
import gc
import os
import socket
import threading
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat warns of old classes of its own
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    ClientConnectedFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InputDTMFFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from shared.event_loop import in_loop, until
from shared.tones import pitch_of, tone
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
)
from vivavoce.adapters.audiosocket.server_connection import AudioSocketTimeouts
from vivavoce.adapters.pipecat import (
    AudioSocketCaller,
    AudioSocketParams,
    AudioSocketTransport,
    PipecatAudioSocketServer,
)
from vivavoce.adapters.pipecat.audiosocket import server as audiosocket_server
from vivavoce.adapters.pipecat.audiosocket.input import make_input_resampler

PACKET = 320  # bytes: 20 ms at 8 kHz
LOUD = b"\x00\x20" * 160


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    logger.disable("pipecat")
    yield
    logger.enable("pipecat")


class Phone:
    """Asterisk's side of a call; a message that a server must not send fails the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.call_id = uuid.uuid4()
        self.heard: list[AudioSocketAudio] = []
        self.ended = self.said_goodbye = False
        self.came = asyncio.Event()
        self.connection = AudioSocketConnection(AudioSocketRole.CALLER)
        self.writer = writer
        self._reader = reader
        self._task = asyncio.create_task(self._listen())

    @classmethod
    async def dial(cls, port: int) -> "Phone":
        phone = cls(*await asyncio.open_connection("127.0.0.1", port))
        phone.send(CallId(phone.call_id))
        return phone

    def send(self, event: CallId | AudioSocketAudio | Dtmf) -> None:
        self.writer.write(self.connection.send(event))

    async def _listen(self) -> None:
        while data := await self._reader.read(65_536):
            self.connection.receive_data(data)
            for event in self.connection.events():
                match event:
                    case AudioSocketAudio():
                        self.heard.append(event)
                    case Hangup():
                        self.ended = self.said_goodbye = True
                self.came.set()
        self.ended = True
        self.came.set()

    @property
    def loud(self) -> list[AudioSocketAudio]:
        return [audio for audio in self.heard if any(audio.payload)]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                assert not self._task.done() or true(), "the call ended"
                self.came.clear()
                await self.came.wait()

    async def until_ended(self) -> None:
        async with asyncio.timeout(60):
            await self._task

    async def hang_up(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), self._task, return_exceptions=True)


class Ear(FrameProcessor):
    """Keeps what comes down the pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.came = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        self.came.set()
        await self.push_frame(frame, direction)

    def of(self, kind: type[Frame]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                self.came.clear()
                await self.came.wait()


class Bot:
    """A pipeline without intelligence on every call: what a test queues is played."""

    def __init__(self, rate_in: int = 8_000, rate_out: int = 8_000) -> None:
        self.params = PipelineParams(audio_in_sample_rate=rate_in, audio_out_sample_rate=rate_out)
        self.transports: list[AudioSocketTransport] = []
        self.workers: list[PipelineWorker] = []
        self.ears: list[Ear] = []
        self.events: list[tuple[str, AudioSocketCaller]] = []
        self.came = asyncio.Event()

    async def __call__(self, transport: AudioSocketTransport) -> None:
        ear = Ear()
        worker = PipelineWorker(
            Pipeline([transport.input(), ear, transport.output()]),
            params=self.params,
            enable_rtvi=False,
            cancel_on_idle_timeout=False,
        )
        for name in ("on_client_connected", "on_client_disconnected"):
            transport.add_event_handler(name, self._note(name, worker))
        self.transports.append(transport)
        self.workers.append(worker)
        self.ears.append(ear)
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        await runner.run()

    def _note(
        self, name: str, worker: PipelineWorker
    ) -> Callable[[AudioSocketTransport, AudioSocketCaller], Awaitable[None]]:
        async def handler(transport: AudioSocketTransport, caller: AudioSocketCaller) -> None:
            self.events.append((name, caller))
            self.came.set()
            if name == "on_client_disconnected":
                await worker.cancel()

        return handler

    async def until_connected(self, calls: int = 1) -> None:
        async with asyncio.timeout(60):
            while sum(name == "on_client_connected" for name, _ in self.events) < calls:
                self.came.clear()
                await self.came.wait()

    async def play(self, packets: int, *, call: int = 0, interruptible: bool = True) -> None:
        frame = TTSAudioRawFrame(LOUD * packets, 8_000, 1)
        frame.interruptible = interruptible
        await self.workers[call].queue_frames([frame, TTSStoppedFrame()])


@contextlib.asynccontextmanager
async def answered(
    bot: Bot | None = None, **arguments: Any
) -> AsyncIterator[tuple[Bot, Phone, PipecatAudioSocketServer]]:
    """A server, a call to it, and its bot."""
    bot = bot or Bot()
    async with PipecatAudioSocketServer(bot, port=0, **arguments) as server:
        phone = await Phone.dial(server.port)
        try:
            await bot.until_connected()
            yield bot, phone, server
        finally:
            await phone.hang_up()


# What the caller hears


@in_loop
async def test_silence_is_sent_from_the_first_moment_even_before_the_bot_is_there() -> None:
    """Asterisk gives up after two seconds of nothing, and a bot takes its time to start."""

    async def slow(transport: AudioSocketTransport) -> None:
        await asyncio.sleep(3600)

    async with PipecatAudioSocketServer(slow, port=0) as server:
        phone = await Phone.dial(server.port)
        await phone.until(lambda: len(phone.heard) >= 5)
        assert {audio for audio in phone.heard} == {AudioSocketAudio(8_000, bytes(PACKET))}
        await phone.hang_up()
        server._server.calls[0].cancel_task()


@in_loop
async def test_speech_arrives_whole_in_packets_of_20_ms() -> None:
    async with answered() as (bot, phone, _):
        await bot.play(7)
        await phone.until(lambda: len(phone.loud) == 7)
        assert {len(audio.payload) for audio in phone.heard} == {PACKET}
        assert b"".join(audio.payload for audio in phone.loud) == LOUD * 7
        await phone.until(lambda: len(phone.heard) > 20)


@in_loop
async def test_speech_is_paced_whatever_the_pipeline_queues() -> None:
    async with answered() as (bot, phone, _):
        await bot.play(100)
        await phone.until(lambda: len(phone.loud) >= 5)
        assert len(phone.loud) < 50
        assert bot.transports[0]._audiosocket_handler.lead_s() <= 0.25


@in_loop
async def test_the_rate_can_be_24_khz() -> None:
    bot = Bot(rate_out=24_000)
    params = {"params": lambda: AudioSocketParams(audio_out_sample_rate=24_000)}
    async with answered(bot, **params) as (bot, phone, _):
        await bot.workers[0].queue_frame(OutputAudioRawFrame(LOUD * 9, 24_000, 1))
        await phone.until(lambda: len(phone.loud) == 3)
        assert {(audio.sample_rate, len(audio.payload)) for audio in phone.heard} == {(24_000, 960)}


def test_a_rate_whose_packets_asterisk_would_not_get_in_one_piece_is_refused() -> None:
    with pytest.raises(ValueError, match="got 48000 Hz; allowed: 8000, 12000, 16000, 24000, 32000"):
        AudioSocketParams(audio_out_sample_rate=48_000)


def test_the_defaults_are_those_of_a_telephone() -> None:
    params = AudioSocketParams()
    assert params.audio_in_enabled and params.audio_out_enabled
    assert (params.audio_out_10ms_chunks, params.audio_out_end_silence_secs) == (2, 0)
    assert params.audio_out_sample_rate == 8_000


@in_loop
async def test_a_pipeline_at_another_rate_is_warned_of() -> None:
    said: list[str] = []
    handler = logger.add(lambda message: said.append(str(message)), level="WARNING")
    try:
        async with answered(Bot(rate_out=24_000)):
            pass
    finally:
        logger.remove(handler)
    assert any("PipelineParams(audio_out_sample_rate=8000)" in line for line in said)


# Interruptions


@in_loop
async def test_an_interruption_is_heard_at_once() -> None:
    async with answered() as (bot, phone, _):
        await bot.play(200)
        await phone.until(lambda: len(phone.loud) >= 10)
        await bot.workers[0].queue_frame(InterruptionFrame())
        await bot.ears[0].until(lambda: bool(bot.ears[0].of(InterruptionFrame)))
        before, total = len(phone.loud), len(phone.heard)
        await phone.until(lambda: len(phone.heard) > total + 10)
        assert len(phone.loud) - before <= 4  # two that were on their way, and two to make good a stall
        before = len(phone.loud)
        await bot.play(3)
        await phone.until(lambda: len(phone.loud) == before + 3)


@in_loop
async def test_an_interruption_before_the_bot_spoke_changes_nothing() -> None:
    async with answered() as (bot, phone, _):
        await bot.workers[0].queue_frame(InterruptionFrame())
        await bot.ears[0].until(lambda: bool(bot.ears[0].of(InterruptionFrame)))
        await bot.play(4)
        await phone.until(lambda: len(phone.loud) == 4)


@in_loop
async def test_what_must_not_be_interrupted_is_heard_whole() -> None:
    async with answered() as (bot, phone, _):
        await bot.play(12, interruptible=False)
        await phone.until(lambda: len(phone.loud) >= 3)
        await bot.workers[0].queue_frame(InterruptionFrame())
        await phone.until(lambda: len(phone.loud) == 12)
        assert b"".join(audio.payload for audio in phone.loud) == LOUD * 12


# What the bot hears


@in_loop
async def test_the_bot_hears_the_caller_sample_for_sample() -> None:
    async with answered() as (bot, phone, _):
        said = [np.arange(start, start + 160, dtype="<i2").tobytes() for start in range(1, 801, 160)]
        for pcm in said:
            phone.send(AudioSocketAudio(8_000, pcm))
        ear = bot.ears[0]
        await ear.until(lambda: len(ear.of(InputAudioRawFrame)) == 5)
        assert [frame.audio for frame in ear.of(InputAudioRawFrame)] == said
        assert {(f.sample_rate, f.num_channels) for f in ear.of(InputAudioRawFrame)} == {(8_000, 1)}
        assert ear.of(ClientConnectedFrame)


@in_loop
async def test_the_bot_hears_the_caller_at_the_rate_of_its_pipeline() -> None:
    async with answered(Bot(rate_in=16_000)) as (bot, phone, _):
        for start in range(0, 4_000, 160):
            phone.send(AudioSocketAudio(8_000, tone(1_000, 8_000, start, 160)))
        ear = bot.ears[0]
        await ear.until(lambda: len(ear.of(InputAudioRawFrame)) == 25)
        heard = b"".join(frame.audio for frame in ear.of(InputAudioRawFrame))
        assert len(heard) == 2 * 8_000
        assert pitch_of(heard, 16_000) == pytest.approx(1_000, abs=3)


@in_loop
async def test_keys_come_as_frames_and_unknown_ones_are_dropped() -> None:
    async with answered() as (bot, phone, _):
        for digit in "1A!*D#0":
            phone.send(Dtmf(digit))
        ear = bot.ears[0]
        await ear.until(lambda: len(ear.of(InputDTMFFrame)) == 4)
        assert [frame.button.value for frame in ear.of(InputDTMFFrame)] == ["1", "*", "#", "0"]


@in_loop
async def test_keys_pressed_before_the_bot_was_there_are_not_lost_and_old_audio_is_not_played() -> None:
    started = asyncio.Event()
    bot = Bot()

    async def late(transport: AudioSocketTransport) -> None:
        await started.wait()
        await bot(transport)

    async with PipecatAudioSocketServer(late, port=0) as server:
        phone = await Phone.dial(server.port)
        phone.send(Dtmf("7"))
        phone.send(AudioSocketAudio(8_000, LOUD))
        await phone.until(lambda: len(phone.heard) > 3)
        started.set()
        await bot.until_connected()
        await bot.ears[0].until(lambda: bool(bot.ears[0].of(InputDTMFFrame)))
        assert bot.ears[0].of(InputAudioRawFrame) == []
        await phone.hang_up()


# Ends


@in_loop
async def test_an_end_frame_hangs_up_behind_the_last_word() -> None:
    async with answered() as (bot, phone, server):
        await bot.play(6)
        await bot.workers[0].queue_frame(EndFrame())
        await phone.until_ended()
        assert len(phone.loud) == 6
        assert phone.ended
        assert [name for name, _ in bot.events] == ["on_client_connected"]
        assert server.calls == 0


@in_loop
async def test_a_cancelled_bot_hangs_up_at_once() -> None:
    async with answered() as (bot, phone, _):
        await bot.play(500)
        await phone.until(lambda: len(phone.loud) > 2)
        await bot.workers[0].queue_frame(CancelFrame())
        await phone.until_ended()
        assert len(phone.loud) < 50


@in_loop
async def test_hanging_up_tells_the_bot_once_who_it_was() -> None:
    async with answered() as (bot, phone, server):
        await phone.hang_up()
        await gone(server)
        assert [name for name, _ in bot.events] == ["on_client_connected", "on_client_disconnected"]
        assert {caller.call_id for _, caller in bot.events} == {phone.call_id}
        transport = bot.transports[0]
        assert transport.get_client_id(transport.caller) == str(phone.call_id)


async def gone(server: PipecatAudioSocketServer) -> None:
    async with asyncio.timeout(60):
        while server.calls or server.active_bots:
            await asyncio.sleep(0.01)


@in_loop
async def test_a_bot_that_fails_hangs_up_and_its_neighbour_talks_on() -> None:
    bot = Bot()

    async def brittle(transport: AudioSocketTransport) -> None:
        if len(bot.transports) == 1:
            raise RuntimeError("no brain")
        await bot(transport)

    logger.disable("vivavoce")
    try:
        async with PipecatAudioSocketServer(brittle, port=0) as server:
            well = await Phone.dial(server.port)
            await bot.until_connected()
            broken = await Phone.dial(server.port)
            await broken.until_ended()
            await bot.play(3)
            await well.until(lambda: len(well.loud) == 3)
            await well.hang_up()
            await broken.hang_up()
    finally:
        logger.enable("vivavoce")


@in_loop
async def test_a_call_whose_parameters_cannot_be_made_is_ended_with_0x00_and_the_next_one_is_not() -> None:
    makers = [lambda: AudioSocketParams(audio_out_sample_rate=11_025), AudioSocketParams]
    bot = Bot()
    logger.disable("vivavoce")
    try:
        async with PipecatAudioSocketServer(bot, port=0, params=lambda: makers.pop(0)()) as server:
            broken = await Phone.dial(server.port)
            await broken.until_ended()
            assert broken.said_goodbye
            well = await Phone.dial(server.port)
            await bot.until_connected()
            await broken.hang_up()
            await well.hang_up()
    finally:
        logger.enable("vivavoce")


@in_loop
async def test_calls_beyond_the_limit_are_refused_at_once() -> None:
    async with answered(max_calls=1) as (_, phone, server):
        second = await Phone.dial(server.port)
        await second.until_ended()
        assert second.heard == []
        assert not phone.ended
        await second.hang_up()


@in_loop
async def test_closing_the_server_hangs_up_and_waits_for_the_bots() -> None:
    bot = Bot()
    server = PipecatAudioSocketServer(bot, port=0)
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
    "said",
    [
        b"\x42\x00\x00",
        b"\x10\x00\x01\x00",
        b"\x10\xff\xff",
        b"\x03\x00\x01Z",
        b"\x01\x00\x10" + bytes(16),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["unknown kind", "half a sample", "too long", "no key", "second id", "HTTP"],
)
def test_a_peer_that_breaks_the_protocol_is_hung_up_on(said: bytes) -> None:
    async def call() -> None:
        async with answered() as (_, phone, server):
            phone.writer.write(said)
            await phone.until_ended()
            await gone(server)

    asyncio.run(call())


@pytest.mark.parametrize("said", [b"", b"\x01\x00", b"\x10\x01\x40" + bytes(320)])
def test_a_peer_without_an_id_never_becomes_a_call(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiosocket_server, "_TIMEOUTS", AudioSocketTimeouts(first_message_s=0.05))

    async def call() -> None:
        bot = Bot()
        async with PipecatAudioSocketServer(bot, port=0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(said)
            async with asyncio.timeout(30):
                while await reader.read(100):
                    pass
            writer.close()
            await gone(server)
            assert bot.transports == []

    asyncio.run(call())


def test_a_message_that_never_ends_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiosocket_server, "_TIMEOUTS", AudioSocketTimeouts(stalled_s=0.1))

    async def call() -> None:
        async with answered() as (_, phone, _server):
            phone.writer.write(b"\x10\x01\x40\x00")
            await phone.until_ended()

    asyncio.run(call())


@in_loop
async def test_a_flood_is_hung_up_on() -> None:
    async with answered() as (_, phone, _server):
        with contextlib.suppress(ConnectionError):
            for _ in range(60):
                phone.writer.write(b"\x10\x00\x02\x00\x00" * 100)
                await phone.writer.drain()
        await phone.until_ended()


@in_loop
async def test_raw_g711_is_told_apart_and_explained() -> None:
    said: list[str] = []
    handler = logger.add(lambda message: said.append(str(message)), level="WARNING")
    try:
        async with answered() as (_, phone, _server):
            noise = np.random.default_rng(1).integers(0, 256, 160, dtype=np.uint8).tobytes()
            for _ in range(10):
                phone.send(AudioSocketAudio(8_000, noise))
            await phone.until_ended()
    finally:
        logger.remove(handler)
    assert any("c(slin)" in line for line in said)


def test_a_peer_that_stops_reading_loses_whole_packets_and_then_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audiosocket_server, "_TIMEOUTS", AudioSocketTimeouts(stalled_s=0.2))

    async def call() -> None:
        bot = Bot()
        async with PipecatAudioSocketServer(bot, port=0) as server:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
            connection = AudioSocketConnection(AudioSocketRole.CALLER)
            sock.send(connection.send(CallId(uuid.uuid4())))
            await bot.until_connected()
            leg = bot.transports[0]._audiosocket_handler
            leg.call._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
            await gone(server)
            assert leg.call.dropped >= 10
            sock.setblocking(True)
            sock.settimeout(30)
            with contextlib.suppress(ConnectionError):
                while data := sock.recv(1_000):
                    connection.receive_data(data)
                    assert all(isinstance(event, AudioSocketAudio) for event in connection.events())
            sock.close()

    asyncio.run(call())


def test_what_a_pipeline_cannot_keep_up_with_is_dropped_not_hoarded() -> None:
    async def call() -> None:
        async with answered() as (bot, phone, _):
            line = bot.transports[0]._audiosocket_handler
            await bot.transports[0].input()._audiosocket_teardown()
            line.is_receiving = True
            for _ in range(400):
                phone.send(AudioSocketAudio(8_000, LOUD))
            async with asyncio.timeout(30):
                while len(line.inbox) + line.dropped_messages < 400:
                    await asyncio.sleep(0.01)
            assert len(line.inbox) == 150
            await bot.workers[0].cancel()  # nobody listens any more who would tell it of the end

    asyncio.run(call())


# Many calls


@in_loop
async def test_twenty_calls_at_once_hear_their_own_bot() -> None:
    bot = Bot()
    async with PipecatAudioSocketServer(bot, port=0) as server:
        phones = [await Phone.dial(server.port) for _ in range(20)]
        await bot.until_connected(20)
        for number, transport in enumerate(bot.transports):
            mark = (transport.caller.call_id.int % 15_000 + 1).to_bytes(2, "little")
            await bot.workers[number].queue_frames(
                [TTSAudioRawFrame(mark * 160 * 20, 8_000, 1), TTSStoppedFrame()]
            )
        for phone in phones:
            await phone.until(lambda phone=phone: len(phone.loud) == 20)
            mark = (phone.call_id.int % 15_000 + 1).to_bytes(2, "little")
            assert {audio.payload for audio in phone.loud} == {mark * 160}
        for phone in phones:
            await phone.hang_up()


def test_fifty_calls_leave_no_task_descriptor_or_thread_behind() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def calls() -> None:
        bot = Bot()
        async with PipecatAudioSocketServer(bot, port=0) as server:

            async def call() -> None:
                phone = await Phone.dial(server.port)
                await phone.until(lambda: len(phone.heard) > 3)
                await phone.hang_up()

            await call()
            await gone(server)
            before = len(asyncio.all_tasks()), open_files(), threading.active_count()
            for _ in range(5):
                await asyncio.gather(*(call() for _ in range(10)))
                await gone(server)
            gc.collect()
            await until(lambda: len(asyncio.all_tasks()) <= before[0] and open_files() <= before[1])
            await until(lambda: threading.active_count() <= before[2])
            assert len(bot.events) == 102

    asyncio.run(calls())


# The caller's audio at another rate


def test_a_rate_that_is_no_multiple_is_resampled_too() -> None:
    ear = make_input_resampler(12_000, 16_000)
    heard = b"".join(ear.push(tone(1_000, 12_000, start, 240)) for start in range(0, 12_000, 240))
    assert len(heard) > 30_000 * 0.9
    assert pitch_of(heard, 16_000) == pytest.approx(1_000, abs=3)
