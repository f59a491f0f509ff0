"""PAI's WebSocket, ``/api-ws/v1/audio/speech``: DashScope's tasks, and audio in JSON.

    frames -> frames.PaiFrameCodec -> adapters.dashscope.connection -> one task at a time -> apis.speech

The key is checked at the handshake and again for each task. Source: see ``models``.
"""

import asyncio
import functools
import time
from typing import Final, assert_never
from uuid import uuid4

from fastapi import APIRouter, WebSocket

from ....adapters.audio.encoders import AudioLayout
from ....adapters.dashscope.connection import (
    DEFAULT_TIMEOUTS,
    DashScopeConnection,
    DashScopeProtocolError,
    DashScopeTimeouts,
)
from ....adapters.dashscope.events import (
    CancelTask,
    ContinueTask,
    DashScopeEvent,
    DashScopeIdleTimeout,
    DashScopeServerEvent,
    DashScopeTaskInput,
    FinishTask,
    FlushTask,
    RunTask,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ...access.access_control import Grant
from ...web.openapi.operations import WebSocketOperation
from ...web.request_log import RequestRecord
from ...web.websocket import CLOSE_NORMAL, WebSocketConnection, WebSocketConnections, reject_handshake
from ..dashscope.errors import to_dashscope_error
from ..speech import EncodedChunk, EncodedStream, open_encoded_stream
from ..speech_job import JobServer
from .frames import PaiClientFrame, PaiFrameCodec, PaiServerFrame, encode_audio
from .models import PaiMetrics, PaiParameters
from .request_mapping import make_pai_options, pai_error_response

PATH: Final = "/api-ws/v1/audio/speech"
PAI_SOCKET_OPERATION: Final = WebSocketOperation(
    PATH, "PAI's tasks; audio comes in base64.", PaiClientFrame, PaiServerFrame
)
_API: Final = "pai-socket"  # in the log and the metrics


class PaiSocketApi:
    """All PAI sockets of a server. Belongs to its event loop."""

    def __init__(self, host: JobServer, timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS) -> None:
        self.host = host
        self.timeouts = timeouts
        self.connections = WebSocketConnections()

    def routes(self) -> APIRouter:
        """Return the route of the socket; it checks keys itself."""
        router = APIRouter()
        router.add_api_websocket_route(PATH, self._serve)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new tasks, wait at most within_s for open ones, close all sockets with 1001."""
        self.host.server.start_draining()
        await self.connections.drain_and_close(within_s)

    async def _serve(self, socket: WebSocket) -> None:
        try:
            self.host.server.authorize(socket.headers)
        except (BadRequest, Overloaded) as error:
            await reject_handshake(socket, pai_error_response(error, uuid4().hex))
            return
        await socket.accept()
        await self.connections.serve(_PaiSocketConnection(self, socket))


class _PaiTask:
    # The state of an open task that the reading and the speaking coroutine share.

    def __init__(self, run: RunTask[PaiParameters], grant: Grant) -> None:
        self.run = run
        self.grant = grant
        self.characters = 0
        self.begun_at = self.piece_at = time.monotonic()
        self.stream: EncodedStream
        self.record: RequestRecord
        self.stream_opened = asyncio.Event()

    def push(self, text: str) -> None:
        """Speak more text; raises RateLimited or BadText."""
        self.grant.charge_characters(len(text))
        self.record.count_text(len(text))
        self.stream.push_text(text)
        self.characters += len(text)

    def measure(self, seconds: float) -> PaiMetrics:
        """Return the times of a piece of that length."""
        now = time.monotonic()
        metrics = PaiMetrics(
            speech_len=seconds,
            server_cost_time=round(now - self.begun_at, 4),
            generate_time=round(now - self.piece_at, 4),
        )
        self.piece_at = now
        return metrics


class _PaiSocketConnection(WebSocketConnection):
    """One accepted socket."""

    def __init__(self, api: PaiSocketApi, socket: WebSocket) -> None:
        super().__init__(socket)
        self._host = api.host
        self._loop = asyncio.get_running_loop()
        self._protocol = DashScopeConnection(PaiFrameCodec(), self._loop.time(), api.timeouts)
        self._task: _PaiTask | None = None

    # Reading

    def idle_deadline(self) -> float | None:
        return self._protocol.deadline

    async def on_idle(self) -> None:
        self._protocol.receive_time(self._loop.time())
        await self._handle_events()

    async def on_message(self, data: str | bytes) -> None:
        self._protocol.receive_data(data, self._loop.time())
        await self._handle_events()

    async def _handle_events(self) -> None:
        try:
            for event in self._protocol.events():
                await self._handle(event)
        except DashScopeProtocolError as error:
            await self._send_failure(error.reply)

    async def _handle(self, event: DashScopeEvent[PaiParameters]) -> None:
        if isinstance(event, DashScopeIdleTimeout):
            await self.close(CLOSE_NORMAL)
        elif isinstance(event, RunTask):
            await self._begin_task(event)
        elif self._task is not None:
            try:
                await self._continue_task(self._task, event)
            except VivavoceError as error:
                await self._send_failure(_failed(event.task_id, error))

    async def _continue_task(self, task: _PaiTask, event: DashScopeTaskInput) -> None:
        match event:
            case ContinueTask(text=text):
                task.push(text)
            case FlushTask():
                task.stream.flush()
            case FinishTask():
                task.stream.end_input()
            case CancelTask():
                await self.stop_speaking()
                await self._send_event(TaskFinished(event.task_id, task.characters))
            case _:
                assert_never(event)

    async def _begin_task(self, run: RunTask[PaiParameters]) -> None:
        try:
            grant = self._host.server.authorize_request(self.socket.headers)
        except (BadRequest, Overloaded) as error:
            await self._send_failure(_failed(run.task_id, error))
            return
        await self.wait_spoken()  # until the last event of the previous task has been written
        self._task = task = _PaiTask(run, grant)
        speaking = self.start_speaking(functools.partial(self._speak, task))
        opened = asyncio.create_task(task.stream_opened.wait())
        await asyncio.wait({speaking, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    # Speaking

    async def _speak(self, task: _PaiTask) -> None:
        """Speak a task to its end and send its last event."""
        task_id = task.run.task_id
        try:
            error = await self.error_of(self._render(task), f"task {task_id!r}")
            done = TaskFinished(task_id, task.characters)
            await self._send_event(done if error is None else _failed(task_id, error))
        finally:
            self._task = None

    async def _render(self, task: _PaiTask) -> None:
        """Open a stream and send all audio of the task; the stream is closed when this returns."""
        server, run, grant = self._host.server, task.run, task.grant
        with server.log.track(_API, grant, run.task_id) as task.record, grant.stream():
            options = make_pai_options(run.parameters, run.model, self._host, grant, AudioLayout.STREAM)
            task.record.voice = options.voice or "-"
            bytes_per_s = options.audio.bytes_per_second
            async with open_encoded_stream(server.engine, options, server.encoding_threads) as task.stream:
                await self._send_event(TaskStarted(run.task_id))
                task.stream_opened.set()
                async for chunk in task.stream:
                    if chunk.audio:  # else the encoder withholds it
                        write = functools.partial(self._send_audio, task, chunk)
                        await self.sender.send(chunk.audio, bytes_per_s, write)
                    task.record.count_audio((chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE)

    # Writing

    async def _send_failure(self, reply: TaskFailed) -> None:
        if reply.task_id == self._protocol.task_id:
            await self.stop_speaking()
        await self._send_event(reply)

    async def _send_event(self, event: DashScopeServerEvent) -> None:
        frame = self._protocol.send(event, self._loop.time())
        self.reschedule_idle()
        await self.send_text(frame)

    async def _send_audio(self, task: _PaiTask, chunk: EncodedChunk, audio: bytes) -> None:
        """Write a piece, or the part of one that a slow client may have now."""
        seconds = (chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE * len(audio) / len(chunk.audio)
        await self.send_text(encode_audio(task.run.task_id, audio, task.measure(seconds)))


def _failed(task_id: str, error: Exception) -> TaskFailed:
    described = to_dashscope_error(error)
    return TaskFailed(task_id, described.code, described.message)
