"""Cartesia's WebSocket, ``/tts/websocket``: many contexts on one connection, each spoken by a task.

    message -> models.parse_client_message -> context.CartesiaContext -> its task -> chunk, timestamps, done

Each context has its own stream of the engine, so their audio interleaves. After a cancel no more messages of
its context are sent.

A context whose error has been reported has one error:

    failed -> messages with "continue" are dropped -> one without it, or a cancel: the id may be used again

A client sends more text before it reads the error. An answer to each would wait, unread, when it leaves.
"""

from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from uuid import uuid4

from fastapi import WebSocket
from fastapi.responses import JSONResponse

from .....adapters.transcript_queue import Transcript
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import VivavoceError
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation
from ...kits.error_table import InvalidField
from ...kits.request_fields import parse_object, reported_context_id
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...kits.speech_socket import MAX_CONTEXTS, SpeechSocket
from ...shell.speech import EncodedChunk, SynthesisOptions
from ...shell.speech_server import SpeechServer
from .context import CartesiaContext
from .errors import CARTESIA_ERRORS, CartesiaContextClosed, CartesiaLimitReached
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
)
from .request_mapping import CARTESIA_NAMES, make_encoding, make_synthesis_options

_MAX_FAILED: Final = 1_000  # of a connection


class FailedContexts:
    """The failed contexts of a connection that the client has not ended."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}  # the oldest first

    def add(self, context_id: str | None, fields: Mapping[str, Any]) -> None:
        """Note the error of a message, unless it was the last of its context."""
        if context_id is None or not _goes_on(fields):
            return
        self._ids[context_id] = None
        if len(self._ids) > _MAX_FAILED:
            del self._ids[next(iter(self._ids))]

    def drops(self, context_id: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether a message is of a failed context; its last one ends it, and a cancel also its context."""
        if context_id is None or context_id not in self._ids:
            return False
        is_cancel = fields.get("cancel") is True
        if is_cancel or not _goes_on(fields):
            del self._ids[context_id]
        return not is_cancel


def _goes_on(fields: Mapping[str, Any]) -> bool:
    return fields.get("continue") is True


PATH: Final = "/tts/websocket"
CARTESIA_SOCKET_OPERATION: Final = WebSocketOperation(
    PATH,
    "Cartesia's contexts; audio comes in base64.",
    CartesiaClientMessage,
    CartesiaServerMessage,
    example=(
        {
            "model_id": "sonic-3",
            "context_id": "one",
            "transcript": "Hello, this is vivavoce.",
            "voice": {"mode": "id", "id": ""},
            "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
        },
    ),
    query="cartesia_version=2025-04-16",
)
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
        request_id = f"req_{uuid4().hex}"

        def connection(socket: WebSocket) -> _CartesiaConnection:
            headers = _headers_with_key(socket)
            self.server.authorize(headers)
            return _CartesiaConnection(self, socket, headers, request_id)

        def refuse(error: Exception) -> JSONResponse:
            body = CARTESIA_ERRORS.body(error, request_id)
            return JSONResponse(body.model_dump(), CARTESIA_ERRORS.describe(error).status)

        await self.serve(connection, refuse, socket)


class _CartesiaConnection(SpeechSocket[CartesiaContext]):
    def __init__(
        self, api: CartesiaSocketApi, socket: WebSocket, headers: dict[str, str], request_id: str
    ) -> None:
        super().__init__(socket, api.server, (_API, request_id), IDLE_S)
        self._headers = headers
        self._voices = api.voices
        self._failed = FailedContexts()

    # Reading

    async def receive(self, data: str | bytes) -> None:
        fields = parse_object(data)
        context_id = reported_context_id(fields.get("context_id"))
        if self._failed.drops(context_id, fields):
            return
        try:
            message = parse_client_message(fields)
            if isinstance(message, CancelContextRequest):
                self._cancel(message.context_id)
            else:
                self._receive_text(message)
        except VivavoceError as error:
            context = self.contexts.get(context_id or "")
            if context is None or context.input_ended:
                self._failed.add(context_id, fields)
            await self.report(error, context_id)

    def _receive_text(self, request: GenerationRequest) -> None:
        context = self.contexts.get(request.context_id) or self._open_context(request)
        try:
            context.receive(request)
        except CartesiaContextClosed:
            raise  # what came before is spoken
        except VivavoceError:
            self.drop(context)
            raise
        self.speak_if_due(context)

    def _open_context(self, request: GenerationRequest) -> CartesiaContext:
        if self.is_full:
            raise CartesiaLimitReached(
                f"{MAX_CONTEXTS} contexts are open on this connection, which is the limit"
            )
        grant = self.server.authorize_request(self._headers)
        models, (voice, model) = self.server.models, (request.voice_id, request.model_id)
        voice = CARTESIA_NAMES.resolve(self._voices, models, voice, model, grant)
        encoding = make_encoding(request.output_format)
        if request.output_format.container != "raw":
            raise InvalidField("output_format.container", "a socket sends 'raw' audio only")
        options = make_synthesis_options(request, voice, encoding)
        context = CartesiaContext(request, self.socket, grant, options, encoding)
        self.contexts[context.id] = context
        return context

    def _cancel(self, context_id: str) -> None:
        context = self.contexts.get(context_id)
        if context is not None:
            self.drop(context)

    # Speaking

    async def send_chunk(
        self,
        context: CartesiaContext,
        transcript: Transcript[SynthesisOptions],
        chunk: EncodedChunk,
        text: str,
    ) -> None:
        if chunk.written_words and context.has_timestamps and not context.is_dropped:
            words = WordTimestamps.of(chunk.written_words, context.spoken_samples / SAMPLE_RATE)
            await self._send(TimestampsMessage(context_id=context.id, word_timestamps=words))
        audio, bytes_per_s = context.encoding.convert(chunk.audio), context.encoding.bytes_per_s
        await self.send_audio(context, audio, bytes_per_s, partial(self._audio_message, context))
        context.samples = context.spoken_samples + chunk.samples[1]

    async def on_spoken(self, context: CartesiaContext, transcript: Transcript[SynthesisOptions]) -> None:
        context.spoken_samples = context.samples
        if transcript.flush_id is not None:
            await self._send(FlushDoneMessage(context_id=context.id, flush_id=transcript.flush_id))

    async def on_failed(
        self, context: CartesiaContext, transcript: Transcript[SynthesisOptions], error: Exception
    ) -> None:
        self._failed.add(context.id, {"continue": not context.input_ended})
        await super().on_failed(context, transcript, error)

    async def on_ended(self, context: CartesiaContext) -> None:
        await self._send(DoneMessage(context_id=context.id))

    # Writing

    def _audio_message(self, context: CartesiaContext, audio: bytes) -> str:
        now = self.now
        step_ms, context.sent_at = round(1_000 * (now - context.sent_at), 3), now
        data = b64encode(audio).decode("ascii")
        return AudioChunkMessage(context_id=context.id, data=data, step_time=step_ms).encode()

    async def _send(self, message: CartesiaAnswer) -> None:
        await self.send_text(message.encode())

    async def report(self, error: Exception, context_id: str | None) -> None:
        described = CARTESIA_ERRORS.describe(error)
        message = CartesiaErrorMessage(
            status_code=described.status,
            error_code=described.code,
            title=described.title,
            message=described.message,
            request_id=self.request_id,
            context_id=context_id,
        )
        await self._send(message)


def _headers_with_key(socket: WebSocket) -> dict[str, str]:
    """Return the headers of the handshake, with a key from the query if they have none."""
    keys = [socket.query_params[name] for name in _KEY_PARAMETERS if name in socket.query_params]
    return {**({"x-api-key": keys[0]} if keys else {}), **socket.headers}
