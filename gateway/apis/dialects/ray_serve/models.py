"""Requests and answers of the CosyVoice Ray Serve API.

    tts             text, voice_type
    zero_shot       text, reference_audio, reference_text
    cross_lingual   text, reference_audio
    instruct        text, instruction, voice_type

Bodies are JSON or forms; in a form, numbers and booleans are text. ``format``, ``sample_rate``, ``model``,
``seed``, the fields of sampling and ``batch`` are this server's additions.

Source: the document "CosyVoice Ray Serve API", sections "API Endpoints in Detail" and "Future Improvements".
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from .....adapters.audio.encoders import SAMPLE_RATES, AudioFormat
from .....adapters.audio.format_kind import AudioLayout
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.stream_request import Delivery, DeliveryMode
from ...kits.request_fields import CodecName, SpokenText, UploadedRecording
from ...kits.sampling_fields import SamplingFields

MAX_BATCH_ITEMS: Final = 32
DEFAULT_VOICE: Final = "qwen"  # of voice_type; the server's default voice, unless a voice has that name
_Name = Annotated[str, Field(max_length=256)]


class CosyVoiceSpeechRequest(SamplingFields):
    """Fields of every endpoint; unknown ones are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    text: Annotated[SpokenText, Field(examples=["Good morning."])]
    speed: Annotated[float, Field(ge=0.25, le=4.0, description="Factor of the usual speaking rate.")] = 1.0
    stream: Annotated[bool, Field(description="Whether the audio is sent while it is made.")] = False
    format: CodecName = "mp3"
    sample_rate: Annotated[int, Field(description="Hz.", json_schema_extra={"enum": [*SAMPLE_RATES]})] = (
        SAMPLE_RATE
    )
    model: Annotated[_Name | None, Field(description="As 'model' of /v1/audio/speech.")] = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1, description="Equal seeds give equal speech.")] = 0

    @property
    def audio(self) -> AudioFormat:
        """The encoding of the answer; raises BadRequest."""
        layout = AudioLayout.STREAM if self.stream else AudioLayout.FILE
        return AudioFormat(self.format, self.sample_rate, layout=layout)

    @property
    def delivery(self) -> Delivery:
        """How the text is spoken."""
        return Delivery(**self.sampling)

    @property
    def voice_name(self) -> str | None:
        """The voice that speaks; None if a recording does."""
        return None

    @property
    def transcript(self) -> str:
        """Words of the recording, "" if they are not known."""
        return ""


class VoiceTypeRequest(CosyVoiceSpeechRequest):
    """A text for a named voice: ``tts``."""

    voice_type: Annotated[_Name, Field(description="Name of a voice.")] = DEFAULT_VOICE

    @property
    def voice_name(self) -> str | None:
        return self.voice_type


class InstructionRequest(VoiceTypeRequest):
    """A text for a named voice, and how to speak it: ``instruct``."""

    instruction: Annotated[
        str, Field(min_length=1, max_length=4_096, description="Manner of speaking.", examples=["Softly."])
    ]

    @property
    def delivery(self) -> Delivery:
        return Delivery(instruction=self.instruction, **self.sampling)


class ReferenceAudioRequest(CosyVoiceSpeechRequest):
    """A text for the voice of a recording: ``cross_lingual``."""

    reference_audio: Annotated[
        UploadedRecording | str | None,
        WithJsonSchema(
            {
                "type": "string",
                "description": "A file of the form, a URL, a data URL, or a name in the server's folder.",
            }
        ),
    ] = None
    reference_audio_id: Annotated[_Name | None, Field(description="Instead: the id of a voice.")] = None

    @model_validator(mode="after")
    def _require_reference(self) -> Self:
        if self.reference_audio is None and self.reference_audio_id is None:
            raise ValueError("reference_audio or reference_audio_id is required")
        return self

    @property
    def delivery(self) -> Delivery:
        return Delivery(mode=self._mode, **self.sampling)

    @property
    def _mode(self) -> DeliveryMode:
        return DeliveryMode.CROSS_LINGUAL

    @property
    def voice_name(self) -> str | None:
        return self.reference_audio_id


class ReferenceTextRequest(ReferenceAudioRequest):
    """A text for the voice of a recording whose words are known: ``zero_shot``."""

    reference_text: Annotated[str, Field(max_length=4_096, description="Words of the recording.")] = ""

    @model_validator(mode="after")
    def _require_text(self) -> Self:
        if self.reference_audio_id is None and not self.reference_text:
            raise ValueError("reference_text is required")
        return self

    @property
    def _mode(self) -> DeliveryMode:
        return DeliveryMode.ZERO_SHOT

    @property
    def transcript(self) -> str:
        return self.reference_text


REQUESTS: Final[dict[str, type[CosyVoiceSpeechRequest]]] = {
    "tts": VoiceTypeRequest,
    "zero_shot": ReferenceTextRequest,
    "cross_lingual": ReferenceAudioRequest,
    "instruct": InstructionRequest,
}


class CosyVoiceBatch(BaseModel):
    """Several requests in one; each is spoken, or fails, by itself."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    items: Annotated[
        list[dict[str, Any]],
        Field(
            min_length=1,
            max_length=MAX_BATCH_ITEMS,
            description="Each has the fields of its endpoint, and 'mode': tts, zero_shot, cross_lingual or "
            "instruct; tts by default.",
            examples=[[{"text": "Good morning."}, {"text": "Good night."}]],
        ),
    ]
    format: Annotated[CodecName | None, Field(description="Of the items that have none.")] = None
    sample_rate: Annotated[int | None, Field(description="Of the items that have none, Hz.")] = None


class CosyVoiceApiError(BaseModel):
    """An error, and the field at fault, if it is one."""

    error: str
    field: str | None


class CosyVoiceBatchResult(BaseModel):
    """The result of an item; audio is in base64."""

    index: int
    status: Annotated[int, Field(description="As of a request by itself.")]
    audio: str | None = None
    content_type: str | None = None
    error: str | None = None
    field: str | None = None


class CosyVoiceBatchAnswer(BaseModel):
    """The results, in the order of the items."""

    results: list[CosyVoiceBatchResult]


class CosyVoiceHealth(BaseModel):
    """The state of the server."""

    status: Literal["healthy"] = "healthy"
