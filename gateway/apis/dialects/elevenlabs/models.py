"""Requests, messages and answers of ElevenLabs' speech API.

Fields that have no meaning here are accepted and ignored, as are unknown ones; the README lists them.

Source: elevenlabs.io/docs/api-reference (text-to-speech, its two WebSockets, voices, models), November 2026;
elevenlabs-python 2.78.0 (text_to_speech/raw_client.py, realtime_tts.py); livekit-plugins-elevenlabs 1.8.9
(tts.py); pipecat-ai 1.14.0 (services/elevenlabs/tts.py).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from ...kits.request_fields import context_id_in, parse_object, validated
from .alignment import TimedCharacter

MAX_TEXT_CHARACTERS: Final = 40_000
MAX_INACTIVITY_S: Final = 180
_DEFAULT_INACTIVITY_S: Final = 20
_MAX_NAME_CHARACTERS: Final = 256

_Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME_CHARACTERS)]
_Language = Annotated[str | None, Field(max_length=35, description="ISO 639-1.")]
_Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS, examples=["Good morning. "])]
_Speed = Annotated[float | None, Field(ge=0.25, le=4.0, description="Factor of the usual speaking rate.")]
M = TypeVar("M", bound=BaseModel)


class ElevenLabsModel(BaseModel):
    """Base of the client's objects."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


class ElevenLabsVoiceSettings(ElevenLabsModel):
    """Prosody; the others of ElevenLabs' settings are ignored."""

    speed: _Speed = None


class PronunciationDictionaryLocator(ElevenLabsModel):
    """The name of a lexicon of the setting ``lexicons``; its version is ignored."""

    pronunciation_dictionary_id: _Name


_Locators = Annotated[
    list[PronunciationDictionaryLocator] | None,
    Field(max_length=3, description="Lexicons of the setting 'lexicons', the first one ahead."),
]


class ElevenLabsSpeechRequest(ElevenLabsModel):
    """Body of a request for speech over HTTP."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS, examples=["Good morning."])]
    model_id: _Name | None = None
    language_code: _Language = None
    voice_settings: ElevenLabsVoiceSettings | None = None
    seed: Annotated[int | None, Field(ge=0, le=2**32 - 1)] = None
    pronunciation_dictionary_locators: _Locators = None

    @property
    def speed(self) -> float:
        """Factor of the usual speaking rate."""
        return (self.voice_settings and self.voice_settings.speed) or 1.0


class ElevenLabsGenerationConfig(ElevenLabsModel):
    """When ElevenLabs begins to speak; here speech begins with the first clause."""

    chunk_length_schedule: list[Annotated[float, Field(ge=5, le=500)]] | None = None


class ElevenLabsTextMessage(ElevenLabsModel):
    """Message of a socket; the first of a context fixes its speed and lexicons."""

    text: Annotated[_Text | None, Field(description="'' ends the text of a socket without contexts.")] = None
    context_id: Annotated[_Name | None, Field(validation_alias=AliasChoices("context_id", "contextId"))] = (
        None
    )
    voice_settings: ElevenLabsVoiceSettings | None = None
    generation_config: ElevenLabsGenerationConfig | None = None
    pronunciation_dictionary_locators: _Locators = None
    flush: Annotated[bool | None, Field(description="Whether to speak the text so far.")] = None
    close_context: Annotated[bool | None, Field(description="Whether the text of the context ends.")] = None
    close_socket: Annotated[bool | None, Field(description="Whether to end after what there is.")] = None

    @property
    def speed(self) -> float:
        """Factor of the usual speaking rate."""
        return (self.voice_settings and self.voice_settings.speed) or 1.0


class ElevenLabsSocketQuery(BaseModel):
    """Parameters of a socket's address."""

    model_id: _Name | None = None
    output_format: str | None = None
    language_code: _Language = None
    auto_mode: Annotated[bool, Field(description="Whether each message is a phrase.")] = False
    inactivity_timeout: Annotated[int, Field(ge=1, le=MAX_INACTIVITY_S, description="Seconds.")] = (
        _DEFAULT_INACTIVITY_S
    )
    # LiveKit's plugin, which sets it, takes times as those of the context; Pipecat's service, which does not,
    # adds up those of the messages.
    sync_alignment: Annotated[bool, Field(description="Whether times count from the beginning.")] = False
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "ElevenLabsSocketQuery":
        """Parse the query; raises InvalidField."""
        return validated(cls.model_validate, dict(parameters), "query")


class ElevenLabsAnswer(BaseModel):
    """Base of the server's messages; fields that are None are left out."""

    model_config = ConfigDict(frozen=True)

    def encode(self) -> str:
        """Return the message as JSON."""
        return self.model_dump_json(exclude_none=True)


class SocketAlignment(BaseModel):
    """Times of characters, from the end of the alignment before.

    With ``sync_alignment``, and in the first alignment, they count from the beginning of the context.
    """

    chars: list[str]
    charStartTimesMs: list[int]
    charDurationsMs: list[int]

    @classmethod
    def of(cls, characters: Sequence[TimedCharacter], offset_ms: int) -> "SocketAlignment":
        """Return the characters; offset_ms: from which the times count."""
        starts = [round(1_000 * one.start_s) - offset_ms for one in characters]
        stops = [round(1_000 * one.stop_s) - offset_ms for one in characters]
        durations = [stop - start for start, stop in zip(starts, stops, strict=True)]
        return cls(
            chars=[one.character for one in characters], charStartTimesMs=starts, charDurationsMs=durations
        )


class ContextAnswer(ElevenLabsAnswer):
    """Base of messages that belong to a context: both spellings of its id are in use."""

    contextId: str | None = None
    context_id: str | None = None


class SocketAudioMessage(ContextAnswer):
    """A piece of audio, and the characters that begin in it."""

    audio: Annotated[str, Field(description="In base64.")]
    alignment: SocketAlignment | None = None
    normalizedAlignment: Annotated[SocketAlignment | None, Field(description="The same.")] = None


class SocketFinalMessage(ContextAnswer):
    """All audio has been sent."""

    isFinal: bool = True


class SocketErrorMessage(ContextAnswer):
    """A message was refused, or a context failed and is over."""

    message: str
    error: Annotated[str, Field(description="Word for the error.")]
    code: int = 1008


class TimedCharacters(BaseModel):
    """Times of characters in seconds from the beginning of the speech."""

    characters: list[str]
    character_start_times_seconds: list[float]
    character_end_times_seconds: list[float]

    @classmethod
    def of(cls, characters: Sequence[TimedCharacter]) -> "TimedCharacters":
        """Return the characters."""
        return cls(
            characters=[one.character for one in characters],
            character_start_times_seconds=[round(one.start_s, 3) for one in characters],
            character_end_times_seconds=[round(one.stop_s, 3) for one in characters],
        )


class TimedSpeech(ElevenLabsAnswer):
    """Speech, or a piece of it, with the times of its characters."""

    audio_base64: str
    alignment: TimedCharacters | None = None
    normalized_alignment: Annotated[TimedCharacters | None, Field(description="The same.")] = None


class ElevenLabsErrorDetail(BaseModel):
    """An error."""

    status: str
    message: str


class ElevenLabsInvalidField(BaseModel):
    """A field at fault."""

    loc: list[str | int]
    msg: str
    type: str = "value_error"


class ElevenLabsErrorBody(BaseModel):
    """An error over HTTP; that of an invalid field has a list."""

    detail: ElevenLabsErrorDetail | list[ElevenLabsInvalidField]


def parse_body(model: type[M], data: str | bytes) -> M:
    """Parse a body or message; raises InvalidRequest."""
    return validated(model.model_validate, parse_object(data))


def context_of(data: str | bytes) -> str | None:
    """Return the context that an invalid message names, None if it names none."""
    return context_id_in(data, "context_id", "contextId")
