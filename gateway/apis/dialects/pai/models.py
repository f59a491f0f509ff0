"""Requests and answers of PAI's CosyVoice 2.0 API.

``volume`` is a factor, unlike DashScope's. Every event of a stream has ``error``, ``metrics`` and
``output.audio.data``, because the published client reads them without a check. ``seed`` and the fields of
sampling are this server's additions.

Source: Alibaba Cloud PAI, "Deploy a CosyVoice-2.0 WebUI" and its API calls; the client on that page.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, RootModel, WithJsonSchema

from .....adapters.audio.encoders import SAMPLE_RATES
from ...kits.request_fields import LOWER_CASE, SpokenText, UploadedRecording
from ...kits.sampling_fields import SamplingFields

MAX_LIST: Final = 1_000
_Name = Annotated[str, Field(max_length=256)]


def _read_bit_rate(value: object) -> object:
    """Return bits/s of "192k" or of a number; numbers up to 512 are kbit/s."""
    text = str(value).lower()
    digits = text.removesuffix("k")
    if isinstance(value, bool) or not digits.isdecimal() or len(digits) > 7:
        raise ValueError("must be a bit rate such as '192k'")
    is_kbps = text.endswith("k") or int(digits) <= 512
    return int(digits) * (1_000 if is_kbps else 1)


def _check_sample_rate(value: int) -> int:
    if value not in SAMPLE_RATES:
        raise ValueError(f"must be one of {', '.join(map(str, SAMPLE_RATES))}")
    return value


class PaiParameters(SamplingFields):
    """How a text is spoken."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    mode: Literal["fast_replication", "cross_lingual_replication", "natural_language_replication"] = (
        "fast_replication"
    )
    reference_audio_id: Annotated[
        _Name | None, Field(description="Of a recording, or the name of a voice; None: the default voice.")
    ] = None
    instruct: Annotated[str, Field(max_length=4_096, description="Of natural_language_replication.")] = ""
    sample_rate: Annotated[int, AfterValidator(_check_sample_rate), Field(description="Hz.")] = 24_000
    bit_rate: Annotated[
        int,
        BeforeValidator(_read_bit_rate),
        WithJsonSchema(
            {"type": ["integer", "string"], "description": "Of MP3; more than it allows is its most."}
        ),
    ] = 192_000
    volume: Annotated[float, Field(ge=0, le=10, description="Factor of the amplitude.")] = 1.0
    speed: Annotated[float, Field(ge=0.5, le=2.0, description="Factor of the usual speaking rate.")] = 1.0
    output_format: Annotated[Literal["wav", "mp3", "pcm"], LOWER_CASE] = "wav"
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


class PaiSpeechInput(PaiParameters):
    """A text and how it is spoken."""

    text: Annotated[SpokenText, Field(examples=["Good morning."])]


class PaiSpeechRequest(BaseModel):
    """A text to speak; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: _Name = "CosyVoice2-0.5B"
    input: PaiSpeechInput
    stream: bool = True


class PaiAudio(BaseModel):
    """Audio in base64."""

    id: str
    data: str


class PaiOutput(BaseModel):
    """Audio, and whether it is the last."""

    finish_reason: Literal["stop"] | None
    audio: PaiAudio


class PaiMetrics(BaseModel):
    """Times of a piece of speech, in seconds."""

    speech_len: Annotated[float, Field(description="Of the piece.")]
    server_cost_time: Annotated[float, Field(description="Since the request.")]
    generate_time: Annotated[float, Field(description="Since the piece before.")]


class PaiSpeechAnswer(BaseModel):
    """The whole speech."""

    output: PaiOutput
    request_id: str
    usage: dict[str, int] | None


class PaiSpeechEvent(PaiSpeechAnswer):
    """Server-sent event: a piece of the speech; the last one has no audio."""

    error: dict[str, str] | None
    metrics: PaiMetrics


class PaiErrorBody(BaseModel):
    """An error."""

    code: str
    message: str
    request_id: str


class ReferenceAudio(BaseModel):
    """A recording that is a voice."""

    id: str
    filename: str
    bytes: Annotated[int, Field(description="Of what is stored of it.")]
    created_at: Annotated[int, Field(description="Unix seconds.")]
    text: str


class ReferenceAudioList(RootModel[list[ReferenceAudio]]):
    """The recordings that a key may use."""


class ReferenceAudioDeleted(BaseModel):
    """A recording that has been deleted."""

    code: Literal["OK"] = "OK"
    message: str
    data: dict[str, Any]


class ReferenceAudioForm(BaseModel):
    """A recording and its words."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    file: Annotated[UploadedRecording, WithJsonSchema({"type": "string", "format": "binary"})]
    text: Annotated[
        str,
        Field(
            min_length=1, max_length=4_096, description="Words of the recording.", examples=["Hello there."]
        ),
    ]


class ReferenceAudioQuery(BaseModel):
    """What a list of recordings has."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIST)] = 100
    order: Literal["asc", "desc"] = "desc"
