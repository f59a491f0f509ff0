"""Requests, messages and answers of Inworld's speech API.

The client's fields are read in camelCase and in snake_case, as clients send both. Fields that have no meaning
here are accepted and ignored, as are unknown ones; the README lists them.

Source: docs.inworld.ai/api-reference/ttsAPI, November 2026; pipecat-ai 1.14.0 (services/inworld/tts.py);
livekit-plugins-inworld 1.8.9 (tts.py).
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.stream_request import Delivery
from ...kits.request_fields import UPPER_CASE, context_id_in, parse_object, validated
from ...kits.service_names import ServiceNames
from ...shell.speech import SynthesisOptions
from .alignment import TextEntry

MESSAGE: Final = "message"  # at fault where no field is
MAX_TEXT_CHARACTERS: Final = 40_000
MAX_BUFFER_DELAY_MS: Final = 60_000
_MAX_NAME_CHARACTERS: Final = 256

_Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME_CHARACTERS)]
_Encoding = Literal[
    "AUDIO_ENCODING_UNSPECIFIED", "LINEAR16", "PCM", "WAV", "MP3", "OGG_OPUS", "FLAC", "ALAW", "MULAW"
]
M = TypeVar("M", bound=BaseModel)


class GoogleRpcCode(IntEnum):
    """The codes that are in use here."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class InworldModel(BaseModel):
    """Base of the client's objects."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class InworldAudioConfig(InworldModel):
    """Encoding and speed of the audio."""

    audio_encoding: Annotated[_Encoding, UPPER_CASE, Field(description="LINEAR16 has a WAV header.")] = "MP3"
    sample_rate_hertz: int = 48_000
    bit_rate: Annotated[
        int | None,
        Field(
            validation_alias=AliasChoices("bitRate", "bitrate", "bit_rate"),
            description="Bits/s of MP3 and OGG_OPUS; other encodings ignore it.",
        ),
    ] = None
    speaking_rate: Annotated[float, Field(ge=0.25, le=4.0, description="Factor of the usual rate.")] = 1.0


class InworldVoiceOptions(InworldModel):
    """Voice and delivery, of a request and of a context."""

    voice_id: Annotated[_Name, Field(examples=["heart"])]
    model_id: _Name | None = None
    audio_config: InworldAudioConfig = InworldAudioConfig()
    language: Annotated[str | None, Field(max_length=35, description="BCP 47.")] = None
    timestamp_type: Annotated[
        Literal["TIMESTAMP_TYPE_UNSPECIFIED", "WORD", "CHARACTER"],
        Field(description="Only WORD adds times; those of characters are not sent."),
    ] = "TIMESTAMP_TYPE_UNSPECIFIED"

    @property
    def has_word_times(self) -> bool:
        """Whether to send the times of words."""
        return self.timestamp_type == "WORD"


class InworldSpeechRequest(InworldVoiceOptions):
    """Body of a request for speech over HTTP."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS, examples=["Good morning."])]


class InworldContextConfig(InworldVoiceOptions):
    """What a context is created with."""

    max_buffer_delay_ms: Annotated[
        int,
        Field(ge=0, le=MAX_BUFFER_DELAY_MS, description="Without text, after which it is spoken; 0: 60 s."),
    ] = 0

    @property
    def buffer_delay_s(self) -> float:
        """Seconds without text after which the text so far is spoken."""
        return (self.max_buffer_delay_ms or MAX_BUFFER_DELAY_MS) / 1_000


class InworldEmptyMessage(InworldModel):
    """A message without fields."""


class InworldText(InworldModel):
    """Text of a context; an empty one keeps the context open."""

    text: Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS, examples=["Good morning. "])] = ""
    flush_context: InworldEmptyMessage | None = None


class InworldClientMessage(InworldModel):
    """Message of a socket: exactly one of the objects."""

    context_id: Annotated[_Name | None, Field(description="Needed only if there are several.")] = None
    create: InworldContextConfig | None = None
    send_text: InworldText | None = None
    flush_context: InworldEmptyMessage | None = None
    close_context: Annotated[
        InworldEmptyMessage | None, Field(description="Speaks what there is; the second one drops it.")
    ] = None
    cancel_context: Annotated[InworldEmptyMessage | None, Field(description="Drops what there is.")] = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        kinds = ("create", "send_text", "flush_context", "close_context", "cancel_context")
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"a message has exactly one of {', '.join(kinds)}")
        return self


class InworldAnswer(BaseModel):
    """Base of the server's messages; fields that are None are left out."""

    model_config = ConfigDict(frozen=True)

    def encode(self) -> str:
        """Return the message as JSON."""
        return self.model_dump_json(exclude_none=True)


class InworldStatus(BaseModel):
    """Result of a message; 0 is success."""

    code: Annotated[int, Field(description="Of google.rpc.")]
    message: str
    details: list[str]


class InworldErrorBody(InworldStatus, InworldAnswer):
    """An error over HTTP."""


class InworldWordAlignment(BaseModel):
    """Words, and what follows each, in seconds from the end of the last word of the generation before."""

    words: list[str]
    wordStartTimeSeconds: list[float]
    wordEndTimeSeconds: list[float]

    @classmethod
    def of(cls, entries: Sequence[TextEntry], offset_s: float = 0.0) -> "InworldWordAlignment":
        """Return the entries of a text; offset_s: of its beginning."""
        return cls(
            words=[written for written, _, _ in entries],
            wordStartTimeSeconds=[round(offset_s + start_s, 3) for _, start_s, _ in entries],
            wordEndTimeSeconds=[round(offset_s + stop_s, 3) for _, _, stop_s in entries],
        )


class InworldTimestampInfo(BaseModel):
    """Times of the words that begin in the audio."""

    wordAlignment: InworldWordAlignment


class InworldUsage(BaseModel):
    """What a request is charged."""

    processedCharactersCount: int
    modelId: str | None = None


class InworldSpeech(InworldAnswer):
    """Speech, or a piece of it."""

    audioContent: Annotated[str, Field(description="In base64.")]
    timestampInfo: InworldTimestampInfo | None = None
    usage: InworldUsage | None = None


class InworldSpeechLine(InworldAnswer):
    """A line of streamed speech; ``error`` is the last one of speech that failed."""

    result: InworldSpeech | None = None
    error: InworldStatus | None = None


class InworldContextCreated(BaseModel):
    """A context is open."""

    voiceId: str
    modelId: str | None = None


class InworldEvent(BaseModel):
    """An event without fields."""


class InworldResult(BaseModel):
    """An answer or an event of a context: one of the objects, or a status that is an error."""

    contextId: str | None = None
    contextCreated: InworldContextCreated | None = None
    audioChunk: InworldSpeech | None = None
    flushCompleted: Annotated[InworldEvent | None, Field(description="A generation has been sent.")] = None
    contextClosed: Annotated[InworldEvent | None, Field(description="Nothing more comes of it.")] = None
    status: InworldStatus = InworldStatus(code=GoogleRpcCode.OK.value, message="", details=[])


class InworldServerMessage(InworldAnswer):
    """Message of the server on a socket."""

    result: InworldResult


class InworldListedVoice(BaseModel):
    """A voice."""

    voiceId: str
    displayName: str
    description: str
    languages: list[str]
    tags: list[str] = []
    isCustom: Annotated[bool, Field(description="Whether a key has enrolled it.")]


class InworldVoiceList(BaseModel):
    """The voices that the key may use."""

    voices: list[InworldListedVoice]


def parse_inworld_message(model: type[M], data: str | bytes) -> M:
    """Parse a message; raises InvalidRequest."""
    return validated(model.model_validate, parse_object(data), MESSAGE)


def context_of(data: str | bytes) -> str | None:
    """Return the context that an invalid message names, None if it names none."""
    return context_id_in(data, "contextId", "context_id")


INWORLD_NAMES: Final = ServiceNames(
    voices=re.compile(r"[A-Z][A-Za-z]*", re.ASCII),  # capitalised first names
)


def make_inworld_options(request: InworldVoiceOptions, voice: str, audio: AudioFormat) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    return SynthesisOptions(
        voice=voice,
        audio=audio,
        speed=request.audio_config.speaking_rate,
        delivery=Delivery(language=request.language),
    )
