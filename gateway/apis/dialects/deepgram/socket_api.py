"""Deepgram's WebSocket, ``/v1/speak``: texts one after another, each ended by a flush; audio is binary."""

from typing import Final
from uuid import uuid4

from fastapi import WebSocket

from .....tts_engine.errors import VivavoceError
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation
from ....web.websocket import reject_handshake
from ...shell.speech import SynthesisOptions
from ...shell.speech_server import SocketHandlers, SpeechServer, SpeechSocketApi
from ...shell.transcript_socket import TranscriptConnection
from ...shell.transcripts import Transcript
from .errors import InvalidDeepgramRequest, to_deepgram_error
from .flux_connection import FluxConnection
from .flux_models import FluxClientMessage, FluxServerMessage
from .http_api import PATHS, deepgram_error_response
from .models import (
    CLIENT_MESSAGE,
    DeepgramAnswer,
    DeepgramClearedMessage,
    DeepgramClearMessage,
    DeepgramClientMessage,
    DeepgramCloseMessage,
    DeepgramErrorMessage,
    DeepgramFlushedMessage,
    DeepgramFlushMessage,
    DeepgramMetadataMessage,
    DeepgramQuery,
    DeepgramServerMessage,
    DeepgramSpeakMessage,
    DeepgramWarningMessage,
    parse_message,
)
from .output_format import make_socket_format
from .request_mapping import make_deepgram_options, resolve_deepgram_voice

DEEPGRAM_SOCKET_OPERATIONS: Final = (
    WebSocketOperation(
        PATHS[0], "Deepgram's texts; audio is binary.", DeepgramClientMessage, DeepgramServerMessage
    ),
    WebSocketOperation(PATHS[1], "Deepgram's turns; audio is binary.", FluxClientMessage, FluxServerMessage),
)
_API: Final = "deepgram"  # in the log and the metrics


class DeepgramSocketApi(SpeechSocketApi):
    """All Deepgram sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self.voices = voices

    def handlers(self) -> SocketHandlers:
        return {PATHS[0]: self._serve, PATHS[1]: self._serve_flux}

    async def _serve(self, socket: WebSocket) -> None:
        await self._serve_connection(_DeepgramConnection, socket)

    async def _serve_flux(self, socket: WebSocket) -> None:
        await self._serve_connection(FluxConnection, socket)

    async def _serve_connection(
        self, kind: "type[_DeepgramConnection | FluxConnection]", socket: WebSocket
    ) -> None:
        request_id = str(uuid4())
        try:
            grant = self.server.authorize(socket.headers)
            options = self._options(socket, grant)
        except VivavoceError as error:
            await reject_handshake(socket, deepgram_error_response(error, request_id))
            return
        request = (_API, request_id)
        connection = kind(socket, server=self.server, request=request, options=options, grant=grant)
        await socket.accept(headers=[(b"dg-request-id", request_id.encode())])
        await self.connections.serve(connection)

    def _options(self, socket: WebSocket, grant: Grant) -> SynthesisOptions:
        query = DeepgramQuery.of(socket.query_params)
        voice = resolve_deepgram_voice(self.voices, self.server.models, query.model, grant)
        return make_deepgram_options(query, voice, make_socket_format(query))


class _DeepgramConnection(TranscriptConnection):
    _flushes = 0
    _clears = 0

    async def on_open(self) -> None:
        voice = self.options.voice or ""
        request_id = self._request[1]
        await self._send(
            DeepgramMetadataMessage(
                request_id=request_id, model_name=voice, model_version="1", model_uuid=request_id
            )
        )

    async def receive(self, data: str | bytes) -> None:
        match parse_message(CLIENT_MESSAGE, data):
            case DeepgramSpeakMessage(text=text):
                self.push(text)
            case DeepgramFlushMessage():
                self.complete(self._flushes + 1)
                self._flushes += 1
            case DeepgramClearMessage():
                self.discard()
                self._clears += 1
                await self._send(DeepgramClearedMessage(sequence_id=self._clears - 1))
            case DeepgramCloseMessage():
                self.end_input()

    async def on_spoken(self, transcript: Transcript) -> None:
        if transcript.flush_id is not None:
            await self._send(DeepgramFlushedMessage(sequence_id=transcript.flush_id - 1))

    async def on_error(self, error: Exception) -> None:
        described = to_deepgram_error(error)
        if isinstance(error, InvalidDeepgramRequest):
            message: DeepgramAnswer = DeepgramWarningMessage(
                code=described.code,
                description=described.message,
                warn_code=described.code,
                warn_msg=described.message,
            )
        else:
            message = DeepgramErrorMessage(code=described.code, description=described.message)
        await self._send(message)

    async def _send(self, message: DeepgramAnswer) -> None:
        await self.send_text(message.encode())
