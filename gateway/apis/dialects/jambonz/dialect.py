"""The custom speech API of jambonz: ``/jambonz/tts``, a socket, and speech over HTTP.

The socket takes text in pieces of whole words; its audio is binary s16le.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from uuid import uuid4

from fastapi import WebSocket

from .....adapters.audio.encoders import AudioFormat
from .....adapters.ssml.document import plain_document
from .....adapters.ssml.input import parse_ssml_in_slices
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....sliced_inputs import run_in_slices
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation, json_body, operation
from ....web.websocket import CLOSE_NORMAL
from ...dialect import Dialect, OpenDialect
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import speech_errors
from ...kits.request_fields import read_json, validated
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...kits.speech_response import audio_response
from ...kits.transcript_socket import TranscriptConnection
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer
from .models import (
    JAMBONZ_ERRORS,
    MESSAGE,
    JambonzAudioFormat,
    JambonzClientMessage,
    JambonzConnectMessage,
    JambonzErrorBody,
    JambonzErrorMessage,
    JambonzFlushMessage,
    JambonzKeepAliveMessage,
    JambonzServerMessage,
    JambonzSocketQuery,
    JambonzSpeechRequest,
    JambonzStopMessage,
    JambonzStreamMessage,
    parse_client_message,
)

PATH: Final = "/jambonz/tts"
_AUDIO: Final = AudioFormat("mp3", SAMPLE_RATE)
_SPEAK: Final = operation(
    "jambonzSpeech",
    "Speak a text: jambonz' request to a custom vendor.",
    audio_response("MP3, while it is made.", _AUDIO.content_type),
    speech_errors(JambonzErrorBody, {400: "A field is invalid.", 404: "No such voice."}),
    body=json_body(JambonzSpeechRequest),
)


class JambonzHttpApi(SpeechHttpApi):
    """The endpoint of one server; belongs to its event loop."""

    name = "jambonz"
    errors = JAMBONZ_ERRORS
    error_formats = JAMBONZ_ERRORS.formats("/jambonz")

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield f"POST {PATH}", self.speaking(_JambonzSpeechResponse), _SPEAK


class _JambonzSpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        body = await read_json(self.request)
        speech = validated(JambonzSpeechRequest.model_validate, body, MESSAGE)
        document = plain_document(speech.text)
        if speech.type == "ssml":
            document = await run_in_slices(parse_ssml_in_slices(speech.text))
        voice = self.server.voices.resolve(speech.voice, grant)
        options = SynthesisOptions(voice, _AUDIO, delivery=Delivery(language=speech.language))
        return SpeechJob(document.text, options, document=document)


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


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(JambonzHttpApi(server), JambonzSocketApi(server, server.voices))


JAMBONZ: Final = Dialect("jambonz", _open, (JAMBONZ_SOCKET_OPERATION,), title="jambonz")
