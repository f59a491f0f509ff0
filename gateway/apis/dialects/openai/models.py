"""Requests, answers and events of OpenAI's speech API as pydantic models.

Requests have strict types: a number in quotes is no number. ``null`` equals an absent field. Unknown fields
are ignored, because OpenAI's clients send fields that are newer than a server. Some fields come from other
servers (vLLM-Omni, Kokoro-FastAPI): ``sample_rate``, ``seed``, ``language``, ``volume_multiplier``,
``ref_audio``, ``ref_text``, ``initial_codec_chunk_frames`` and those of sampling. ``request_parsing`` turns a
violated limit into OpenAI's error.

Source: platform.openai.com/docs/api-reference/audio; openai-python 1.109 and 3.54 (resources/audio,
types/audio/voice.py); openai-node 7.57; livekit-plugins-openai 1.8.9 (tts.py reads the events); vLLM-Omni at
0131cb55 (entrypoints/openai/protocol/audio.py) for the fields that OpenAI does not have; Open WebUI reads
``id`` and ``name`` of voices.
"""

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError
from starlette.datastructures import UploadFile

from .....adapters.audio.encoders import SAMPLE_RATES, AudioFormat, AudioLayout
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import BadRequest
from ...shell.format_names import CodecName
from ...shell.sampling_fields import SamplingFields
from .pronunciations import Pronunciations

# Listed by /v1/models. Other versions of these are known too: see ``OPENAI_MODEL_NAMES``.
OPENAI_MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")
MAX_BODY_BYTES: Final = 16 * 2**20  # a minute of reference recording in base64, and its transcript
MAX_NAME_CHARACTERS: Final = 256  # names are repeated in error messages and logs
MAX_INSTRUCTION_CHARACTERS: Final = 4_096  # OpenAI's limit
_MAX_SEED: Final = 2**63 - 1  # the engine's seeds are non-negative 64-bit integers


def _allow_null(schema: dict[str, Any]) -> None:
    """Let the JSON schema accept null in every field that may be absent."""
    for name, field in schema.get("properties", {}).items():
        if name in schema.get("required", ()):
            continue
        if "enum" in field:
            field["enum"] = [*field["enum"], None]
        if "anyOf" in field:
            field["anyOf"] = [one for one in field["anyOf"] if one != {"type": "null"}] + [{"type": "null"}]
        elif isinstance(field.get("type"), str):
            field["type"] = [field["type"], "null"]


class OpenAIRequest(BaseModel):
    """Base class of request bodies and of client messages."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", json_schema_extra=_allow_null)

    # Before the fields, so that a default also replaces null.
    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if value is not None}
        return values


class CustomVoice(BaseModel):
    """A voice named by its id, as OpenAI's clients name enrolled voices."""

    id: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]


def _unwrap_custom_voice(voice: object) -> object:
    if not isinstance(voice, dict):
        return voice
    if voice.get("id") is None:
        raise PydanticCustomError("voice_without_id", "is an object without an id")
    return voice["id"]


def _check_sample_rate(sample_rate: int) -> int:
    try:
        AudioFormat("pcm", sample_rate)
    except BadRequest as error:
        raise PydanticCustomError("invalid_value", "{problem}", {"problem": str(error)}) from None
    return sample_rate


# Not a field's limit, because it is a setting of the server.
def _check_input_length(text: str, info: ValidationInfo) -> str:
    """Apply the server's limit, which is the validation context's ``max_text_characters``."""
    max_length = (info.context or {}).get("max_text_characters", len(text))
    if len(text) > max_length:
        raise PydanticKnownError("string_too_long", {"max_length": max_length})
    return text


Name = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
VoiceName = Annotated[
    Name | None, BeforeValidator(_unwrap_custom_voice, json_schema_input_type=Name | CustomVoice | None)
]


class OpenAISpeechSettings(SamplingFields, OpenAIRequest):
    """Settings that a speech request and the native stream's ``session.config`` share."""

    model: Annotated[
        Name | None,
        Field(
            description="Any name speaks with the loaded model. An alias of the settings and the name of a "
            "voice choose the voice that is the default of the request.",
            examples=["tts-1"],
        ),
    ] = None
    voice: Annotated[
        VoiceName,
        Field(
            validation_alias=AliasChoices("voice", "speaker"),  # vLLM-Omni's clients send "speaker"
            description="Id or name of a voice in any case, or one of OpenAI's names; '' is the default "
            "voice. 'speaker' is accepted as well.",
            examples=["alloy"],
        ),
    ] = None
    response_format: Annotated[CodecName, Field(description="Encoding of the audio.")] = "mp3"
    sample_rate: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="Hz.", json_schema_extra={"enum": [*SAMPLE_RATES]}),
        AfterValidator(_check_sample_rate),
    ] = SAMPLE_RATE
    speed: Annotated[float, Field(ge=0.25, le=4.0, description="Factor of the usual speaking rate.")] = 1.0
    volume_multiplier: Annotated[float, Field(ge=0.0, le=10.0, description="Factor of the amplitude.")] = 1.0
    seed: Annotated[
        int,
        Field(ge=-_MAX_SEED - 1, le=_MAX_SEED, description="Equal seeds give equal speech."),
        AfterValidator(lambda seed: seed & _MAX_SEED),  # OpenAI allows negative seeds
    ] = 0
    instructions: Annotated[
        str,
        Field(
            max_length=MAX_INSTRUCTION_CHARACTERS,
            description="Manner of speaking, for models that follow instructions.",
        ),
    ] = ""
    language: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS, description="BCP 47 tag.")] = ""
    pronunciations: Pronunciations = {}
    initial_codec_chunk_frames: Annotated[
        int, Field(ge=0, le=1_000, description="Speech ids of the first piece; 0 leaves them to the voice.")
    ] = 0
    ref_audio: Annotated[
        str | None,
        Field(
            min_length=0,  # without any limit, pydantic does not look for lone surrogates
            description="URL or data URL of a recording; the text is spoken with a voice made of it, which "
            "is not kept. Needs the scope 'enrol'.",
        ),
    ] = None
    ref_text: Annotated[
        str, Field(max_length=MAX_INSTRUCTION_CHARACTERS, description="Transcript of the recording.")
    ] = ""

    @property
    def audio(self) -> AudioFormat:
        """The encoding of the answer's audio."""
        return AudioFormat(self.response_format, self.sample_rate)


class _SpeechInput(OpenAIRequest):
    input: Annotated[
        str,
        Field(
            min_length=1,
            description="Text to speak. The server's setting limits its length: 4096 characters by default.",
            examples=["Good morning."],
        ),
        AfterValidator(_check_input_length),
    ]
    stream_format: Annotated[
        Literal["audio", "sse"],
        Field(description="'audio' streams the audio itself, 'sse' server-sent events with it in base64."),
    ] = "audio"
    stream: Annotated[
        bool,
        Field(
            description="false answers with one complete file after the last word: with Content-Length, and "
            "with the length in the header of wav, flac and mp3. Without effect on 'sse'.",
        ),
    ] = True


# The last base class has the first fields: `input` is validated, and documented, before the settings.
class CreateSpeechRequest(OpenAISpeechSettings, _SpeechInput):
    """A text to speak. Unknown fields are ignored; null equals an absent field."""

    @property
    def is_whole_file(self) -> bool:
        """Whether the answer is one complete file."""
        return not self.stream and self.stream_format == "audio"

    @property
    def audio(self) -> AudioFormat:
        """The encoding of the answer's audio."""
        return replace(super().audio, layout=AudioLayout.FILE) if self.is_whole_file else super().audio


def _require_file(value: object) -> object:
    if not isinstance(value, UploadFile):
        raise PydanticCustomError("file_missing", "is required, a file")
    return value


def _require_text(value: object) -> object:
    if isinstance(value, UploadFile):
        raise PydanticCustomError("file_for_text", "is a file; text is needed")
    return value


def _check_voice_type(voice_type: str) -> str:
    if voice_type != "audio_sample":
        problem = "voices are made of recordings only; 'type' is audio_sample"
        raise PydanticCustomError("unsupported_type", problem)
    return voice_type


_FormText = Annotated[str, BeforeValidator(_require_text)]


class CreateVoiceForm(BaseModel):
    """A recording to make a voice of. Texts are stripped; an empty one equals an absent one."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    audio_sample: Annotated[
        UploadFile,
        BeforeValidator(_require_file),
        WithJsonSchema(
            {"type": "string", "format": "binary", "description": "A sound file, or several for XTTS."}
        ),
    ]
    type: Annotated[
        _FormText,
        AfterValidator(_check_voice_type),
        WithJsonSchema({"type": "string", "const": "audio_sample"}),
    ] = "audio_sample"
    name: Annotated[_FormText, Field(min_length=1, examples=["anna"])]
    ref_text: Annotated[_FormText, Field(description="Transcript of the recording.")] = ""
    language: _FormText = ""
    consent: Annotated[
        _FormText,
        Field(
            min_length=1,
            description="The speaker's statement of consent, or the id of a recording of it.",
            examples=["I, Anna, allow this server to speak with my voice."],
        ),
    ]

    @model_validator(mode="before")
    @classmethod
    def _strip_texts(cls, values: dict[str, Any]) -> dict[str, Any]:
        fields = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
        # An absent file is passed on as None, so that it gets the same error as a text in its place.
        return {"audio_sample": None} | {name: value for name, value in fields.items() if value != ""}


class OpenAIAnswer(BaseModel):
    """Base class of answers and of server-sent events."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class OpenAIErrorDetail(OpenAIAnswer):
    """The error itself."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIErrorBody(OpenAIAnswer):
    """An error, as OpenAI's clients parse it."""

    error: OpenAIErrorDetail


class OpenAIModel(OpenAIAnswer):
    """A name that ``model`` may have."""

    id: str
    object: Literal["model"] = "model"
    created: Annotated[int, Field(description="Unix seconds.")]
    owned_by: str = "vivavoce"


class OpenAIModelList(OpenAIAnswer):
    """The names that ``model`` may have."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class OpenAIVoice(BaseModel):
    """A voice; the fields from ``object`` on are those of enrolled voices only, and absent from others."""

    id: str
    name: str
    language: str | None = None
    description: str | None = None
    object: Literal["audio.voice"] | None = None
    type: Literal["audio_sample"] | None = None
    created_at: Annotated[int | None, Field(description="Unix seconds.")] = None


class UploadedVoice(BaseModel):
    """An enrolled voice in vLLM-Omni's fields; ``consent`` and ``ref_text`` are for its owner only."""

    id: str
    name: str
    created_at: Annotated[int, Field(description="Unix seconds.")]
    consent: str | None = None
    ref_text: str | None = None


class OpenAIVoiceList(OpenAIAnswer):
    """The voices of a key: OpenAI's list, and vLLM-Omni's of the enrolled ones.

    ``voices`` has ids alone if the request's ``legacy`` says so.
    """

    object: Literal["list"] = "list"
    voices: list[OpenAIVoice] | list[str]
    uploaded_voices: list[UploadedVoice]


class OpenAICreatedVoice(OpenAIVoice):
    """A new voice: OpenAI's fields, and vLLM-Omni's in ``voice``."""

    success: Literal[True] = True
    voice: UploadedVoice


class OpenAIDeletedVoice(OpenAIAnswer):
    """A voice that has been deleted."""

    id: str
    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    deleted: Literal[True] = True
    success: Literal[True] = True


class SpeechAudioDelta(OpenAIAnswer):
    """Server-sent event: a piece of audio."""

    type: Literal["speech.audio.delta"] = "speech.audio.delta"
    audio: Annotated[str, Field(description="Base64.")]


class SpeechUsage(OpenAIAnswer):
    """Size of a request and of its speech."""

    input_tokens: Annotated[int, Field(description="Characters of the text.")]
    output_tokens: Annotated[int, Field(description="Speech ids, 25 for a second.")]
    total_tokens: int


class SpeechAudioDone(OpenAIAnswer):
    """Server-sent event: the end of the audio."""

    type: Literal["speech.audio.done"] = "speech.audio.done"
    usage: SpeechUsage


class SpeechAudioError(OpenAIAnswer):
    """Server-sent event: the end of audio that failed. vLLM-Omni's; OpenAI has none."""

    type: Literal["speech.audio.error"] = "speech.audio.error"
    error: OpenAIErrorDetail


SpeechAudioEvent = SpeechAudioDelta | SpeechAudioDone | SpeechAudioError
