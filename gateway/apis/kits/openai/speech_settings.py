"""Settings of OpenAI's speech requests, which the native stream's configuration shares, as pydantic models.

Requests have strict types: a number in quotes is no number. ``null`` equals an absent field. Unknown fields
are ignored, because OpenAI's clients send fields that are newer than a server. Some fields come from other
servers (vLLM-Omni, Kokoro-FastAPI): ``sample_rate``, ``seed``, ``language``, ``volume_multiplier``,
``ref_audio``, ``ref_text``, ``initial_codec_chunk_frames`` and those of sampling; ``liveliness`` and those
of silence are this project's own. ``request_parsing`` turns a violated limit into OpenAI's error.

Source: platform.openai.com/docs/api-reference/audio; vLLM-Omni at 0131cb55
(entrypoints/openai/protocol/audio.py) for the fields that OpenAI does not have.
"""

from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from .....adapters.audio.encoders import SAMPLE_RATES, AudioFormat
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import BadRequest
from .....tts_engine.reading.pronunciation.entries import BadLexicon, lexicon_of
from .....tts_engine.stream_request import MAX_LIVELINESS, MIN_LIVELINESS
from ..request_fields import CodecName
from ..sampling_fields import SamplingFields

MAX_PRONUNCIATIONS: Final = 100  # of one request


def _check(entries: dict[str, str]) -> dict[str, str]:
    try:
        if len(entries) > MAX_PRONUNCIATIONS:
            raise BadLexicon(f"{len(entries)} pronunciations; at most {MAX_PRONUNCIATIONS} are allowed")
        lexicon_of(entries)
    except BadLexicon as error:
        raise PydanticCustomError("pronunciation", "{fault}", {"fault": str(error)}) from None
    return entries


_Text = Annotated[str, Field(min_length=1)]  # without any limit, pydantic does not look for lone surrogates
Pronunciations = Annotated[
    dict[_Text, _Text],
    AfterValidator(_check),
    Field(
        description=f"How words and phrases of the text are said, ahead of the server's lexicons, at most "
        f"{MAX_PRONUNCIATIONS}: a text that is read instead, or phonemes (IPA) between slashes.",
        examples=[{"nginx": "engine x", "Siobhan": "/ʃɪˈvɔːn/"}],
    ),
]


MAX_NAME_CHARACTERS: Final = 256  # names are repeated in error messages and logs
MAX_INSTRUCTION_CHARACTERS: Final = 4_096  # OpenAI's limit
MAX_SILENCE_MS: Final = 10_000  # a loudspeaker wakes up in a second or two
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
    liveliness: Annotated[
        float | None,
        Field(
            ge=MIN_LIVELINESS,
            le=MAX_LIVELINESS,
            description="How far the pitch of the packaged voice moves; 1.0 is the melody of its model.",
        ),
    ] = None
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
    leading_silence_ms: Annotated[
        int, Field(ge=0, le=MAX_SILENCE_MS, description="Before the speech, for loudspeakers that clip it.")
    ] = 0
    trailing_silence_ms: Annotated[int, Field(ge=0, le=MAX_SILENCE_MS, description="After the speech.")] = 0
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
