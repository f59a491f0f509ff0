"""LocalAI's ``POST /tts``, below ``/localai``: a JSON object, answered with a sound file or as it is made.

Source: localai.io/docs/models/capabilities/audio/text-to-audio, November 2026.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from .....adapters.audio.encoders import AudioFormat
from .....adapters.audio.format_kind import AudioLayout
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import UnknownVoice
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....web.openapi.operations import json_body, operation
from ...dialect import Dialect, OpenDialect
from ...kits.error_table import SENTENCES, ErrorSentence
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import AUDIO_CONTENT_TYPES, speech_errors
from ...kits.request_fields import CodecName, read_object, validated
from ...kits.speech_response import audio_response
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer

PATH: Final = "/localai/tts"


class LocalAIRequest(BaseModel):
    """What is spoken. Unknown fields, and ``backend``, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    input: Annotated[str, Field(examples=["Good morning."])]
    model: Annotated[str, Field(max_length=256, description="May name a voice.")] = ""
    voice: Annotated[str, Field(max_length=256, description="Name of a voice.")] = ""
    language: Annotated[str, Field(max_length=35, description="Of the text.")] = ""
    response_format: CodecName = "wav"
    sample_rate: Annotated[int, Field(description="Hz.")] = SAMPLE_RATE
    stream: Annotated[bool, Field(description="Send the sound while it is made.")] = False


_SPEAK: Final = operation(
    "localaiSpeech",
    "Speak a text: LocalAI.",
    audio_response("A sound file.", *AUDIO_CONTENT_TYPES),
    speech_errors(ErrorSentence, {400: "A field is invalid.", 404: "No such voice."}),
    body=json_body(LocalAIRequest),
)


class LocalAIHttpApi(SpeechHttpApi):
    """The endpoint of one server; belongs to its event loop."""

    name = "localai"
    errors = SENTENCES
    error_formats = SENTENCES.formats("/localai")

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield f"POST {PATH}", self.speaking(_LocalAISpeechResponse), _SPEAK


class _LocalAISpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        speech = validated(LocalAIRequest.model_validate, await read_object(self.request))
        layout = AudioLayout.STREAM if speech.stream else AudioLayout.FILE
        options = SynthesisOptions(
            self.server.voices.resolve(speech.voice, grant, self._voice_of(speech.model, grant)),
            AudioFormat(speech.response_format, speech.sample_rate, layout=layout),
            delivery=Delivery(language=speech.language or None),
        )
        return SpeechJob(self.server.check_text(speech.input, "input"), options, is_whole=not speech.stream)

    def _voice_of(self, model: str, grant: Grant) -> str | None:
        """The voice that a model's name stands for, or that has it; None: the default one."""
        named = self.server.models.default_voice(model or None)
        if named is not None:
            return named
        try:
            return self.server.voices.resolve(model, grant)
        except UnknownVoice:
            return None


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(LocalAIHttpApi(server))


LOCALAI: Final = Dialect("localai", _open, title="LocalAI")
