"""jambonz' HTTP speech, ``POST /jambonz/tts``: MP3 while it is made."""

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from .....adapters.audio.encoders import AudioFormat
from .....adapters.ssml.document import parse_ssml_in_slices, plain_document
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....sliced_inputs import run_in_slices
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BINARY_CONTENT,
    BODY_TOO_LONG,
    SPEECH_ERRORS,
    error_responses,
    json_body,
    operation,
)
from ....web.request_body import read_body
from ....web.unmatched import ErrorFormat
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse
from ...shell.speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses
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

    def __init__(self, host: JobServer) -> None:
        self.host = host
        self.active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the route, which checks keys itself."""
        router = APIRouter()
        router.add_api_route(PATH, self._speak, methods=["POST"], **_SPEAK)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.host.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    async def _speak(self, request: Request) -> Response:
        return _JambonzSpeechResponse(self.host, self.active_responses, request, _API)


class _JambonzSpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        body = await read_body(self.request, MAX_BODY_BYTES, JambonzBodyTooLong)
        speech = parse_speech_request(body)
        document = plain_document(speech.text)
        if speech.type == "ssml":
            document = await run_in_slices(parse_ssml_in_slices(speech.text))
        voice = self.host.voices.resolve(speech.voice, grant)
        options = SynthesisOptions(voice, _AUDIO, delivery=Delivery(language=speech.language))
        return SpeechJob(document.text, options, document=document)

    def error_response(self, error: Exception) -> Response:
        return jambonz_error_response(error)


def jambonz_error_response(error: Exception) -> JSONResponse:
    """Return the answer to an error."""
    described = to_jambonz_error(error)
    body = JambonzErrorBody(error=described.message)
    return JSONResponse(body.model_dump(), described.status, described.headers)


JAMBONZ_ERROR_FORMATS: Final = (ErrorFormat("/jambonz", lambda _, message: JambonzErrorBody(error=message)),)
