"""Vapi's request to a custom voice, ``POST /vapi/tts``: raw samples while they are made.

Source: docs.vapi.ai/customization/custom-voices/custom-tts, and its schema ServerMessageVoiceRequest,
November 2026.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from .....adapters.audio.encoders import AudioFormat
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

PATH: Final = "/vapi/tts"
_CONTENT_TYPE: Final = "audio/raw"


class VapiVoiceRequest(BaseModel):
    """What is spoken; the call's metadata are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["voice-request"]
    text: Annotated[str, Field(examples=["Good morning."])]
    sample_rate: Annotated[int, Field(alias="sampleRate", ge=8_000, le=48_000, description="Hz.")] = 24_000
    voice_id: Annotated[str, Field(alias="voiceId", max_length=256, description="Name of a voice.")] = ""


class VapiMessage(BaseModel):
    """Body of the request."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    message: VapiVoiceRequest


_SPEAK: Final = operation(
    "vapiSpeech",
    "Speak a text: Vapi's request to a custom voice.",
    audio_response("s16le mono at the rate of the request, while it is made.", _CONTENT_TYPE),
    speech_errors(ErrorSentence, {400: "A field is invalid.", 404: "No such voice."}),
    body=json_body(VapiMessage),
)


class VapiHttpApi(SpeechHttpApi):
    """The endpoint of one server; belongs to its event loop."""

    name = "vapi"
    errors = SENTENCES
    error_formats = SENTENCES.formats("/vapi")

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield f"POST {PATH}", self.speaking(_VapiSpeechResponse), _SPEAK


class _VapiSpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        speech = validated(VapiMessage.model_validate, await read_object(self.request)).message
        voice = self.server.voices.resolve(speech.voice_id, grant)
        options = SynthesisOptions(voice, AudioFormat("pcm", speech.sample_rate))
        return SpeechJob(self.server.check_text(speech.text), options, content_type=_CONTENT_TYPE)


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(VapiHttpApi(server))


VAPI: Final = Dialect("vapi", _open, title="Vapi")
