"""Deepgram's WebSocket, ``/v1/speak``: texts one after another, each ended by a flush; audio is binary."""

from functools import partial
from typing import Final
from uuid import uuid4

from fastapi import WebSocket
from starlette.responses import Response

from .....adapters.transcript_queue import Transcript
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation
from ...kits.error_table import InvalidRequest
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...kits.transcript_socket import SpokenTexts, TranscriptConnection
from ...shell.speech import SynthesisOptions
from ...shell.speech_server import SpeechServer
from .errors import DEEPGRAM_ERRORS
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
    make_deepgram_options,
    parse_deepgram_message,
    resolve_deepgram_voice,
)
from .output_format import make_socket_format

DEEPGRAM_SOCKET_OPERATIONS: Final = (
    WebSocketOperation(
        PATHS[0],
        "Deepgram's texts; audio is binary.",
        DeepgramClientMessage,
        DeepgramServerMessage,
        example=({"type": "Speak", "text": "Hello, this is vivavoce."}, {"type": "Flush"}),
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
        return {
            PATHS[0]: partial(self._serve, _DeepgramConnection),
            PATHS[1]: partial(self._serve, FluxConnection),
        }

    async def _serve(self, kind: "type[_DeepgramConnection | FluxConnection]", socket: WebSocket) -> None:
        request_id = str(uuid4())

        def connection(socket: WebSocket) -> "_DeepgramConnection | FluxConnection":
            grant = self.server.authorize(socket.headers)
            options, request = self._options(socket, grant), (_API, request_id)
            return kind(socket, server=self.server, request=request, options=options, grant=grant)

        def refuse(error: Exception) -> Response:
            return deepgram_error_response(error, request_id)

        await self.serve(connection, refuse, socket, [(b"dg-request-id", request_id.encode())])

    def _options(self, socket: WebSocket, grant: Grant) -> SynthesisOptions:
        query = DeepgramQuery.of(socket.query_params)
        voice = resolve_deepgram_voice(self.voices, self.server.models, query.model, grant)
        return make_deepgram_options(query, voice, make_socket_format(query))


class _DeepgramConnection(TranscriptConnection):
    _flushes = 0
    _clears = 0

    async def on_open(self) -> None:
        voice = self.options.voice or ""
        await self._send(
            DeepgramMetadataMessage(
                request_id=self.request_id, model_name=voice, model_version="1", model_uuid=self.request_id
            )
        )

    async def receive(self, data: str | bytes) -> None:
        match parse_deepgram_message(CLIENT_MESSAGE, data):
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

    async def on_spoken(self, context: SpokenTexts, transcript: Transcript[SynthesisOptions]) -> None:
        if transcript.flush_id is not None:
            await self._send(DeepgramFlushedMessage(sequence_id=transcript.flush_id - 1))

    async def report(self, error: Exception, context_id: str | None) -> None:
        described = DEEPGRAM_ERRORS.describe(error)
        if isinstance(error, InvalidRequest):
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
