"""DashScope's WebSocket API, ``/api-ws/v1/inference``, for DashScope's SDKs with a changed base URL.

    frames -> adapters.dashscope.connection -> one task at a time -> apis.speech -> frames and audio

One coroutine reads a socket, so a client that disconnects is noticed at once; a second one speaks while a
task is open. The engine's slot is free before task-finished is sent, because a pooled client sends its next
run-task within 1 ms. The key is checked at the handshake (HTTP 401) and again for each task, as it may have
been revoked.
"""

import asyncio
import functools
import logging
from typing import assert_never
from uuid import uuid4

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
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
from ....adapters.ssml import parse_ssml
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.engine import Engine
from ....tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ...access.access_control import AccessControl, Grant
from ...access.keys import Scope
from ...web.backpressure import BackpressureSender
from ...web.request_log import RequestLog, RequestRecord
from ...web.websocket import (
    CLOSE_GOING_AWAY,
    CLOSE_NORMAL,
    CLOSE_TOO_SLOW,
    SEND_TIMEOUT_S,
    close_socket,
    is_open,
    reject_handshake,
)
from ..speech import EncodedChunk, EncodedStream, open_encoded_stream
from .errors import DashScopeErrorResponse, to_dashscope_error
from .frames import DashScopeFrameCodec
from .models import DashScopeErrorBody, check_dashscope_model
from .parameters import SpeechParameters
from .request_mapping import VoiceResolver, make_synthesis_options, resolve_dashscope_voice

logger = logging.getLogger(__name__)

PATH = "/api-ws/v1/inference"
_API = "dashscope"


class DashScopeSocketApi:
    """All DashScope sockets of a server. Belongs to its event loop."""

    def __init__(
        self,
        engine: Engine,
        access: AccessControl,
        voices: VoiceResolver,
        log: RequestLog,
        timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.engine = engine
        self.access = access
        self.voices = voices
        self.log = log
        self.timeouts = timeouts
        self._connections: set[_DashScopeSocketConnection] = set()
        self._draining = False

    def __len__(self) -> int:
        return len(self._connections)

    def routes(self) -> APIRouter:
        """Return the route of the socket, with and without a trailing slash."""
        router = APIRouter()

        @router.websocket(PATH)
        @router.websocket(PATH + "/")
        async def inference(socket: WebSocket) -> None:
            await self._serve(socket)

        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new tasks, wait for open ones at most ``within_s`` seconds, close all sockets with 1001."""
        self._draining = True
        closing = [
            asyncio.create_task(connection.drain_and_close(within_s))
            for connection in tuple(self._connections)
        ]
        await asyncio.gather(*closing)

    async def aclose(self) -> None:
        """Stop all tasks and close all sockets."""
        await self.finish(0.0)

    async def _serve(self, socket: WebSocket) -> None:
        error_response = self._handshake_error(socket)
        if error_response is not None:
            body = DashScopeErrorBody(
                code=error_response.code, message=error_response.message, request_id=str(uuid4())
            )
            # The Java SDK stops reconnecting at "401 Unauthorized" only.
            await reject_handshake(socket, JSONResponse(body.model_dump(), error_response.status))
            return
        await socket.accept()
        connection = _DashScopeSocketConnection(self, socket)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    def _handshake_error(self, socket: WebSocket) -> DashScopeErrorResponse | None:
        if self._draining:
            return to_dashscope_error(_shutting_down_error())
        try:
            self.access.grant(socket.headers).require(Scope.SPEAK)
        except BadRequest as error:
            return to_dashscope_error(error)
        return None


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
        self.speaking_task: asyncio.Task[None]

    def push(self, text: str) -> None:
        """Speak more text; raise InvalidDashScopeField, BadSsml, RateLimited or BadText."""
        if self.run_task.parameters.is_ssml(text):
            spoken = parse_ssml(text)
            text = spoken.text
            self.stream.set_prosody(spoken.prosody)
        characters = billed_characters(text)
        self.grant.charge_characters(characters)
        self.stream.push_text(text)
        self.characters += characters
        self.record.count_text(len(text))


class _DashScopeSocketConnection:
    """One accepted socket."""

    def __init__(self, server: DashScopeSocketApi, socket: WebSocket) -> None:
        self._server = server
        self._socket = socket
        self._sender = BackpressureSender.from_scope(socket.scope)
        self._loop = asyncio.get_running_loop()
        self._protocol = DashScopeConnection(DashScopeFrameCodec(), self._loop.time(), server.timeouts)
        self._task: _SpeechTask | None = None
        self._receive_timeout: asyncio.Timeout | None = None
        self._write_lock = asyncio.Lock()
        self._draining = False

    async def run(self) -> None:
        """Serve until the peer disconnects or the socket is closed."""
        try:
            while is_open(self._socket):
                await self._receive(await self._next_frame())
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            await close_socket(self._socket, CLOSE_TOO_SLOW)
        finally:
            await self._stop_speaking()

    async def drain_and_close(self, within_s: float) -> None:
        """Wait for the open task at most ``within_s`` seconds, then close with 1001."""
        self._draining = True
        if self._task is not None:
            await asyncio.wait({self._task.speaking_task}, timeout=within_s)
        await close_socket(self._socket, CLOSE_GOING_AWAY)
        await self._stop_speaking()

    # Reading

    async def _next_frame(self) -> str | bytes | None:
        """Return the next frame, or None at the protocol's deadline; raise WebSocketDisconnect."""
        try:
            async with asyncio.timeout_at(self._protocol.deadline) as self._receive_timeout:
                message = await self._socket.receive()
        except TimeoutError:
            return None
        finally:
            self._receive_timeout = None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes") or b""

    async def _receive(self, frame: str | bytes | None) -> None:
        if frame is None:
            self._protocol.receive_time(self._loop.time())
        else:
            self._protocol.receive_data(frame, self._loop.time())
        try:
            for event in self._protocol.events():
                await self._handle(event)
        except DashScopeProtocolError as error:
            await self._send_failure(error.reply)

    async def _handle(self, event: DashScopeEvent[SpeechParameters]) -> None:
        if isinstance(event, DashScopeIdleTimeout):
            await close_socket(self._socket, CLOSE_NORMAL)
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
                await self._stop_speaking()
                await self._send_event(TaskFinished(event.task_id, task.characters))
            case _:
                assert_never(event)

    async def _begin_task(self, run: RunTask[SpeechParameters]) -> None:
        try:
            if self._draining:
                raise _shutting_down_error()
            grant = self._server.access.grant(self._socket.headers)
            grant.require(Scope.SPEAK)
            grant.charge_request()
            check_dashscope_model(run.model)
        except (BadRequest, Overloaded) as error:
            await self._send_failure(_task_failed_event(run.task_id, error))
            return
        await self._wait_until_spoken()
        self._task = task = _SpeechTask(run, grant)
        task.speaking_task = asyncio.create_task(self._speak(task))
        opened = asyncio.create_task(task.stream_opened.wait())
        await asyncio.wait({task.speaking_task, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    # Speaking

    async def _speak(self, task: _SpeechTask) -> None:
        """Speak a task to its end and send its last event."""
        try:
            await self._send_event(await self._speak_to_end(task))
        except (WebSocketDisconnect, TimeoutError):
            await close_socket(self._socket, CLOSE_TOO_SLOW)
        finally:
            if self._task is task:
                self._task = None

    async def _speak_to_end(self, task: _SpeechTask) -> TaskFinished | TaskFailed:
        """Boundary: any exception ends this task only."""
        task_id = task.run_task.task_id
        try:
            await self._render(task)
        except (WebSocketDisconnect, TimeoutError):
            raise
        except VivavoceError as error:
            return _task_failed_event(task_id, error)
        except Exception as error:
            logger.exception("task %r failed", task_id)
            return _task_failed_event(task_id, error)
        return TaskFinished(task_id, task.characters)

    async def _render(self, task: _SpeechTask) -> None:
        """Open a stream and send all audio of the task; the stream is closed when this returns."""
        server, run, grant = self._server, task.run_task, task.grant
        with server.log.track(_API, grant, run.task_id) as task.record, grant.stream():
            voice = resolve_dashscope_voice(server.voices, run.parameters.voice, grant)
            task.record.voice = voice
            options = make_synthesis_options(run.parameters, voice)
            task.bytes_per_s = options.audio.bytes_per_second
            async with open_encoded_stream(server.engine, options) as task.stream:
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
                await self._sender.send(chunk.audio, task.bytes_per_s, write)
            else:
                await self._send_event(event)
        task.record.count_audio((stop - start) / SAMPLE_RATE)

    async def _wait_until_spoken(self) -> None:
        """Wait until the last event of the previous task has been written."""
        if self._task is not None:
            await asyncio.wait({self._task.speaking_task})

    async def _stop_speaking(self) -> None:
        """Stop the open task and drop its unsent audio; its stream is closed when this returns."""
        if self._task is not None:
            self._task.speaking_task.cancel()
            await self._wait_until_spoken()

    # Writing

    async def _send_failure(self, reply: TaskFailed) -> None:
        if reply.task_id == self._protocol.task_id:
            await self._stop_speaking()
        await self._send_event(reply)

    async def _send_event(self, event: DashScopeServerEvent, audio: bytes | None = None) -> None:
        """Write an event and, right after it, the audio that it announces."""
        frame = self._protocol.send(event, self._loop.time())
        if self._receive_timeout is not None and not self._receive_timeout.expired():
            self._receive_timeout.reschedule(self._protocol.deadline)
        async with asyncio.timeout(SEND_TIMEOUT_S), self._write_lock:
            await self._socket.send_text(frame)
            if audio is not None:
                await self._socket.send_bytes(audio)


def _task_failed_event(task_id: str, error: Exception) -> TaskFailed:
    error_response = to_dashscope_error(error)
    return TaskFailed(task_id, error_response.code, error_response.message)


def _shutting_down_error() -> Overloaded:
    return Overloaded("the server is shutting down; connect again", reason="shutting_down", retry_after_s=5.0)
