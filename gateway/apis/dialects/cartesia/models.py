"""Requests and answers of Cartesia's speech API.

Fields that have no meaning here are accepted and ignored, as are unknown ones; the README lists them.

Source: docs.cartesia.ai, API version 2026-03-01; cartesia-python 4.2.0 (types/generation_request_param.py,
websocket_response.py, tts_sse_event.py, voice.py).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from .....tts_engine.chunk import Word
from .....tts_engine.errors import UnknownVoice
from ...kits.request_fields import LOWER_CASE, validated

REQUEST: Final = "the request"  # at fault where no field is
MAX_TRANSCRIPT_CHARACTERS: Final = 40_000
_MAX_NAME_CHARACTERS: Final = 256
_MAX_BUFFER_DELAY_MS: Final = 5_000
_DEFAULT_BUFFER_DELAY_MS: Final = 3_000

Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME_CHARACTERS)]
_Speed = Annotated[float, Field(ge=0.25, le=4.0, description="Factor of the usual speaking rate.")]


class CartesiaModel(BaseModel):
    """Base of the client's objects."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


class CartesiaVoiceSpecifier(CartesiaModel):
    """A voice by its id; embeddings are refused."""

    mode: Literal["id"] = "id"
    id: Name


class CartesiaOutputFormat(CartesiaModel):
    """Encoding of the audio."""

    container: Annotated[Literal["raw", "wav", "mp3"], LOWER_CASE]
    encoding: Annotated[  # of raw and WAV
        Literal["pcm_f32le", "pcm_s16le", "pcm_mulaw", "pcm_alaw"] | None, LOWER_CASE
    ] = None
    sample_rate: int  # Hz
    bit_rate: int | None = None  # bits/s of MP3


class CartesiaGenerationConfig(CartesiaModel):
    """Prosody."""

    speed: _Speed = 1.0
    volume: Annotated[float, Field(ge=0.0, le=10.0, description="Factor of the amplitude.")] = 1.0


class CartesiaSpeechRequest(CartesiaModel):
    """Body of a request for speech over HTTP."""

    model_id: Annotated[Name, Field(examples=["sonic-3"])]
    transcript: Annotated[str, Field(max_length=MAX_TRANSCRIPT_CHARACTERS, examples=["Good morning."])]
    voice: Annotated[Name | CartesiaVoiceSpecifier, Field(examples=[{"mode": "id", "id": "heart"}])]
    output_format: Annotated[
        CartesiaOutputFormat,
        Field(examples=[{"container": "wav", "encoding": "pcm_s16le", "sample_rate": 24_000}]),
    ]
    language: Annotated[str | None, Field(max_length=35, description="BCP 47.")] = None
    locale: Annotated[str | None, Field(max_length=35, description="BCP 47, instead of 'language'.")] = None
    speed: Annotated[Literal["slow", "normal", "fast"] | float | None, Field(description="Older form.")] = (
        None
    )
    generation_config: CartesiaGenerationConfig | None = None
    add_timestamps: Annotated[bool | None, Field(description="Whether to send the times of words.")] = None
    pronunciation_dict_id: Annotated[
        Name | None, Field(description="Name of a lexicon of the setting 'lexicons'.")
    ] = None
    context_id: Name | None = None

    @property
    def voice_id(self) -> str:
        """Id of the voice."""
        return self.voice if isinstance(self.voice, str) else self.voice.id


class GenerationRequest(CartesiaSpeechRequest):
    """Message of a socket: text of a context. The first one fixes its voice and its format."""

    context_id: Name
    continue_: Annotated[bool | None, Field(alias="continue", description="Whether more text follows.")] = (
        None
    )
    flush: Annotated[
        bool | None, Field(description="Whether to speak the text without waiting for more.")
    ] = None
    max_buffer_delay_ms: Annotated[
        int | None,
        Field(
            ge=0,
            le=_MAX_BUFFER_DELAY_MS,
            description="Time without text after which what there is is spoken.",
        ),
    ] = None

    @property
    def buffer_delay_s(self) -> float:
        """``max_buffer_delay_ms`` or its default, in seconds."""
        delay_ms = self.max_buffer_delay_ms
        return (_DEFAULT_BUFFER_DELAY_MS if delay_ms is None else delay_ms) / 1_000


class CancelContextRequest(CartesiaModel):
    """Message of a socket: drop everything of a context that has not been sent."""

    context_id: Name
    cancel: Literal[True]


class CartesiaAnswer(BaseModel):
    """Base of the server's messages; fields that are None are left out."""

    model_config = ConfigDict(frozen=True)

    def encode(self) -> str:
        """Return the message as JSON."""
        return self.model_dump_json(exclude_none=True)

    def encode_event(self) -> bytes:
        """Return the message as a server-sent event."""
        return f"event: {getattr(self, 'type', 'message')}\ndata: {self.encode()}\n\n".encode()


class AudioChunkMessage(CartesiaAnswer):
    """A piece of audio."""

    type: Literal["chunk"] = "chunk"
    data: Annotated[str, Field(description="Audio in base64.")]
    done: Literal[False] = False
    status_code: Literal[206] = 206
    step_time: Annotated[float, Field(description="Milliseconds since the piece before.")]
    context_id: str | None = None


class WordTimestamps(BaseModel):
    """Words as they are written, and the seconds of their beginnings and ends in the context's audio."""

    words: list[str]
    start: list[float]
    end: list[float]

    @classmethod
    def of(cls, words: tuple[Word, ...], offset_s: float = 0.0) -> "WordTimestamps":
        """Return written words; offset_s: of the beginning of their utterance."""
        return cls(
            words=[word.text for word in words],
            start=[round(offset_s + word.start_s, 3) for word in words],
            end=[round(offset_s + word.stop_s, 3) for word in words],
        )


class TimestampsMessage(CartesiaAnswer):
    """Words that begin in the next piece of audio."""

    type: Literal["timestamps"] = "timestamps"
    done: Literal[False] = False
    status_code: Literal[206] = 206
    context_id: str | None = None
    word_timestamps: WordTimestamps


class FlushDoneMessage(CartesiaAnswer):
    """All audio of the text before a flush has been sent."""

    type: Literal["flush_done"] = "flush_done"
    done: Literal[False] = False
    flush_done: Literal[True] = True
    flush_id: Annotated[int, Field(description="Number of the flush in its context, from 1.")]
    status_code: Literal[206] = 206
    context_id: str


class DoneMessage(CartesiaAnswer):
    """All audio has been sent."""

    type: Literal["done"] = "done"
    done: Literal[True] = True
    status_code: Literal[200] = 200
    context_id: str | None = None


class CartesiaErrorMessage(CartesiaAnswer):
    """A message was refused, or a context failed and is over."""

    type: Literal["error"] = "error"
    done: Literal[True] = True
    status_code: Annotated[int, Field(description="As over HTTP.")]
    error_code: str
    title: str
    message: str
    request_id: Annotated[str, Field(description="Of the connection; it is in the server's log.")]
    context_id: str | None = None


class CartesiaErrorBody(CartesiaAnswer):
    """An error over HTTP."""

    error_code: str
    title: str
    message: str
    request_id: str
    status_code: int


class CartesiaVoice(BaseModel):
    """A voice."""

    id: str
    name: str
    description: str
    tagline: str = ""
    language: str
    locales: list[str] = []
    is_owner: Annotated[bool, Field(description="Whether the key has enrolled it.")]
    is_public: bool
    access: Literal["private", "public"]
    visibility: Literal["owner", "all"] = "all"
    created_at: str
    object: Literal["voice"] = "voice"


class CartesiaVoiceList(BaseModel):
    """A page of voices."""

    data: list[CartesiaVoice]
    has_more: bool = False
    next_page: str | None = None


class VoiceListQuery(BaseModel):
    """Parameters of a list of voices."""

    limit: Annotated[int, Field(ge=1, le=100)] = 10
    starting_after: str | None = None
    ending_before: str | None = None
    q: str = ""

    def page_of(self, voices: Sequence[CartesiaVoice]) -> CartesiaVoiceList:
        """Return the page that is asked for; raises UnknownVoice if its neighbour does not exist."""
        sought = self.q.casefold()
        found = [one for one in voices if sought in f"{one.id} {one.name} {one.description}".casefold()]
        if self.ending_before is not None:
            found = found[: _index_of(self.ending_before, found)]
            page, has_more = found[-self.limit :], len(found) > self.limit
        else:
            start = 0 if self.starting_after is None else _index_of(self.starting_after, found) + 1
            page, has_more = found[start : start + self.limit], len(found) > start + self.limit
        return CartesiaVoiceList(data=page, has_more=has_more, next_page=page[-1].id if has_more else None)


def _index_of(voice_id: str, voices: Sequence[CartesiaVoice]) -> int:
    for index, voice in enumerate(voices):
        if voice.id == voice_id:
            return index
    raise UnknownVoice(f"there is no voice {voice_id!r}")


CartesiaClientMessage = GenerationRequest | CancelContextRequest
CartesiaServerMessage = Annotated[
    AudioChunkMessage | TimestampsMessage | FlushDoneMessage | DoneMessage | CartesiaErrorMessage,
    Field(discriminator="type"),
]


def parse_client_message(fields: dict[str, Any]) -> CartesiaClientMessage:
    """Parse a message of a socket; raises InvalidField."""
    if fields.get("cancel") is True:
        return validated(CancelContextRequest.model_validate, fields, REQUEST)
    return validated(GenerationRequest.model_validate, fields, REQUEST)


def new_cartesia_id() -> str:
    """Return an id of a request or connection."""
    return f"req_{uuid4().hex}"
