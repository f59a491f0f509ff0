"""jambonz' HTTP speech, ``POST /jambonz/tts``: MP3 while it is made."""

from collections.abc import Iterable
from typing import Any, Final

from .....adapters.audio.encoders import AudioFormat
from .....adapters.ssml.document import parse_ssml_in_slices, plain_document
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....sliced_inputs import run_in_slices
from ....web.openapi.operations import json_body, operation, speech_errors
from ...shell.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...shell.request_fields import read_json, validated
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import SpeechJob
from ...shell.speech_response import audio_response
from .models import JAMBONZ_ERRORS, MESSAGE, JambonzErrorBody, JambonzSpeechRequest

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
        voice = self.host.voices.resolve(speech.voice, grant)
        options = SynthesisOptions(voice, _AUDIO, delivery=Delivery(language=speech.language))
        return SpeechJob(document.text, options, document=document)
