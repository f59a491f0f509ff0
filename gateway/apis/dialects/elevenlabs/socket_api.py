"""ElevenLabs' WebSockets: one text on ``stream-input``, contexts side by side on ``multi-stream-input``.

    message -> models.ElevenLabsTextMessage -> context.ElevenLabsContext -> its task -> audio and alignment

A context that is closed after a flush is spoken to its end, as the clients wait for its last audio. One that
is closed without a flush, or once more, has been interrupted and is dropped: Pipecat's service and LiveKit's
plugin flush when their text ends, and close a context that the user interrupts. LiveKit's plugin closes none
again, so contexts are rendered at the pace of their playout.

Source: pipecat-ai 1.14.0 (services/elevenlabs: on_turn_context_completed, on_audio_context_interrupted);
livekit-plugins-elevenlabs 1.8.9 (tts.py: SynthesizeStream._run).
"""

import asyncio
from abc import abstractmethod
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
from ....web.websocket import (
    CLOSE_NORMAL,
    CLOSE_TOO_SLOW,
    WebSocketConnection,
    reject_handshake,
)
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SocketHandlers, SpeechServer, SpeechSocketApi
from ...shell.transcripts import PlayoutPace, speak_transcript
from .context import ElevenLabsContext
from .errors import ElevenLabsContextLimitReached, to_elevenlabs_error
from .http_api import PATH, elevenlabs_error_response
from .models import (
    ContextAnswer,
    ElevenLabsSocketQuery,
    ElevenLabsTextMessage,
    SocketAlignment,
    SocketAudioMessage,
    SocketErrorMessage,
    SocketFinalMessage,
    context_of,
    parse_body,
)
from .output_format import parse_output_format
from .request_mapping import make_elevenlabs_options, resolve_elevenlabs_voice

SINGLE_PATH: Final = f"{PATH}/stream-input"
MULTI_PATH: Final = f"{PATH}/multi-stream-input"
_ServerMessage = SocketAudioMessage | SocketFinalMessage | SocketErrorMessage
ELEVENLABS_SOCKET_OPERATIONS: Final = (
    WebSocketOperation(
        SINGLE_PATH, "ElevenLabs' text in pieces; audio in base64.", ElevenLabsTextMessage, _ServerMessage
    ),
    WebSocketOperation(
        MULTI_PATH, "ElevenLabs' contexts; audio comes in base64.", ElevenLabsTextMessage, _ServerMessage
    ),
)
MAX_CONTEXTS: Final = 100  # of a connection
IDLE_S: Final = 300.0  # without a context or a message, after which a connection is closed
_DEFAULT_CONTEXT: Final = "default"  # of messages that name none
_API: Final = "elevenlabs"  # in the log and the metrics


class ElevenLabsSocketApi(SpeechSocketApi):
    """All ElevenLabs sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self.voices = voices

    def handlers(self) -> SocketHandlers:
        return {SINGLE_PATH: self._serve_single, MULTI_PATH: self._serve_multi}

    async def _serve_single(self, socket: WebSocket) -> None:
        await self._serve(_SingleTextConnection, socket)

    async def _serve_multi(self, socket: WebSocket) -> None:
        await self._serve(_ContextsConnection, socket)

    async def _serve(self, kind: "type[_ElevenLabsConnection]", socket: WebSocket) -> None:
        try:
            connection = kind(self, socket)
        except VivavoceError as error:
            await reject_handshake(socket, elevenlabs_error_response(error))
            return
        await socket.accept()
        await self.connections.serve(connection)


class _ElevenLabsConnection(WebSocketConnection):
    """What both sockets have in common; raises the errors of the handshake when it is made."""

    def __init__(self, api: ElevenLabsSocketApi, socket: WebSocket) -> None:
        super().__init__(socket)
        self.request_id = uuid4().hex
        self.contexts: dict[str | None, ElevenLabsContext] = {}
        grant = api.server.authorize(socket.headers)
        self.query = ElevenLabsSocketQuery.of(socket.query_params)
        self._api = api
        self._audio = parse_output_format(self.query.output_format)
        self._voice = resolve_elevenlabs_voice(
            api.voices, api.server.models, socket.path_params["voice_id"], self.query.model_id, grant
        )
        self._loop = asyncio.get_running_loop()
        self._idle_since = self._loop.time()
        self._closes_when_spoken = False

    # Differs between the two

    @abstractmethod
    def key_of(self, message: ElevenLabsTextMessage) -> str | None:
        """Return the id of the message's context."""

    @abstractmethod
    def make_pace(self) -> PlayoutPace | None:
        """Return the pace of a new context."""

    @abstractmethod
    async def end_failed(self, context_id: str | None) -> None:
        """End what an error has been reported of."""

    # Reading

    def idle_deadline(self) -> float | None:
        open_contexts = [context for context in self.contexts.values() if not context.input_ended]
        if open_contexts:
            return min(context.received_at for context in open_contexts) + self.query.inactivity_timeout
        return None if self.contexts else self._idle_since + IDLE_S

    async def on_idle(self) -> None:
        if not self.contexts:
            await self.close(CLOSE_NORMAL)
        limit = self._loop.time() - self.query.inactivity_timeout
        for context in tuple(self.contexts.values()):
            if not context.input_ended and context.received_at <= limit:
                self.end_input(context)

    async def on_grant_ended(self, error: GrantEnded) -> None:
        await self.send_error(error, None)

    async def on_closed(self) -> None:
        for context in self.contexts.values():
            context.cancel()

    async def on_message(self, data: str | bytes) -> None:
        self._idle_since = self._loop.time()
        try:
            await self.receive(parse_body(ElevenLabsTextMessage, data))
        except VivavoceError as error:
            await self.send_error(error, context_of(data))

    async def receive(self, message: ElevenLabsTextMessage) -> None:
        """Take a message; raises the errors of its context."""
        key = self.key_of(message)
        context = self.contexts.get(key)
        if context is None and message.text:
            context = self._open_context(key, message)
        if context is not None and context.is_interrupted_by(message):
            self.drop(context)
            await self._send_final(context.id)
        elif context is not None:
            self._pass_on(context, message)
        if message.close_socket:
            await self.close_when_spoken()

    def end_input(self, context: ElevenLabsContext) -> None:
        """End the text of a context, which is spoken to its end."""
        context.end_input()
        self._speak_if_due(context)

    def _open_context(self, key: str | None, message: ElevenLabsTextMessage) -> ElevenLabsContext:
        if len(self.contexts) >= MAX_CONTEXTS:
            raise ElevenLabsContextLimitReached(
                f"{MAX_CONTEXTS} contexts are open on this connection, which is the limit"
            )
        options = make_elevenlabs_options(
            self._voice, self._audio, message, self.query.language_code, self.query.seed
        )
        context = self.contexts[key] = ElevenLabsContext(
            key,
            options=options,
            grant=self._api.server.authorize_request(self.socket.headers),
            sender=BackpressureSender.from_scope(self.socket.scope),
            has_phrases=self.query.auto_mode,
            has_absolute_times=self.query.sync_alignment,
            pace=self.make_pace(),
        )
        return context

    def _pass_on(self, context: ElevenLabsContext, message: ElevenLabsTextMessage) -> None:
        had_ended = context.input_ended
        try:
            context.receive(message)
        except VivavoceError:
            if not had_ended:  # else what came before is spoken
                self.drop(context)
            raise
        self._speak_if_due(context)

    def drop(self, context: ElevenLabsContext) -> None:
        """Drop everything of a context that has not been sent."""
        context.cancel()
        self.contexts.pop(context.id, None)

    async def close_when_spoken(self) -> None:
        """Close the socket after what there is, which is spoken to its end."""
        self._closes_when_spoken = True
        for context in self.contexts.values():
            self.end_input(context)
        if not self.contexts:
            await self.close(CLOSE_NORMAL)

    # Speaking

    def _speak_if_due(self, context: ElevenLabsContext) -> None:
        if context.is_due:
            context.is_speaking = True
            self.start_speaking(partial(self._speak, context))

    async def _speak(self, context: ElevenLabsContext) -> None:
        transcript = context.next_transcript
        if transcript is not None and not transcript.is_blank:
            send = partial(self._send_chunk, context)
            request = (_API, f"{self.request_id}/{context.id or ''}")
            work = speak_transcript(self._api.server, request, context, transcript, send)
            error = await self.error_of(work, f"context {context.id!r} of {self.request_id}")
            if error is not None and not context.cancelled:
                self.drop(context)
                await self.send_error(error, context.id)
        self._idle_since = self._loop.time()
        if not context.cancelled:
            del self.contexts[context.id]
            await self._send_final(context.id)
        if self._closes_when_spoken and not self.contexts:
            await self.close(CLOSE_NORMAL)
        self.reschedule_idle()

    async def _send_chunk(self, context: ElevenLabsContext, chunk: EncodedChunk, text: str) -> None:
        alignment = context.align(chunk, text)

        async def write(audio: bytes) -> None:
            nonlocal alignment
            sent, alignment = alignment, None  # goes with the first piece
            await self._send_audio(context, audio, sent)

        if chunk.audio:
            await context.sender.send(chunk.audio, context.audio.bytes_per_second, write)
        elif alignment is not None:
            await write(b"")

    # Writing

    async def _send_audio(
        self, context: ElevenLabsContext, audio: bytes, alignment: SocketAlignment | None
    ) -> None:
        if not context.cancelled:
            data = b64encode(audio).decode("ascii")
            message = SocketAudioMessage(
                audio=data,
                alignment=alignment,
                normalizedAlignment=alignment,
                contextId=context.id,
                context_id=context.id,
            )
            await self.send(message)

    async def _send_final(self, context_id: str | None) -> None:
        await self.send(SocketFinalMessage(contextId=context_id, context_id=context_id))

    async def send_error(self, error: Exception, context_id: str | None) -> None:
        """Report an error, and end what it concerns."""
        described = to_elevenlabs_error(error)
        message = SocketErrorMessage(
            message=described.message,
            error=described.status,
            contextId=context_id,
            context_id=context_id,
        )
        await self.send(message)
        await self.end_failed(context_id)

    async def send(self, message: ContextAnswer) -> None:
        """Write a message."""
        await self.send_text(message.encode())


class _SingleTextConnection(_ElevenLabsConnection):
    """``stream-input``: one text, ended by an empty one or by silence; the socket closes after it."""

    def key_of(self, message: ElevenLabsTextMessage) -> str | None:
        return None

    def make_pace(self) -> PlayoutPace | None:
        return None

    async def receive(self, message: ElevenLabsTextMessage) -> None:
        await super().receive(message)
        if message.text == "":
            await self.close_when_spoken()

    async def end_failed(self, context_id: str | None) -> None:
        await self.close(CLOSE_TOO_SLOW)  # 1008 is also "policy violation"


class _ContextsConnection(_ElevenLabsConnection):
    """``multi-stream-input``: an error ends at most one context."""

    def key_of(self, message: ElevenLabsTextMessage) -> str | None:
        return message.context_id or _DEFAULT_CONTEXT

    def make_pace(self) -> PlayoutPace | None:
        return PlayoutPace()

    async def end_failed(self, context_id: str | None) -> None:
        if context_id is not None and context_id not in self.contexts:
            await self._send_final(context_id)  # Pipecat's service waits for it
