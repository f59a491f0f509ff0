"""Cartesia's WebSocket, ``/tts/websocket``: many contexts on one connection, each spoken by a task.

    message -> models.parse_client_message -> context.CartesiaContext -> its task -> chunk, timestamps, done

Each context has its own stream of the engine, so their audio interleaves. After a cancel no more messages of
its context are sent.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from uuid import uuid4

from fastapi import WebSocket
from fastapi.responses import JSONResponse

from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ....access.errors import GrantEnded
from ....voice_registry import VoiceRegistry
from ....web.backpressure import BackpressureSender
from ....web.openapi.operations import WebSocketOperation
from ....web.websocket import CLOSE_NORMAL, WebSocketConnection, reject_handshake
from ...shell.request_fields import reported_context_id
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SocketHandlers, SpeechServer, SpeechSocketApi
from ...shell.transcripts import Transcript, speak_transcript
from .context import CartesiaContext
from .errors import CartesiaContextClosed, CartesiaLimitReached, InvalidCartesiaRequest, to_cartesia_error
from .failed_contexts import FailedContexts
from .http_api import error_body
from .models import (
    AudioChunkMessage,
    CancelContextRequest,
    CartesiaAnswer,
    CartesiaClientMessage,
    CartesiaErrorMessage,
    CartesiaServerMessage,
    DoneMessage,
    FlushDoneMessage,
    GenerationRequest,
    TimestampsMessage,
    WordTimestamps,
    parse_client_message,
    parse_fields,
)
from .output_format import make_encoding
from .request_mapping import make_synthesis_options, resolve_cartesia_voice

PATH: Final = "/tts/websocket"
CARTESIA_SOCKET_OPERATION: Final = WebSocketOperation(
    PATH, "Cartesia's contexts; audio comes in base64.", CartesiaClientMessage, CartesiaServerMessage
)
MAX_CONTEXTS: Final = 100  # of a connection
IDLE_S: Final = 300.0  # without a message or audio, after which Cartesia closes a connection too
_API: Final = "cartesia"  # in the log and the metrics
_KEY_PARAMETERS: Final = ("api_key", "access_token")  # of browsers, which cannot set headers


class CartesiaSocketApi(SpeechSocketApi):
    """All Cartesia sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self.voices = voices

    def handlers(self) -> SocketHandlers:
        return {PATH: self._serve}

    async def _serve(self, socket: WebSocket) -> None:
        connection = _CartesiaSocketConnection(self, socket)
        try:
            self.server.authorize(connection.headers)
        except (BadRequest, Overloaded) as error:
            body = error_body(error, connection.request_id)
            await reject_handshake(socket, JSONResponse(body.model_dump(), body.status_code))
            return
        await socket.accept()
        await self.connections.serve(connection)


class _CartesiaSocketConnection(WebSocketConnection):
    def __init__(self, api: CartesiaSocketApi, socket: WebSocket) -> None:
        super().__init__(socket)
        self.request_id = f"req_{uuid4().hex}"
        self.headers = _headers_with_key(socket)
        self._api = api
        self._loop = asyncio.get_running_loop()
        self._contexts: dict[str, CartesiaContext] = {}
        self._failed = FailedContexts()
        self._idle_since = self._loop.time()

    # Reading

    def idle_deadline(self) -> float | None:
        is_busy = any(context.is_speaking for context in self._contexts.values())
        return None if is_busy else self._idle_since + IDLE_S

    async def on_idle(self) -> None:
        await self.close(CLOSE_NORMAL)

    async def on_grant_ended(self, error: GrantEnded) -> None:
        await self._send_error(error, None)

    async def on_closed(self) -> None:
        for context in self._contexts.values():
            context.cancel()

    async def on_message(self, data: str | bytes) -> None:
        self._idle_since = self._loop.time()
        context_id, fields = None, dict[str, Any]()
        try:
            fields = parse_fields(data)
            context_id = reported_context_id(fields.get("context_id"))
            if self._failed.drops(context_id, fields):
                return
            message = parse_client_message(fields)
            if isinstance(message, CancelContextRequest):
                self._cancel(message.context_id)
            else:
                self._receive_text(message)
        except VivavoceError as error:
            context = self._contexts.get(context_id or "")
            if context is None or context.input_ended:
                self._failed.add(context_id, fields)
            await self._send_error(error, context_id)

    def _receive_text(self, request: GenerationRequest) -> None:
        context = self._contexts.get(request.context_id) or self._open_context(request)
        try:
            context.receive(request)
        except CartesiaContextClosed:
            raise  # what came before is spoken
        except VivavoceError:
            self._cancel(context.id)
            raise

    def _open_context(self, request: GenerationRequest) -> CartesiaContext:
        if len(self._contexts) >= MAX_CONTEXTS:
            raise CartesiaLimitReached(
                f"{MAX_CONTEXTS} contexts are open on this connection, which is the limit"
            )
        grant = self._api.server.authorize_request(self.headers)
        voice = resolve_cartesia_voice(self._api.voices, self._api.server.models, request, grant)
        encoding = make_encoding(request.output_format)
        if request.output_format.container != "raw":
            raise InvalidCartesiaRequest("output_format.container: a socket sends 'raw' audio only")
        context = self._contexts[request.context_id] = CartesiaContext(
            request,
            options=make_synthesis_options(request, voice, encoding),
            encoding=encoding,
            grant=grant,
            sender=BackpressureSender.from_scope(self.socket.scope),
            on_ready=self._start_speaking,
        )
        return context

    def _cancel(self, context_id: str) -> None:
        context = self._contexts.pop(context_id, None)
        if context is not None:
            context.cancel()

    # Speaking

    def _start_speaking(self, context: CartesiaContext) -> None:
        context.is_speaking = True
        self.start_speaking(partial(self._speak, context))

    async def _speak(self, context: CartesiaContext) -> None:
        """Speak the transcripts that there are; after the last of the context, report its end."""
        while (transcript := context.next_transcript) is not None:
            if not transcript.is_blank:
                name = f"context {context.id!r} of {self.request_id}"
                error = await self.error_of(self._render(context, transcript), name)
                if error is not None and not context.cancelled:
                    self._failed.add(context.id, {"continue": not context.input_ended})
                    self._cancel(context.id)
                    await self._send_error(error, context.id)
            if transcript.flush_id is not None:
                await self._send(
                    context, FlushDoneMessage(context_id=context.id, flush_id=transcript.flush_id)
                )
            context.transcripts.popleft()
        context.is_speaking = False
        self._idle_since = self._loop.time()
        self.reschedule_idle()
        if context.input_ended and not context.cancelled:
            del self._contexts[context.id]
            await self._send(context, DoneMessage(context_id=context.id))

    async def _render(self, context: CartesiaContext, transcript: Transcript) -> None:
        samples = 0

        async def send(chunk: EncodedChunk, text: str) -> None:
            nonlocal samples
            await self._send_chunk(context, chunk, text)
            samples = chunk.samples[1]

        await speak_transcript(self._api.server, (_API, context.id), context, transcript, send)
        context.samples += samples

    async def _send_chunk(self, context: CartesiaContext, chunk: EncodedChunk, text: str) -> None:
        if chunk.written_words and context.has_timestamps:
            words = WordTimestamps.of(chunk.written_words, context.samples / SAMPLE_RATE)
            await self._send(context, TimestampsMessage(context_id=context.id, word_timestamps=words))
        if chunk.audio:
            encoding = context.encoding
            audio = encoding.convert(chunk.audio)
            await context.sender.send(audio, encoding.bytes_per_s, self._audio_writer(context))

    def _audio_writer(self, context: CartesiaContext) -> Callable[[bytes], Awaitable[None]]:
        async def write(audio: bytes) -> None:
            now = self._loop.time()
            step_ms, context.sent_at = round(1_000 * (now - context.sent_at), 3), now
            data = b64encode(audio).decode("ascii")
            await self._send(context, AudioChunkMessage(context_id=context.id, data=data, step_time=step_ms))

        return write

    # Writing

    async def _send(self, context: CartesiaContext, message: CartesiaAnswer) -> None:
        if not context.cancelled:
            await self.send_text(message.encode())

    async def _send_error(self, error: Exception, context_id: str | None) -> None:
        described = to_cartesia_error(error)
        message = CartesiaErrorMessage(
            status_code=described.status,
            error_code=described.code,
            title=described.title,
            message=described.message,
            request_id=self.request_id,
            context_id=context_id,
        )
        await self.send_text(message.encode())


def _headers_with_key(socket: WebSocket) -> dict[str, str]:
    """Return the headers of the handshake, with a key from the query if they have none."""
    keys = [socket.query_params[name] for name in _KEY_PARAMETERS if name in socket.query_params]
    return {**({"x-api-key": keys[0]} if keys else {}), **socket.headers}
