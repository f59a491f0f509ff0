"""Coqui TTS's ``/api/tts``: a text in a query, a form or headers, answered with one WAV file.

Source: idiap/coqui-ai-TTS@0298eb4 (TTS/server/server.py, docs/source/server.md).
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from .....adapters.audio.encoders import AudioFormat
from .....adapters.audio.format_kind import AudioLayout
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....web.openapi.operations import operation
from ...dialect import Dialect, OpenDialect
from ...kits.error_table import SENTENCES, ErrorSentence
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import form_body, query, speech_errors
from ...kits.request_fields import read_fields, validated
from ...kits.speech_response import audio_response
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer

PATH: Final = "/api/tts"
_WAV: Final = AudioFormat("wav", layout=AudioLayout.FILE)
_HEADERS: Final = ("text", "speaker-id", "language-id")


class CoquiRequest(BaseModel):
    """What is spoken. Unknown fields are ignored; an empty one equals an absent one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: Annotated[str, Field(examples=["Good morning."])] = ""
    speaker_id: Annotated[str, Field(max_length=256, description="Name of a voice.")] = ""
    language_id: Annotated[str, Field(max_length=35, description="Of the text.")] = ""


_ANSWERS: Final = (
    audio_response("A WAV file.", _WAV.content_type),
    speech_errors(ErrorSentence, {400: "A field is invalid.", 404: "No such voice."}),
)
_SPEAK_BY_URL: Final = operation(
    "coquiSpeechByUrl",
    "Speak a text: Coqui TTS's server.",
    *_ANSWERS,
    other_parameters=(
        query("text", "Text to speak.", example="Good morning."),
        query("speaker_id", "Name of a voice."),
        query("language_id", "Of the text."),
    ),
)
_SPEAK: Final = operation(
    "coquiSpeech", "Speak a text of a form: Coqui TTS's server.", *_ANSWERS, body=form_body(CoquiRequest)
)


class CoquiHttpApi(SpeechHttpApi):
    """The endpoint of one server; belongs to its event loop."""

    name = "coqui"
    errors = SENTENCES
    error_formats = SENTENCES.formats(PATH)

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield f"GET {PATH}", self.speaking(_CoquiSpeechResponse), _SPEAK_BY_URL
        yield f"POST {PATH}", self.speaking(_CoquiSpeechResponse), _SPEAK


class _CoquiSpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        headers = self.request.headers
        fields: dict[str, Any] = dict(self.request.query_params)
        if self.request.method == "POST" and headers.get("content-type"):
            fields |= await read_fields(self.request)
        fields |= {name.replace("-", "_"): headers[name] for name in _HEADERS if name in headers}
        speech = validated(CoquiRequest.model_validate, fields)
        options = SynthesisOptions(
            self.server.voices.resolve(speech.speaker_id, grant),
            _WAV,
            delivery=Delivery(language=speech.language_id or None),
        )
        return SpeechJob(self.server.check_text(speech.text), options, is_whole=True)


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(CoquiHttpApi(server))


COQUI: Final = Dialect("coqui", _open, title="Coqui TTS")
