"""jambonz' HTTP speech, ``POST /jambonz/tts``: MP3 while it is made."""

from typing import Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from ....adapters.audio.encoders import AudioFormat
from ....adapters.ssml.document import parse_ssml, plain_document
from ....tts_engine.backends.base import Delivery
from ....tts_engine.chunk import SAMPLE_RATE
from ...access.access_control import Grant
from ...voice_registry import VoiceRegistry
from ...web.openapi.operations import (
    ACCESS_ERRORS,
    BINARY_CONTENT,
    BODY_TOO_LONG,
    SPEECH_ERRORS,
    error_responses,
    json_body,
    operation,
)
from ...web.request_body import with_bounded_body
from ...web.request_log import RequestRecord
from ...web.streamed_body import cancel_on_disconnect
from ...web.unmatched import ErrorFormat
from ..speech import SynthesisOptions
from ..speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses, SpeechResponse
from ..speech_server import SpeechServer
from .models import (
    MAX_BODY_BYTES,
    JambonzBodyTooLong,
    JambonzErrorBody,
    JambonzSpeechRequest,
    parse_speech_request,
    to_jambonz_error,
)

PATH: Final = "/jambonz/tts"
_API: Final = "jambonz"  # in the log and the metrics
_AUDIO: Final = AudioFormat("mp3", SAMPLE_RATE)
_SPEAK: Final = operation(
    "jambonzSpeech",
    "Speak a text: jambonz' request to a custom vendor.",
    {
        200: {
            "description": "MP3, while it is made.",
            "headers": UNREAD_HEADER_SCHEMA,
            "content": {_AUDIO.content_type: BINARY_CONTENT},
        }
    },
    error_responses(
        JambonzErrorBody,
        ACCESS_ERRORS,
        {400: "A field is invalid.", 404: "No such voice."},
        BODY_TOO_LONG,
        SPEECH_ERRORS,
    ),
    body=json_body(JambonzSpeechRequest),
)


class JambonzHttpApi:
    """The endpoint of one server; belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        self.server = server
        self.voices = voices
        self.active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the route, which checks keys itself."""
        router = APIRouter()
        router.add_api_route(PATH, self._speak, methods=["POST"], **_SPEAK)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    async def _speak(self, request: Request) -> Response:
        return _JambonzSpeechResponse(self, request)


class _JambonzSpeechResponse(SpeechResponse):
    def __init__(self, api: JambonzHttpApi, request: Request) -> None:
        request_id = uuid4().hex
        headers = {"x-request-id": request_id, "content-type": _AUDIO.content_type}
        super().__init__(api.active_responses, request, request_id, headers)
        self.api = api

    async def respond(self) -> Response | None:
        server = self.api.server
        grant = server.authorize_request(self.request.headers)
        too_long = JambonzBodyTooLong(f"the body is longer than {MAX_BODY_BYTES} bytes")
        body = await with_bounded_body(self.request, MAX_BODY_BYTES, too_long).body()
        speech = parse_speech_request(body)
        with server.log.track(_API, grant, self.request_id) as record, grant.stream():
            return await cancel_on_disconnect(self.request.receive, self._speak(speech, grant, record))

    def error_response(self, error: Exception) -> Response:
        return jambonz_error_response(error)

    async def _speak(self, speech: JambonzSpeechRequest, grant: Grant, record: RequestRecord) -> None:
        server = self.api.server
        record.voice = self.api.voices.resolve(speech.voice, grant)
        options = SynthesisOptions(record.voice, _AUDIO, delivery=Delivery(language=speech.language))
        document = parse_ssml(speech.text) if speech.type == "ssml" else plain_document(speech.text)
        record.count_text(len(document.text))
        self.body_stream.bytes_per_s = _AUDIO.bytes_per_second
        async with server.open_stream(options, grant) as utterance:
            grant.charge_characters(len(document.text))  # here: a refused request is free
            utterance.push_document(document)
            utterance.end_input()
            self.report_unread(utterance.unread_characters)
            async for chunk in utterance:
                if chunk.audio:  # else the encoder withholds it
                    await self.body_stream.write(chunk.audio)
                record.count_audio((chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE)
        await self.body_stream.end()


def jambonz_error_response(error: Exception) -> JSONResponse:
    """Return the answer to an error."""
    described = to_jambonz_error(error)
    body = JambonzErrorBody(error=described.message)
    return JSONResponse(body.model_dump(), described.status, described.headers)


JAMBONZ_ERROR_FORMATS: Final = (ErrorFormat("/jambonz", lambda _, message: JambonzErrorBody(error=message)),)
