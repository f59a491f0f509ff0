"""ElevenLabs' WebSockets: one text on ``stream-input``, contexts side by side on ``multi-stream-input``.

    message -> models.ElevenLabsTextMessage -> context.ElevenLabsContext -> its task -> audio and alignment

A context that is closed after a flush is spoken to its end, as the clients wait for its last audio. One that
is closed without a flush, or once more, has been interrupted and is dropped: Pipecat's service and LiveKit's
plugin flush when their text ends, and close a context that the user interrupts. LiveKit's plugin closes none
again, so contexts are rendered at the pace of their playout.

Source: pipecat-ai 1.14.0 (services/elevenlabs: on_turn_context_completed, on_audio_context_interrupted);
livekit-plugins-elevenlabs 1.8.9 (tts.py: SynthesizeStream._run).
"""

from abc import abstractmethod
from base64 import b64encode
from functools import partial
from typing import Final
from uuid import uuid4

from fastapi import WebSocket

from .....adapters.transcript_queue import Transcript
from .....tts_engine.errors import VivavoceError
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation
from ....web.websocket import CLOSE_NORMAL
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...kits.speech_socket import MAX_CONTEXTS, PlayoutPace, SpeechSocket
from ...kits.websocket_connection import CLOSE_TOO_SLOW
from ...shell.speech import EncodedChunk, SynthesisOptions
from ...shell.speech_server import SpeechServer
from .context import ElevenLabsContext
from .errors import ELEVENLABS_ERRORS, ElevenLabsContextLimitReached
from .http_api import PATH
from .models import (
    ElevenLabsSocketQuery,
    ElevenLabsTextMessage,
    SocketAlignment,
    SocketAudioMessage,
    SocketErrorMessage,
    SocketFinalMessage,
    context_of,
    parse_body,
)
from .request_mapping import ELEVENLABS_NAMES, make_elevenlabs_options, parse_output_format

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
IDLE_S: Final = 300.0  # without a context or a message, after which a connection is closed
_DEFAULT_CONTEXT: Final = "default"  # of messages that name none
_API: Final = "elevenlabs"  # in the log and the metrics


class ElevenLabsSocketApi(SpeechSocketApi):
    """All ElevenLabs sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self.voices = voices

    def handlers(self) -> SocketHandlers:
        kinds = {SINGLE_PATH: _SingleTextConnection, MULTI_PATH: _ContextsConnection}
        return {
            path: partial(self.serve, partial(kind, self), ELEVENLABS_ERRORS.response)
            for path, kind in kinds.items()
        }


class _ElevenLabsConnection(SpeechSocket[ElevenLabsContext]):
    """What both sockets have in common; raises the errors of the handshake when it is made."""

    def __init__(self, api: ElevenLabsSocketApi, socket: WebSocket) -> None:
        super().__init__(socket, api.server, (_API, uuid4().hex), IDLE_S)
        grant = api.server.authorize(socket.headers)
        self._query = ElevenLabsSocketQuery.of(socket.query_params)
        self._audio = parse_output_format(self._query.output_format)
        voice_id, models = socket.path_params["voice_id"], api.server.models
        self._voice = ELEVENLABS_NAMES.resolve(api.voices, models, voice_id, self._query.model_id, grant)
        self._closes_when_spoken = False

    # Differs between the two

    @abstractmethod
    def key_of(self, message: ElevenLabsTextMessage) -> str | None:
        """Return the id of the message's context."""

    def closes_after(self, message: ElevenLabsTextMessage) -> bool:
        """Whether the socket closes after what there is."""
        return bool(message.close_socket)

    @abstractmethod
    def make_pace(self) -> PlayoutPace | None:
        """Return the pace of a new context."""

    @abstractmethod
    async def end_failed(self, context_id: str | None) -> None:
        """End what an error has been reported of."""

    # Reading

    def context_of(self, data: str | bytes) -> str | None:
        return context_of(data)

    async def receive(self, data: str | bytes) -> None:
        message = parse_body(ElevenLabsTextMessage, data)
        key = self.key_of(message)
        context = self.contexts.get(key)
        if context is None and message.text:
            context = self._open_context(key, message)
        if context is not None and context.is_interrupted_by(message):
            self.drop(context)
            await self.on_ended(context)
        elif context is not None:
            self._pass_on(context, message)
        if self.closes_after(message):
            await self._close_when_spoken()

    def _open_context(self, key: str | None, message: ElevenLabsTextMessage) -> ElevenLabsContext:
        if self.is_full:
            raise ElevenLabsContextLimitReached(
                f"{MAX_CONTEXTS} contexts are open on this connection, which is the limit"
            )
        query = self._query
        options = make_elevenlabs_options(self._voice, self._audio, message, query.language_code, query.seed)
        grant = self.server.authorize_request(self.socket.headers)
        context = ElevenLabsContext(key, self.socket, grant, options, query, self.make_pace())
        self.contexts[key] = context
        return context

    def _pass_on(self, context: ElevenLabsContext, message: ElevenLabsTextMessage) -> None:
        had_ended = context.input_ended
        try:
            context.receive(message)
        except VivavoceError:
            if not had_ended:  # else what came before is spoken
                self.drop(context)
            raise
        self.speak_if_due(context)

    async def _close_when_spoken(self) -> None:
        """Close the socket after what there is, which is spoken to its end."""
        self._closes_when_spoken = True
        for context in self.contexts.values():
            context.end_input()
            self.speak_if_due(context)
        if not self.contexts:
            await self.close(CLOSE_NORMAL)

    # Speaking

    async def speak(self, context: ElevenLabsContext) -> None:
        await super().speak(context)
        if self._closes_when_spoken and not self.contexts:
            await self.close(CLOSE_NORMAL)

    async def send_chunk(
        self,
        context: ElevenLabsContext,
        transcript: Transcript[SynthesisOptions],
        chunk: EncodedChunk,
        text: str,
    ) -> None:
        alignment = context.align(chunk, text)
        with_first_piece = iter([alignment])

        def encode(audio: bytes) -> str:
            return _audio_message(context, audio, next(with_first_piece, None))

        if chunk.audio:
            await self.send_audio(context, chunk.audio, self._audio.bytes_per_second, encode)
        elif alignment is not None and not context.is_dropped:
            await self.send_text(encode(b""))

    async def on_ended(self, context: ElevenLabsContext) -> None:
        await self.send_final(context.id)

    # Writing

    async def send_final(self, context_id: str | None) -> None:
        """Report the end of a context."""
        await self.send_text(SocketFinalMessage(contextId=context_id, context_id=context_id).encode())

    async def report(self, error: Exception, context_id: str | None) -> None:
        described = ELEVENLABS_ERRORS.describe(error)
        message = SocketErrorMessage(
            message=described.message,
            error=described.code,
            contextId=context_id,
            context_id=context_id,
        )
        await self.send_text(message.encode())
        await self.end_failed(context_id)


def _audio_message(context: ElevenLabsContext, audio: bytes, alignment: SocketAlignment | None) -> str:
    data = b64encode(audio).decode("ascii")
    message = SocketAudioMessage(
        audio=data,
        alignment=alignment,
        normalizedAlignment=alignment,
        contextId=context.id,
        context_id=context.id,
    )
    return message.encode()


class _SingleTextConnection(_ElevenLabsConnection):
    """``stream-input``: one text, ended by an empty one or by silence; the socket closes after it."""

    def key_of(self, message: ElevenLabsTextMessage) -> str | None:
        return None

    def make_pace(self) -> PlayoutPace | None:
        return None

    def closes_after(self, message: ElevenLabsTextMessage) -> bool:
        return message.text == "" or super().closes_after(message)

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
            await self.send_final(context_id)  # Pipecat's service waits for it
