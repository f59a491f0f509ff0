"""AudioSocket calls into Pipecat pipelines for tests: a phone, a bot, and a server that connects them."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pipecat.frames.frames import (
    Frame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
)
from vivavoce.adapters.pipecat import (
    AudioSocketCaller,
    AudioSocketTransport,
    PipecatAudioSocketServer,
)

PACKET_BYTES = 320  # 20 ms at 8 kHz
SPEECH = b"\x00\x20" * 160  # one packet of a constant, non-zero level


class Phone:
    """Asterisk's side of a call. Records the audio it receives; an invalid message fails the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.call_id = uuid.uuid4()
        self.received: list[AudioSocketAudio] = []
        self.ended = False  # by a hangup message or by closing
        self.got_hangup = False  # 0x00
        self.changed = asyncio.Event()
        self.connection = AudioSocketConnection(AudioSocketRole.CALLER)
        self.writer = writer
        self._reader = reader
        self._task = asyncio.create_task(self._receive())

    @classmethod
    async def dial(cls, port: int) -> "Phone":
        phone = cls(*await asyncio.open_connection("127.0.0.1", port))
        phone.send(CallId(phone.call_id))
        return phone

    def send(self, event: CallId | AudioSocketAudio | Dtmf) -> None:
        self.writer.write(self.connection.send(event))

    async def _receive(self) -> None:
        while data := await self._reader.read(65_536):
            self.connection.receive_data(data)
            for event in self.connection.events():
                match event:
                    case AudioSocketAudio():
                        self.received.append(event)
                    case Hangup():
                        self.ended = self.got_hangup = True
                self.changed.set()
        self.ended = True
        self.changed.set()

    @property
    def speech(self) -> list[AudioSocketAudio]:
        return [audio for audio in self.received if any(audio.payload)]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                assert not self._task.done() or condition(), "the call ended"
                self.changed.clear()
                await self.changed.wait()

    async def until_ended(self) -> None:
        async with asyncio.timeout(60):
            await self._task

    async def hang_up(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), self._task, return_exceptions=True)


class FrameRecorder(FrameProcessor):
    """Records every frame that passes and pushes it on."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.changed = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        self.changed.set()
        await self.push_frame(frame, direction)

    def of(self, kind: type[Frame]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Bot:
    """Runs a pipeline for every call: transport input, recorder, transport output. Tests queue its frames."""

    def __init__(self, rate_in: int = 8_000, rate_out: int = 8_000) -> None:
        self.params = PipelineParams(audio_in_sample_rate=rate_in, audio_out_sample_rate=rate_out)
        self.transports: list[AudioSocketTransport] = []
        self.workers: list[PipelineWorker] = []
        self.recorders: list[FrameRecorder] = []
        self.events: list[tuple[str, AudioSocketCaller]] = []
        self.changed = asyncio.Event()

    async def __call__(self, transport: AudioSocketTransport) -> None:
        recorder = FrameRecorder()
        worker = PipelineWorker(
            Pipeline([transport.input(), recorder, transport.output()]),
            params=self.params,
            enable_rtvi=False,
            cancel_on_idle_timeout=False,
        )
        for name in ("on_client_connected", "on_client_disconnected"):
            transport.add_event_handler(name, self._note(name, worker))
        self.transports.append(transport)
        self.workers.append(worker)
        self.recorders.append(recorder)
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        await runner.run()

    def _note(
        self, name: str, worker: PipelineWorker
    ) -> Callable[[AudioSocketTransport, AudioSocketCaller], Awaitable[None]]:
        async def handler(transport: AudioSocketTransport, caller: AudioSocketCaller) -> None:
            self.events.append((name, caller))
            self.changed.set()
            if name == "on_client_disconnected":
                await worker.cancel()

        return handler

    async def until_connected(self, calls: int = 1) -> None:
        async with asyncio.timeout(60):
            while sum(name == "on_client_connected" for name, _ in self.events) < calls:
                self.changed.clear()
                await self.changed.wait()

    async def play(self, packets: int, *, call: int = 0, interruptible: bool = True) -> None:
        frame = TTSAudioRawFrame(SPEECH * packets, 8_000, 1)
        frame.interruptible = interruptible
        await self.workers[call].queue_frames([frame, TTSStoppedFrame()])


@contextlib.asynccontextmanager
async def open_call(
    bot: Bot | None = None, **arguments: Any
) -> AsyncIterator[tuple[Bot, Phone, PipecatAudioSocketServer]]:
    """Start a server and one call, and wait until its bot is connected; hang up at the end.

    A thread plays the speech, which starts at once.
    """
    bot = bot or Bot()
    async with PipecatAudioSocketServer(bot, port=0, media_processes=0, **arguments) as server:
        phone = await Phone.dial(server.port)
        try:
            await bot.until_connected()
            yield bot, phone, server
        finally:
            await phone.hang_up()
