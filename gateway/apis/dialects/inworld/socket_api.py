"""Inworld's WebSocket, ``/tts/v1/voice:streamBidirectional``: contexts side by side on one connection.

    message -> models.InworldClientMessage -> context.InworldContext -> its task -> audioChunk, flushCompleted

A context that is closed after a flush is spoken to its end, as clients wait for its last audio. One that is
closed without a flush, or once more, has been interrupted and is dropped: Pipecat's service flushes a context
and closes it when its text ends, and closes every context that still has audio when the user interrupts.

Source: pipecat-ai 1.14.0 (services/inworld/tts.py: on_turn_context_completed, on_audio_context_interrupted);
livekit-plugins-inworld 1.8.9 (tts.py: SynthesizeStream._run).
"""

import asyncio
from base64 import b64encode
from functools import partial
from typing import Final
from uuid import uuid4

from fastapi import WebSocket

from .....tts_engine.errors import VivavoceError
from ....access.errors import GrantEnded
from ....voice_registry import VoiceRegistry
from ....web.backpressure import BackpressureSender
from ....web.openapi.operations import WebSocketOperation
from ....web.websocket import CLOSE_NORMAL, WebSocketConnection, reject_handshake
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SocketHandlers, SpeechServer, SpeechSocketApi
from ...shell.transcripts import Transcript, speak_transcript
from .audio_config import streamed_encoding
from .context import InworldContext
from .errors import (
    InvalidInworldRequest,
    InworldContextClosed,
    InworldContextExists,
    InworldContextLimitReached,
    InworldContextNotFound,
    to_inworld_error,
)
from .http_api import inworld_error_response
from .models import (
    InworldClientMessage,
    InworldContextConfig,
    InworldContextCreated,
    InworldEvent,
    InworldResult,
    InworldServerMessage,
    InworldSpeech,
    InworldStatus,
    context_of,
    parse_message,
)
from .request_mapping import make_inworld_options, resolve_inworld_voice

PATH: Final = "/tts/v1/voice:streamBidirectional"
INWORLD_SOCKET_OPERATION: Final = WebSocketOperation(
    PATH, "Inworld's contexts; audio comes in base64.", InworldClientMessage, InworldServerMessage
)
MAX_CONTEXTS: Final = 100  # of a connection; the service allows 5
IDLE_S: Final = 600.0  # without a message, after which a context, or a connection without one, is closed
_API: Final = "inworld"  # in the log and the metrics
_KEY_PARAMETER: Final = "authorization"  # of browsers, which cannot set headers


class InworldSocketApi(SpeechSocketApi):
    """All Inworld sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self.voices = voices

    def handlers(self) -> SocketHandlers:
        return {PATH: self._serve}

    async def _serve(self, socket: WebSocket) -> None:
        connection = _InworldSocketConnection(self, socket)
        try:
            self.server.authorize(connection.headers)
        except VivavoceError as error:
            await reject_handshake(socket, inworld_error_response(error))
            return
        await socket.accept()
        await self.connections.serve(connection)


class _InworldSocketConnection(WebSocketConnection):
    def __init__(self, api: InworldSocketApi, socket: WebSocket) -> None:
        super().__init__(socket)
        self.request_id = uuid4().hex
        self.headers = _headers_with_key(socket)
        self._api = api
        self._loop = asyncio.get_running_loop()
        self._contexts: dict[str, InworldContext] = {}
        self._idle_since = self._loop.time()

    # Reading

    def idle_deadline(self) -> float | None:
        open_contexts = [context for context in self._contexts.values() if not context.input_ended]
        if open_contexts:
            return min(context.received_at for context in open_contexts) + IDLE_S
        return None if self._contexts else self._idle_since + IDLE_S

    async def on_idle(self) -> None:
        if not self._contexts:
            await self.close(CLOSE_NORMAL)
        limit = self._loop.time() - IDLE_S
        for context in tuple(self._contexts.values()):
            if not context.input_ended and context.received_at <= limit:
                context.end_input()

    async def on_grant_ended(self, error: GrantEnded) -> None:
        await self._send_error(error, None)

    async def on_closed(self) -> None:
        for context in self._contexts.values():
            context.cancel()

    async def on_message(self, data: str | bytes) -> None:
        self._idle_since = self._loop.time()
        try:
            message = parse_message(InworldClientMessage, data)
            if message.create is not None:
                await self._create(message.context_id or uuid4().hex, message.create)
            else:
                await self._pass_on(self._context_of(message), message)
        except VivavoceError as error:
            await self._send_error(error, context_of(data))

    async def _create(self, context_id: str, config: InworldContextConfig) -> None:
        if context_id in self._contexts:
            raise InworldContextExists(f"Context {context_id} already exists")
        try:
            self._contexts[context_id] = self._make_context(context_id, config)
        except VivavoceError as error:
            await self._send_error(error, context_id)
            await self._send_closed(context_id)
            return
        created = InworldContextCreated(voiceId=config.voice_id, modelId=config.model_id)
        await self._send(InworldResult(contextId=context_id, contextCreated=created))

    def _make_context(self, context_id: str, config: InworldContextConfig) -> InworldContext:
        if len(self._contexts) >= MAX_CONTEXTS:
            raise InworldContextLimitReached(
                f"Maximum number of contexts per connection reached: {MAX_CONTEXTS}"
            )
        server = self._api.server
        grant = server.authorize_request(self.headers)
        voice = resolve_inworld_voice(self._api.voices, server.models, config, grant)
        encoding = streamed_encoding(config.audio_config)
        return InworldContext(
            context_id,
            config,
            options=make_inworld_options(config, voice, encoding.audio),
            encoding=encoding,
            grant=grant,
            sender=BackpressureSender.from_scope(self.socket.scope),
            on_ready=self._start_speaking,
        )

    def _context_of(self, message: InworldClientMessage) -> InworldContext:
        if message.context_id is not None:
            context = self._contexts.get(message.context_id)
            if context is None:
                raise InworldContextNotFound(f"Context {message.context_id} not found")
            return context
        open_contexts = [context for context in self._contexts.values() if not context.input_ended]
        if not open_contexts:
            raise InvalidInworldRequest("There is no open context on this connection")
        if len(open_contexts) > 1:
            raise InvalidInworldRequest(f"context_id is required: {len(open_contexts)} contexts are open")
        return open_contexts[0]

    async def _pass_on(self, context: InworldContext, message: InworldClientMessage) -> None:
        if message.send_text is not None:
            try:
                context.receive_text(message.send_text)
            except InworldContextClosed:
                raise  # what came before is spoken
            except VivavoceError as error:
                await self._drop(context, error)
        elif message.flush_context is not None:
            context.flush_generation()
        elif message.close_context is not None and not context.is_interrupted_by_close:
            context.end_input()
        else:
            await self._drop(context)

    async def _drop(self, context: InworldContext, error: Exception | None = None) -> None:
        """Drop what has not been sent of a context, and report the error and the end."""
        context.cancel()
        del self._contexts[context.id]
        if error is not None:
            await self._send_error(error, context.id)
        await self._send_closed(context.id)

    # Speaking

    def _start_speaking(self, context: InworldContext) -> None:
        context.is_speaking = True
        self.start_speaking(partial(self._speak, context))

    async def _speak(self, context: InworldContext) -> None:
        """Speak the transcripts that there are; after the last of the context, report its end."""
        while (transcript := context.next_transcript) is not None:
            if not transcript.is_blank:
                await self._render(context, transcript)
            if context.cancelled:
                break
            if transcript.flush_id is not None or not transcript.is_blank:
                context.end_generation()
                await self._send(InworldResult(contextId=context.id, flushCompleted=InworldEvent()))
            context.transcripts.popleft()
        context.is_speaking = False
        if context.input_ended and not context.cancelled:
            del self._contexts[context.id]
            await self._send_closed(context.id)
        self._idle_since = self._loop.time()
        self.reschedule_idle()

    async def _render(self, context: InworldContext, transcript: Transcript) -> None:
        """Speak a transcript; its error ends the context."""
        request = (_API, f"{self.request_id}/{context.id}")
        send = partial(self._send_chunk, context)
        work = speak_transcript(self._api.server, request, context, transcript, send)
        error = await self.error_of(work, f"context {context.id!r} of {self.request_id}")
        if error is not None and not context.cancelled:
            await self._drop(context, error)

    async def _send_chunk(self, context: InworldContext, chunk: EncodedChunk, text: str) -> None:
        times = context.times_of(chunk, text)

        async def write(audio: bytes) -> None:
            nonlocal times
            sent, times = times, None  # with the first piece
            data = b64encode(context.encoding.wrap(audio)).decode("ascii")
            speech = InworldSpeech(audioContent=data, timestampInfo=sent)
            if not context.cancelled:
                await self._send(InworldResult(contextId=context.id, audioChunk=speech))

        if chunk.audio:
            await context.sender.send(chunk.audio, context.encoding.audio.bytes_per_second, write)
        elif times is not None:
            await write(b"")

    # Writing

    async def _send(self, result: InworldResult) -> None:
        await self.send_text(InworldServerMessage(result=result).encode())

    async def _send_closed(self, context_id: str) -> None:
        await self._send(InworldResult(contextId=context_id, contextClosed=InworldEvent()))

    async def _send_error(self, error: Exception, context_id: str | None) -> None:
        status = InworldStatus.of(to_inworld_error(error))
        await self._send(InworldResult(contextId=context_id, status=status))


def _headers_with_key(socket: WebSocket) -> dict[str, str]:
    """Return the headers of the handshake, with the key of the query if they have none."""
    key = socket.query_params.get(_KEY_PARAMETER)
    return {**({} if key is None else {_KEY_PARAMETER: key}), **socket.headers}
