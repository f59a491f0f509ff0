"""Requests, answers and events of OpenAI's speech API as pydantic models.

The settings of a request are those of ``kits.openai.speech_settings``.

Source: platform.openai.com/docs/api-reference/audio; openai-python 1.109 and 3.54 (resources/audio,
types/audio/voice.py); openai-node 7.57; livekit-plugins-openai 1.8.9 (tts.py reads the events); vLLM-Omni at
0131cb55 (entrypoints/openai/protocol/audio.py) for the fields that OpenAI does not have; Open WebUI reads
``id`` and ``name`` of voices.
"""

from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
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

from .....adapters.audio.encoders import AudioFormat
from .....adapters.audio.format_kind import AudioLayout
from ...kits.openai.errors import OpenAIAnswer, OpenAIErrorDetail
from ...kits.openai.speech_settings import MAX_NAME_CHARACTERS, OpenAIRequest, OpenAISpeechSettings

# Listed by /v1/models. Other versions of these are known too: see ``OPENAI_MODEL_NAMES``.
OPENAI_MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")
MAX_BODY_BYTES: Final = 16 * 2**20  # a minute of reference recording in base64, and its transcript


# Not a field's limit, because it is a setting of the server.
def _check_input_length(text: str, info: ValidationInfo) -> str:
    """Apply the server's limit, which is the validation context's ``max_text_characters``."""
    max_length = (info.context or {}).get("max_text_characters", len(text))
    if len(text) > max_length:
        raise PydanticKnownError("string_too_long", {"max_length": max_length})
    return text


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

    def with_complete_wav(self) -> Self:
        """The request of a client that cannot send ``"stream": false``: a WAV is one complete file."""
        if self.response_format != "wav" or "stream" in self.model_fields_set:
            return self
        return self.model_copy(update={"stream": False})

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


class TranscriptionForm(BaseModel):
    """A recording to write down; other fields of OpenAI's clients are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    file: Annotated[
        UploadFile,
        BeforeValidator(_require_file),
        WithJsonSchema({"type": "string", "format": "binary", "description": "A sound file."}),
    ]


class RenameVoiceRequest(OpenAIRequest):
    """A new name of a voice; its id stays."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS, examples=["Anna"])]


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
    further_languages: Annotated[
        list[str] | None, Field(description="That it speaks too; absent if there are none.")
    ] = None
    follows_instructions: Annotated[
        bool | None, Field(description="Whether 'instructions' have an effect; absent if not.")
    ] = None
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


class OpenAITranscription(OpenAIAnswer):
    """What is said in a recording."""

    text: str


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
