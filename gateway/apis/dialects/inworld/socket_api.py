"""Inworld's WebSocket, ``/tts/v1/voice:streamBidirectional``: contexts side by side on one connection.

    message -> models.InworldClientMessage -> context.InworldContext -> its task -> audioChunk, flushCompleted

A context that is closed after a flush is spoken to its end, as clients wait for its last audio. One that is
closed without a flush, or once more, has been interrupted and is dropped: Pipecat's service flushes a context
and closes it when its text ends, and closes every context that still has audio when the user interrupts.

Source: pipecat-ai 1.14.0 (services/inworld/tts.py: on_turn_context_completed, on_audio_context_interrupted);
livekit-plugins-inworld 1.8.9 (tts.py: SynthesizeStream._run).
"""

from base64 import b64encode
from functools import partial
from typing import Final
from uuid import uuid4

from fastapi import WebSocket

from .....adapters.transcript_queue import Transcript
from .....tts_engine.errors import VivavoceError
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation
from ...kits.error_table import InvalidRequest
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...kits.speech_socket import MAX_CONTEXTS, SpeechSocket
from ...shell.speech import EncodedChunk, SynthesisOptions
from ...shell.speech_server import SpeechServer
from .audio_config import streamed_encoding
from .context import MAX_SILENCE_S, InworldContext
from .errors import (
    INWORLD_ERRORS,
    InworldContextClosed,
    InworldContextExists,
    InworldContextLimitReached,
    InworldContextNotFound,
)
from .http_api import inworld_status
from .models import (
    INWORLD_NAMES,
    InworldClientMessage,
    InworldContextConfig,
    InworldContextCreated,
    InworldEvent,
    InworldResult,
    InworldServerMessage,
    InworldSpeech,
    context_of,
    make_inworld_options,
    parse_inworld_message,
)

PATH: Final = "/tts/v1/voice:streamBidirectional"
INWORLD_SOCKET_OPERATION: Final = WebSocketOperation(
    PATH, "Inworld's contexts; audio comes in base64.", InworldClientMessage, InworldServerMessage
)
_API: Final = "inworld"  # in the log and the metrics
_KEY_PARAMETER: Final = "authorization"  # of browsers, which cannot set headers


class InworldSocketApi(SpeechSocketApi):
    """All Inworld sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self.voices = voices

    def handlers(self) -> SocketHandlers:
        return {PATH: partial(self.serve, self._connection, INWORLD_ERRORS.response)}

    def _connection(self, socket: WebSocket) -> "_InworldConnection":
        headers = _headers_with_key(socket)
        self.server.authorize(headers)
        return _InworldConnection(self, socket, headers)


class _InworldConnection(SpeechSocket[InworldContext]):
    def __init__(self, api: InworldSocketApi, socket: WebSocket, headers: dict[str, str]) -> None:
        super().__init__(socket, api.server, (_API, uuid4().hex), MAX_SILENCE_S)
        self._headers = headers
        self._voices = api.voices

    # Reading

    def context_of(self, data: str | bytes) -> str | None:
        return context_of(data)

    async def receive(self, data: str | bytes) -> None:
        message = parse_inworld_message(InworldClientMessage, data)
        if message.create is not None:
            await self._create(message.context_id or uuid4().hex, message.create)
        else:
            await self._pass_on(self._addressed(message), message)

    async def _create(self, context_id: str, config: InworldContextConfig) -> None:
        if context_id in self.contexts:
            raise InworldContextExists(f"Context {context_id} already exists")
        try:
            self.contexts[context_id] = self._make_context(context_id, config)
        except VivavoceError as error:
            await self.report(error, context_id)
            await self._send_closed(context_id)
            return
        created = InworldContextCreated(voiceId=config.voice_id, modelId=config.model_id)
        await self._send(InworldResult(contextId=context_id, contextCreated=created))

    def _make_context(self, context_id: str, config: InworldContextConfig) -> InworldContext:
        if self.is_full:
            raise InworldContextLimitReached(
                f"Maximum number of contexts per connection reached: {MAX_CONTEXTS}"
            )
        grant = self.server.authorize_request(self._headers)
        voice = INWORLD_NAMES.resolve(
            self._voices, self.server.models, config.voice_id, config.model_id, grant
        )
        encoding = streamed_encoding(config.audio_config)
        options = make_inworld_options(config, voice, encoding.audio)
        return InworldContext(context_id, config, self.socket, grant, options, encoding)

    def _addressed(self, message: InworldClientMessage) -> InworldContext:
        if message.context_id is not None:
            context = self.contexts.get(message.context_id)
            if context is None:
                raise InworldContextNotFound(f"Context {message.context_id} not found")
            return context
        open_contexts = [context for context in self.contexts.values() if not context.input_ended]
        if not open_contexts:
            raise InvalidRequest("There is no open context on this connection")
        if len(open_contexts) > 1:
            raise InvalidRequest(f"context_id is required: {len(open_contexts)} contexts are open")
        return open_contexts[0]

    async def _pass_on(self, context: InworldContext, message: InworldClientMessage) -> None:
        context.mark_received()
        if message.send_text is not None:
            try:
                context.receive_text(message.send_text)
            except InworldContextClosed:
                raise  # what came before is spoken
            except VivavoceError as error:
                await self._end_early(context, error)
        elif message.flush_context is not None:
            context.flush_generation()
        elif message.close_context is not None and not context.is_interrupted_by_close:
            context.end_input()
        else:
            await self._end_early(context)
        self.speak_if_due(context)

    async def _end_early(self, context: InworldContext, error: Exception | None = None) -> None:
        """Drop what has not been sent of a context, and report the error and the end."""
        self.drop(context)
        if error is not None:
            await self.report(error, context.id)
        await self._send_closed(context.id)

    # Speaking

    async def send_chunk(
        self,
        context: InworldContext,
        transcript: Transcript[SynthesisOptions],
        chunk: EncodedChunk,
        text: str,
    ) -> None:
        times = context.times_of(chunk, text)
        with_first_piece = iter([times])

        def encode(audio: bytes) -> str:
            data = b64encode(context.encoding.wrap(audio)).decode("ascii")
            speech = InworldSpeech(audioContent=data, timestampInfo=next(with_first_piece, None))
            return _encode(InworldResult(contextId=context.id, audioChunk=speech))

        if chunk.audio:
            await self.send_audio(context, chunk.audio, context.encoding.audio.bytes_per_second, encode)
        elif times is not None and not context.is_dropped:
            await self.send_text(encode(b""))

    async def on_spoken(self, context: InworldContext, transcript: Transcript[SynthesisOptions]) -> None:
        if transcript.flush_id is not None or not transcript.is_blank:
            context.end_generation()
            await self._send(InworldResult(contextId=context.id, flushCompleted=InworldEvent()))

    async def on_failed(
        self, context: InworldContext, transcript: Transcript[SynthesisOptions], error: Exception
    ) -> None:
        await self._end_early(context, error)

    async def on_ended(self, context: InworldContext) -> None:
        await self._send_closed(context.id)

    # Writing

    async def _send(self, result: InworldResult) -> None:
        await self.send_text(_encode(result))

    async def _send_closed(self, context_id: str) -> None:
        await self._send(InworldResult(contextId=context_id, contextClosed=InworldEvent()))

    async def report(self, error: Exception, context_id: str | None) -> None:
        status = inworld_status(error)
        await self._send(InworldResult(contextId=context_id, status=status))


def _encode(result: InworldResult) -> str:
    return InworldServerMessage(result=result).encode()


def _headers_with_key(socket: WebSocket) -> dict[str, str]:
    """Return the headers of the handshake, with the key of the query if they have none."""
    key = socket.query_params.get(_KEY_PARAMETER)
    return {**({} if key is None else {_KEY_PARAMETER: key}), **socket.headers}
