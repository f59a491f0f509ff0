"""The ``POST /synthesize`` of Piper's HTTP server: a JSON object, answered with one WAV file.

Source: OHF-Voice/piper1-gpl@146d0a2 (src/piper/http_server.py).
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from .....adapters.audio.encoders import AudioFormat
from .....adapters.audio.format_kind import AudioLayout
from ....access.access_control import Grant
from ....web.openapi.operations import json_body, operation
from ...dialect import Dialect, OpenDialect
from ...kits.error_table import SENTENCES, ErrorSentence
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import speech_errors
from ...kits.request_fields import read_object, validated
from ...kits.speech_response import audio_response
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer

PATH: Final = "/synthesize"
_WAV: Final = AudioFormat("wav", layout=AudioLayout.FILE)


class PiperServerRequest(BaseModel):
    """What is spoken. Unknown fields, and the noise of Piper's networks, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: Annotated[str, Field(examples=["Good morning."])]
    voice: Annotated[str, Field(max_length=256)] = ""
    speaker: Annotated[str, Field(max_length=256, description="Of a voice that has several.")] = ""
    length_scale: Annotated[float, Field(ge=0.25, le=4, description="1 / speed.")] = 1.0


_SPEAK: Final = operation(
    "piperServerSpeech",
    "Speak a text: Piper's HTTP server.",
    audio_response("A WAV file.", _WAV.content_type),
    speech_errors(ErrorSentence, {400: "A field is invalid.", 404: "No such voice."}),
    body=json_body(PiperServerRequest),
)


class PiperServerHttpApi(SpeechHttpApi):
    """The endpoint of one server; belongs to its event loop."""

    name = "piper_server"
    errors = SENTENCES
    error_formats = SENTENCES.formats(PATH)

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield f"POST {PATH}", self.speaking(_PiperServerResponse), _SPEAK


class _PiperServerResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        speech = validated(PiperServerRequest.model_validate, await read_object(self.request))
        voice = "/".join(filter(None, (speech.voice, speech.speaker)))
        options = SynthesisOptions(
            self.server.voices.resolve(voice, grant), _WAV, speed=1 / speech.length_scale
        )
        return SpeechJob(self.server.check_text(speech.text), options, is_whole=True)


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(PiperServerHttpApi(server))


PIPER_SERVER: Final = Dialect("piper_server", _open, title="Piper's HTTP server")
