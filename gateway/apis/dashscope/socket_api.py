"""DashScope's WebSocket API, ``/api-ws/v1/inference``, for DashScope's SDKs with a changed base URL.

    frames -> adapters.dashscope.connection -> one task at a time -> apis.speech -> frames and audio

One coroutine reads a socket, so a client that disconnects is noticed at once; a second one speaks while a
task is open. The engine's slot is free before task-finished is sent, because a pooled client sends its next
run-task within 1 ms. The key is checked at the handshake (HTTP 401) and again for each task, as it may have
been revoked.
"""

import asyncio
import functools
from typing import assert_never
from uuid import uuid4

from fastapi import APIRouter, WebSocket
from fastapi.responses import JSONResponse

from ....adapters.dashscope.billing import billed_characters
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
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from ....adapters.dashscope.sentence_events import SentenceEventBuilder
from ....adapters.ssml import parse_ssml, plain_document
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ...access.access_control import Grant
from ...web.openapi.operations import WebSocketOperation
from ...web.request_log import RequestRecord
from ...web.websocket import CLOSE_NORMAL, WebSocketConnection, WebSocketConnections, reject_handshake
from ..speech import EncodedChunk, EncodedStream, open_encoded_stream
from ..speech_server import SpeechServer
from .errors import to_dashscope_error
from .frames import ClientFrame, DashScopeFrameCodec, ServerFrame
from .models import DashScopeErrorBody
from .parameters import SpeechParameters
from .request_mapping import (
    VoiceResolver,
    make_synthesis_options,
    resolve_dashscope_voice,
    voice_of_dashscope_model,
)

PATH = "/api-ws/v1/inference"
DASHSCOPE_SOCKET_OPERATION = WebSocketOperation(
    PATH, "DashScope's tasks; audio comes in binary messages.", ClientFrame, ServerFrame
)
_API = "dashscope"  # in the log and the metrics


class DashScopeSocketApi:
    """All DashScope sockets of a server. Belongs to its event loop."""

    def __init__(
        self,
        server: SpeechServer,
        voices: VoiceResolver,
        timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.server = server
        self.voices = voices
        self.timeouts = timeouts
        self.connections = WebSocketConnections()

    def routes(self) -> APIRouter:
        """Return the route of the socket, with and without a trailing slash; it checks keys itself."""
        router = APIRouter()

        @router.websocket(PATH)
        @router.websocket(PATH + "/")
        async def inference(socket: WebSocket) -> None:
            await self._serve(socket)

        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new tasks, wait at most within_s for open ones, close all sockets with 1001."""
        self.server.start_draining()
        await self.connections.drain_and_close(within_s)

    async def _serve(self, socket: WebSocket) -> None:
        try:
            self.server.authorize(socket.headers)
        except (BadRequest, Overloaded) as error:
            error_response = to_dashscope_error(error)
            body = DashScopeErrorBody(
                code=error_response.code, message=error_response.message, request_id=str(uuid4())
            )
            # The Java SDK stops reconnecting at "401 Unauthorized" only.
            await reject_handshake(socket, JSONResponse(body.model_dump(), error_response.status))
            return
        await socket.accept()
        await self.connections.serve(_DashScopeSocketConnection(self, socket))


class _SpeechTask:
    # The state of an open task that the reading and the speaking coroutine share.

    def __init__(self, run_task: RunTask[SpeechParameters], grant: Grant) -> None:
        self.run_task = run_task
        self.grant = grant
        self.characters = 0
        self.bytes_per_s = 0
        self.sentences = SentenceEventBuilder(
            run_task.task_id, include_words=run_task.parameters.word_timestamp_enabled
        )
        self.stream: EncodedStream
        self.record: RequestRecord
        self.stream_opened = asyncio.Event()

    def push(self, text: str) -> None:
        """Speak more text; raise InvalidDashScopeField, BadSsml, RateLimited or BadText."""
        is_ssml = self.run_task.parameters.is_ssml(text)
        spoken = parse_ssml(text) if is_ssml else plain_document(text)
        characters = billed_characters(spoken.text)
        self.grant.charge_characters(characters)
        self.stream.push_document(spoken)
        self.characters += characters
        self.record.count_text(len(spoken.text))


class _DashScopeSocketConnection(WebSocketConnection):
    """One accepted socket."""

    def __init__(self, api: DashScopeSocketApi, socket: WebSocket) -> None:
        super().__init__(socket)
        self._api = api
        self._loop = asyncio.get_running_loop()
        self._protocol = DashScopeConnection(DashScopeFrameCodec(), self._loop.time(), api.timeouts)
        self._task: _SpeechTask | None = None

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

    async def _handle(self, event: DashScopeEvent[SpeechParameters]) -> None:
        if isinstance(event, DashScopeIdleTimeout):
            await self.close(CLOSE_NORMAL)
        elif isinstance(event, RunTask):
            await self._begin_task(event)
        elif self._task is not None:
            try:
                await self._continue_task(self._task, event)
            except VivavoceError as error:
                await self._send_failure(_task_failed_event(event.task_id, error))

    async def _continue_task(self, task: _SpeechTask, event: DashScopeTaskInput) -> None:
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

    async def _begin_task(self, run: RunTask[SpeechParameters]) -> None:
        try:
            grant = self._api.server.authorize_request(self.socket.headers)
            voice_of_dashscope_model(self._api.server.models, run.model)
        except (BadRequest, Overloaded) as error:
            await self._send_failure(_task_failed_event(run.task_id, error))
            return
        await self.wait_spoken()  # until the last event of the previous task has been written
        self._task = task = _SpeechTask(run, grant)
        speaking = self.start_speaking(functools.partial(self._speak, task))
        opened = asyncio.create_task(task.stream_opened.wait())
        await asyncio.wait({speaking, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    # Speaking

    async def _speak(self, task: _SpeechTask) -> None:
        """Speak a task to its end and send its last event."""
        task_id = task.run_task.task_id
        try:
            error = await self.error_of(self._render(task), f"task {task_id!r}")
            done = TaskFinished(task_id, task.characters)
            await self._send_event(done if error is None else _task_failed_event(task_id, error))
        finally:
            self._task = None

    async def _render(self, task: _SpeechTask) -> None:
        """Open a stream and send all audio of the task; the stream is closed when this returns."""
        server, run, grant = self._api.server, task.run_task, task.grant
        with server.log.track(_API, grant, run.task_id) as task.record, grant.stream():
            default = voice_of_dashscope_model(server.models, run.model)
            voice = resolve_dashscope_voice(self._api.voices, run.parameters.voice, grant, default)
            task.record.voice = voice
            options = make_synthesis_options(run.parameters, voice)
            task.bytes_per_s = options.audio.bytes_per_second
            async with open_encoded_stream(server.engine, options, server.encoding_threads) as task.stream:
                await self._send_event(TaskStarted(run.task_id))
                task.stream_opened.set()
                async for chunk in task.stream:
                    await self._send_audio(task, chunk)
        for event in task.sentences.events_at_end(task.stream.text):
            await self._send_event(event)

    async def _send_audio(self, task: _SpeechTask, chunk: EncodedChunk) -> None:
        start, stop = chunk.samples
        events = task.sentences.events_before_audio(
            task.stream.text, chunk.text, chunk.words, has_audio=bool(chunk.audio)
        )
        for event in events:
            if isinstance(event, SentenceSynthesis):
                write = functools.partial(self._send_event, event)
                await self.sender.send(chunk.audio, task.bytes_per_s, write)
            else:
                await self._send_event(event)
        task.record.count_audio((stop - start) / SAMPLE_RATE)

    # Writing

    async def _send_failure(self, reply: TaskFailed) -> None:
        if reply.task_id == self._protocol.task_id:
            await self.stop_speaking()
        await self._send_event(reply)

    async def _send_event(self, event: DashScopeServerEvent, audio: bytes | None = None) -> None:
        """Write an event and, right after it, the audio that it announces."""
        frame = self._protocol.send(event, self._loop.time())
        self.reschedule_idle()
        await self.send_text(frame, audio)


def _task_failed_event(task_id: str, error: Exception) -> TaskFailed:
    error_response = to_dashscope_error(error)
    return TaskFailed(task_id, error_response.code, error_response.message)
