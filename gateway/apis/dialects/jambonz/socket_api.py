"""jambonz' WebSocket, ``/jambonz/tts``: text in pieces of whole words; audio is binary s16le."""

from functools import partial
from typing import Final
from uuid import uuid4

from fastapi import WebSocket

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.stream_request import Delivery
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation
from ....web.websocket import CLOSE_NORMAL
from ...shell.speech import SynthesisOptions
from ...shell.speech_server import SocketHandlers, SpeechServer, SpeechSocketApi
from ...shell.transcript_socket import TranscriptConnection
from .http_api import PATH
from .models import (
    JAMBONZ_ERRORS,
    JambonzAudioFormat,
    JambonzClientMessage,
    JambonzConnectMessage,
    JambonzErrorMessage,
    JambonzFlushMessage,
    JambonzKeepAliveMessage,
    JambonzServerMessage,
    JambonzSocketQuery,
    JambonzStopMessage,
    JambonzStreamMessage,
    parse_client_message,
)

JAMBONZ_SOCKET_OPERATION: Final = WebSocketOperation(
    PATH, "jambonz' streamed text; audio is binary.", JambonzClientMessage, JambonzServerMessage
)
_API: Final = "jambonz"  # in the log and the metrics


class JambonzSocketApi(SpeechSocketApi):
    """All jambonz sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self.voices = voices

    def handlers(self) -> SocketHandlers:
        return {PATH: partial(self.serve, self._connection, JAMBONZ_ERRORS.response)}

    def _connection(self, socket: WebSocket) -> "_JambonzConnection":
        grant = self.server.authorize(socket.headers)
        query = JambonzSocketQuery.of(socket.query_params)
        audio = AudioFormat("pcm", query.sample_rate)
        voice = self.voices.resolve(query.voice, grant)
        options = SynthesisOptions(voice, audio, delivery=Delivery(language=query.language))
        request = (_API, uuid4().hex)
        return _JambonzConnection(socket, server=self.server, request=request, options=options, grant=grant)


class _JambonzConnection(TranscriptConnection):
    async def on_open(self) -> None:
        audio = JambonzAudioFormat(sample_rate=self.options.audio.sample_rate)
        await self.send_text(JambonzConnectMessage(data=audio).model_dump_json())

    async def receive(self, data: str | bytes) -> None:
        match parse_client_message(data):
            case JambonzStreamMessage(text=text):
                self.push(text if text[-1:].isspace() else f"{text} ")
            case JambonzFlushMessage():
                self.complete()
            case JambonzStopMessage():
                self.discard()
                await self.close(CLOSE_NORMAL)
            case JambonzKeepAliveMessage():
                pass

    async def report(self, error: Exception, context_id: str | None) -> None:
        message = JambonzErrorMessage(error=JAMBONZ_ERRORS.describe(error).message)
        await self.send_text(message.model_dump_json())
