"""Our own WebSocket, ``/v1/audio/speech/stream``: text in as it is written, audio out as it is spoken.

    messages -> adapters.speech_socket.Connection -> turns, one spoken after the other -> speech.Utterance
    session.config with ref_audio -> lent_voice.TemporaryVoice, for as long as a turn or the configuration needs it

One coroutine reads a socket, so a client that vanishes is noticed at once; another speaks while there is
something to say. Text of a turn goes to the engine as it comes; text of turns after it waits, so much and no
more. An idle socket is closed after a minute.
"""

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import assert_never
from uuid import uuid4

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from ....adapters.native_stream.connection import NativeStreamConnection
from ....adapters.native_stream.encoding import encode
from ....adapters.native_stream.events import (
    AudioDone,
    AudioStart,
    AudioWords,
    CloseRequested,
    ConfigAccepted,
    InputCancel,
    InputDone,
    InputFlush,
    InputText,
    NativeStreamConfig,
    NativeStreamEvent,
    NativeStreamServerEvent,
    StreamErrorReport,
    UtteranceDone,
)
from ....adapters.openai.json_fields import InvalidRequestError
from ....adapters.openai.speech_request import OpenAISpeechSettings
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ...access.access_control import Grant
from ...web.backpressure import BackpressureSender
from ...web.websocket import (
    CLOSE_GOING_AWAY,
    CLOSE_NORMAL,
    CLOSE_TOO_SLOW,
    SEND_TIMEOUT_S,
    close_socket,
    is_open,
    reject_handshake,
)
from ..openai.errors import to_openai_error
from ..openai.speech_api import OpenAISpeechApi
from ..speech import EncodedChunk, open_encoded_stream
from .queued_utterance import QueuedUtterance
from .temporary_voice import TemporaryVoice

logger = logging.getLogger(__name__)

PATH = "/v1/audio/speech/stream"
IDLE_S = 60.0
MAX_QUEUED_CHARACTERS = 256 * 1024  # characters of turns that are not spoken yet
MAX_QUEUED_UTTERANCES = 64
_THREAD_PARSING_CHARACTERS = 256 * 1024  # characters; more, a recording's, are parsed on a thread
_API = "socket"
_Recording = tuple[str, str]  # where it is, what is said in it


class NativeStreamApi:
    """Every such socket of a server; belongs to its event loop. api: whose keys, voices and limits hold."""

    def __init__(self, api: OpenAISpeechApi, idle_s: float = IDLE_S) -> None:
        self.api = api
        self.idle_s = idle_s
        self._connections: set[_NativeStreamSocketConnection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def routes(self) -> APIRouter:
        """The socket's route."""
        router = APIRouter()

        @router.websocket(PATH)
        async def stream(socket: WebSocket) -> None:
            await self._serve(socket)

        return router

    async def finish(self, within_s: float) -> None:
        """Let what is being said end, at most ``within_s``; close every socket with 1001."""
        await asyncio.gather(
            *(connection.drain_and_close(within_s) for connection in tuple(self._connections))
        )

    async def _serve(self, socket: WebSocket) -> None:
        try:
            self.api.authorize(socket.headers)
        except (BadRequest, Overloaded) as error:
            error_response = to_openai_error(error)
            await reject_handshake(
                socket, JSONResponse(error_response.body, error_response.status, error_response.headers)
            )
            return
        await socket.accept()
        connection = _NativeStreamSocketConnection(self, socket)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)


class _NativeStreamSocketConnection:
    """One socket, from its acceptance to its end."""

    def __init__(self, server: NativeStreamApi, socket: WebSocket) -> None:
        self._server = server
        self._socket = socket
        self._sender = BackpressureSender.from_scope(socket.scope)
        self._protocol = NativeStreamConnection()
        self._id = f"ws_{uuid4().hex}"
        self._queue: deque[QueuedUtterance] = deque()
        self._last_finished = -1  # the last utterance that is
        self._next_recording: _Recording | None = None  # what the next utterance is to sound like
        self._temporary_voice: tuple[_Recording, TemporaryVoice] | None = None
        self._speaking_task: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()

    async def run(self) -> None:
        """Serve until the peer is gone or the socket is closed."""
        try:
            while is_open(self._socket):
                await self._receive_next()
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            await close_socket(self._socket, CLOSE_TOO_SLOW)
        finally:
            await self._stop_speaking()
            await self._release_temporary_voice()

    async def drain_and_close(self, within_s: float) -> None:
        """Let what is being said end, at most ``within_s``, then close with 1001."""
        if self._speaking_task is not None:
            await asyncio.wait({self._speaking_task}, timeout=within_s)
        await close_socket(self._socket, CLOSE_GOING_AWAY)
        await self._stop_speaking()

    # Reading

    async def _receive_next(self) -> None:
        """Take one message, or close the socket where none came for long and nothing is being said."""
        try:
            async with asyncio.timeout(self._server.idle_s):
                message = await self._socket.receive()
        except TimeoutError:
            if not self._has_pending_audio():
                await self._send_event(
                    StreamErrorReport(f"no message for {self._server.idle_s:g} s", "idle_timeout")
                )
                await close_socket(self._socket, CLOSE_NORMAL)
            return
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text: str | None = message.get("text")
        try:
            await self._handle(await self._read(text if text is not None else message.get("bytes") or b""))
        except (InvalidRequestError, BadRequest, Overloaded) as error:
            await self._send_event(_failure_event(error))

    async def _read(self, message: str | bytes) -> NativeStreamEvent:
        if len(message) > _THREAD_PARSING_CHARACTERS:
            return await asyncio.to_thread(self._protocol.receive_data, message)
        return self._protocol.receive_data(message)

    def _has_pending_audio(self) -> bool:
        """Whether a turn whose text is complete is still being sent."""
        return any(queued.input_ended for queued in self._queue)

    async def _handle(self, event: NativeStreamEvent) -> None:
        match event:
            case ConfigAccepted(configuration=configuration):
                await self._configure(configuration.settings)
            case InputText():
                self._push(event)
            case InputFlush(utterance=index):
                self._push_to(index, event)
            case InputDone(utterance=index):
                self._end(index)
            case InputCancel(utterance=index):
                self._cancel(index)
            case CloseRequested():
                await close_socket(self._socket, CLOSE_NORMAL)
            case _:
                assert_never(event)

    async def _configure(self, settings: OpenAISpeechSettings) -> None:
        """Say at once what is wrong, and begin with a voice that has to be made; raises BadRequest."""
        api = self._server.api
        self._next_recording = _recording_of(settings)
        if not self._queue:
            await self._release_temporary_voice(keep_recording=self._next_recording)
        grant = api.authorize(self._socket.headers)
        api.synthesis_options(settings, api.resolve_named_voice(settings, grant))
        if self._next_recording is not None and self._temporary_voice is None and not self._queue:
            grant.charge_request()  # as a recording costs over HTTP; one for later is made under its turn's
            await self._make_temporary_voice(settings, self._next_recording, grant)

    def _push(self, event: InputText) -> None:
        """Add text to its turn, which begins with it; raises ProtocolError where too much waits."""
        if not event.text or event.utterance <= self._last_finished:
            return
        waiting = sum(queued.queued_characters for queued in self._queue) + len(event.text)
        if waiting > MAX_QUEUED_CHARACTERS or len(self._queue) >= MAX_QUEUED_UTTERANCES:
            raise InvalidRequestError(
                f"{waiting} characters in {len(self._queue)} utterances wait to be spoken, more than "
                f"{MAX_QUEUED_CHARACTERS} in {MAX_QUEUED_UTTERANCES}; this text is not taken",
                code="too_much_text",
            )
        if self._last_queued(event.utterance) is None:
            self._enqueue(QueuedUtterance(event.utterance, event.configuration))
        self._push_to(event.utterance, event.text)

    def _enqueue(self, queued: QueuedUtterance) -> None:
        self._queue.append(queued)
        if self._speaking_task is None:
            self._speaking_task = asyncio.create_task(self._speak_queue())

    def _last_queued(self, index: int) -> QueuedUtterance | None:
        """The last turn, if it is that one: text comes for no other."""
        return self._queue[-1] if self._queue and self._queue[-1].index == index else None

    def _push_to(self, index: int, piece: str | InputFlush) -> None:
        queued = self._last_queued(index)
        if queued is not None:
            queued.push(piece)

    def _end(self, index: int) -> None:
        queued = self._last_queued(index)
        if queued is None and index > self._last_finished:
            queued = QueuedUtterance(index, None)
            self._enqueue(queued)
        if queued is not None:
            queued.end_input()

    def _cancel(self, index: int) -> None:
        self._end(index)
        for queued in self._queue:
            queued.cancel()

    # Speaking

    async def _speak_queue(self) -> None:
        """Speak one turn after the other until there is none; a peer that takes nothing ends the socket."""
        try:
            while self._queue:
                await self._speak(self._queue[0])
                self._last_finished = self._queue.popleft().index
                if not self._queue:
                    await self._release_temporary_voice(keep_recording=self._next_recording)
        except (WebSocketDisconnect, TimeoutError):
            await close_socket(self._socket, CLOSE_TOO_SLOW)
        finally:
            self._speaking_task = None

    async def _speak(self, queued: QueuedUtterance) -> None:
        """Speak a turn and tell how it ended. Boundary: whatever is raised ends this turn and no more."""
        try:
            if queued.configuration is not None and not queued.cancelled:
                await self._render(queued, queued.configuration)
        except (WebSocketDisconnect, TimeoutError):
            raise
        except VivavoceError as error:
            queued.failure = error
        except Exception as error:
            logger.exception("utterance %d of %s failed", queued.index, self._id)
            queued.failure = error
        if queued.failure is not None:
            await self._send_event(replace(_failure_event(queued.failure), utterance=queued.index))
        if queued.has_begun:
            await self._send_event(AudioDone(queued.index, queued.total_bytes, queued.failure is not None))
        await self._send_event(UtteranceDone(queued.index, int(queued.has_begun), queued.cancelled))

    async def _render(self, queued: QueuedUtterance, configuration: NativeStreamConfig) -> None:
        """Send all of a turn's audio; when this returns, its slot is free."""
        api = self._server.api
        queued.grant = grant = api.authorize_utterance(self._socket.headers)
        with api.log.track(_API, grant, f"{self._id}/{queued.index}") as queued.record, grant.stream():
            queued.record.count_text(0)  # what has waited for its voice came before that
            voice = await self._engine_voice(queued, configuration.settings)
            if voice is None:
                return
            queued.record.voice = voice
            async with open_encoded_stream(
                api.engine, api.synthesis_options(configuration.settings, voice)
            ) as utterance:
                queued.open(utterance)
                async for chunk in utterance:
                    await self._send_audio(queued, configuration, chunk)
            if queued.failure is not None:
                raise queued.failure

    async def _engine_voice(self, queued: QueuedUtterance, settings: OpenAISpeechSettings) -> str | None:
        """The engine's voice for a turn, None if it is cancelled first; raises as ``OpenAISpeechApi.voice``."""
        recording = _recording_of(settings)
        if recording is None:
            return self._server.api.resolve_named_voice(settings, queued.grant)
        temporary_voice = await self._make_temporary_voice(settings, recording, queued.grant)
        return await temporary_voice.id(queued.abandoned)

    async def _make_temporary_voice(
        self, settings: OpenAISpeechSettings, recording: _Recording, grant: Grant
    ) -> TemporaryVoice:
        """The voice of a recording, made now unless it is there; one at a time."""
        await self._release_temporary_voice(keep_recording=recording)
        if self._temporary_voice is None:
            self._temporary_voice = recording, TemporaryVoice(self._server.api.engine_voice(settings, grant))
        return self._temporary_voice[1]

    async def _release_temporary_voice(self, keep_recording: _Recording | None = None) -> None:
        """Let go of a voice of any recording but that one, and of one that could not be made."""
        if self._temporary_voice is None or (
            self._temporary_voice[0] == keep_recording and not self._temporary_voice[1].has_failed
        ):
            return
        (_, temporary_voice), self._temporary_voice = self._temporary_voice, None
        await temporary_voice.aclose()

    async def _send_audio(
        self, queued: QueuedUtterance, configuration: NativeStreamConfig, chunk: EncodedChunk
    ) -> None:
        assert queued.stream is not None
        if chunk.words and configuration.word_times:
            await self._send_event(AudioWords(queued.index, chunk.words))
        if not chunk.audio:
            return
        if not queued.has_begun:
            audio = configuration.settings.audio
            text = queued.stream.text
            await self._send_event(AudioStart(queued.index, text, audio.codec, audio.sample_rate))
            queued.has_begun = True
        rate = configuration.settings.audio.bytes_per_second
        await self._sender.send(chunk.audio, rate, self._send_audio_bytes)
        queued.total_bytes += len(chunk.audio)
        queued.record.count_audio((chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE)

    async def _stop_speaking(self) -> None:
        """Drop what is not sent; the engine is free when this returns."""
        if self._speaking_task is not None:
            self._speaking_task.cancel()
            await asyncio.wait({self._speaking_task})

    # Writing

    async def _send_audio_bytes(self, audio: bytes) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S), self._write_lock:
            await self._socket.send_bytes(audio)

    async def _send_event(self, event: NativeStreamServerEvent) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S), self._write_lock:
            await self._socket.send_text(encode(event))


def _recording_of(settings: OpenAISpeechSettings) -> _Recording | None:
    return None if settings.ref_audio is None else (settings.ref_audio, settings.ref_text)


def _failure_event(error: Exception) -> StreamErrorReport:
    error_response = to_openai_error(error)
    code = error_response.code or (error_response.kind if error_response.status >= 500 else None)
    return StreamErrorReport(
        error_response.message, code, error_response.param, retry_after_s=error_response.retry_after_s
    )
