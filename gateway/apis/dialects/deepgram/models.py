"""Requests, messages and answers of Deepgram's speech API, but those of ``/v2/speak`` sockets.

Parameters that have no meaning here are accepted and ignored, as are unknown ones; the README lists them.

Source: developers.deepgram.com/reference/text-to-speech, November 2026; deepgram-sdk 7.17.0 (speak/v1,
speak/v2); livekit-plugins-deepgram 1.8.9 (tts.py, tts_v2.py); pipecat-ai 1.14.0 (services/deepgram).

Deepgram's models are voices.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.errors import UnknownVoice
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ...kits.request_fields import LOWER_CASE, parse_message, validated
from ...shell.speech import SynthesisOptions
from ...shell.speech_server import ModelNames

MESSAGE: Final = "the message"  # at fault where no field is
MAX_TEXT_CHARACTERS: Final = 40_000
_MAX_NAME_CHARACTERS: Final = 256

SpokenText = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS, examples=["Good morning. "])]
T = TypeVar("T")


class DeepgramModel(BaseModel):
    """Base of the client's objects."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class DeepgramQuery(DeepgramModel):
    """Parameters of an address."""

    model: Annotated[str, Field(max_length=_MAX_NAME_CHARACTERS, description="The voice.")] = ""
    encoding: Annotated[
        Literal["linear16", "mulaw", "alaw", "mp3", "opus", "flac", "aac"] | None, LOWER_CASE
    ] = None
    container: Annotated[Literal["none", "wav", "ogg"] | None, LOWER_CASE] = None
    sample_rate: Annotated[int | None, Field(description="Hz.")] = None
    bit_rate: Annotated[int | None, Field(description="Bits a second.")] = None
    speed: Annotated[float, Field(ge=0.25, le=4.0, description="Factor of the usual rate.")] = 1.0

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "DeepgramQuery":
        """Parse the query; raises InvalidField."""
        return validated(cls.model_validate, dict(parameters), MESSAGE)


class DeepgramSpeechRequest(DeepgramModel):
    """Body of a request for speech over HTTP."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS, examples=["Good morning."])]


class DeepgramMessage(BaseModel):
    """Base of the client's messages."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class DeepgramSpeakMessage(DeepgramMessage):
    """Text to speak, split anywhere."""

    type: Literal["Speak"]
    text: SpokenText


class DeepgramFlushMessage(DeepgramMessage):
    """Speak all text so far; answered by ``Flushed`` after its audio."""

    type: Literal["Flush"]


class DeepgramClearMessage(DeepgramMessage):
    """Drop everything that has not been sent."""

    type: Literal["Clear"]


class DeepgramCloseMessage(DeepgramMessage):
    """Speak all text so far and close."""

    type: Literal["Close"]


DeepgramClientMessage = Annotated[
    DeepgramSpeakMessage | DeepgramFlushMessage | DeepgramClearMessage | DeepgramCloseMessage,
    Field(discriminator="type"),
]
CLIENT_MESSAGE: Final[TypeAdapter[DeepgramClientMessage]] = TypeAdapter(DeepgramClientMessage)


class DeepgramAnswer(BaseModel):
    """Base of the server's messages; fields that are None are left out."""

    model_config = ConfigDict(frozen=True)

    def encode(self) -> str:
        """Return the message as JSON."""
        return self.model_dump_json(exclude_none=True)


class DeepgramMetadataMessage(DeepgramAnswer):
    """The first message of a socket."""

    type: Literal["Metadata"] = "Metadata"
    request_id: str
    model_name: str
    model_version: str
    model_uuid: str


class DeepgramFlushedMessage(DeepgramAnswer):
    """All audio of the text before a flush has been sent."""

    type: Literal["Flushed"] = "Flushed"
    sequence_id: Annotated[int, Field(description="Number of the flush, from 0.")]


class DeepgramClearedMessage(DeepgramAnswer):
    """Nothing of the text before comes any more."""

    type: Literal["Cleared"] = "Cleared"
    sequence_id: Annotated[int, Field(description="Number of the clear, from 0.")]


class DeepgramWarningMessage(DeepgramAnswer):
    """A message was ignored."""

    type: Literal["Warning"] = "Warning"
    code: str
    description: str
    warn_code: Annotated[str, Field(description="Older name of ``code``.")]
    warn_msg: Annotated[str, Field(description="Older name of ``description``.")]


class DeepgramErrorMessage(DeepgramAnswer):
    """The speech of the text before the next ``Flushed`` has failed."""

    type: Literal["Error"] = "Error"
    code: str
    description: str


class DeepgramErrorBody(BaseModel):
    """An error over HTTP."""

    err_code: str
    err_msg: str
    request_id: str


DeepgramServerMessage = Annotated[
    DeepgramMetadataMessage
    | DeepgramFlushedMessage
    | DeepgramClearedMessage
    | DeepgramWarningMessage
    | DeepgramErrorMessage,
    Field(discriminator="type"),
]


def parse_deepgram_message(adapter: TypeAdapter[T], data: str | bytes) -> T:
    """Parse a message; raises InvalidRequest."""
    return validated(adapter.validate_python, parse_message(data), MESSAGE)


_CATALOGUE_VOICE: Final = re.compile(r"(aura(-2)?|flux)-[a-z]+-[a-z]{2}", re.ASCII)


def resolve_deepgram_voice(voices: VoiceRegistry, models: ModelNames, model: str, grant: Grant) -> str:
    """Return the engine's voice id, the default for ""; raises UnknownVoice.

    A model may also be a bundle, an alias of a model or the server's own, each of which is its default
    voice. The server's default voice speaks for Deepgram's own models, unless the settings name another in
    ``voices.aliases``: existing programs then run unchanged.
    """
    try:
        return voices.resolve(model, grant)
    except UnknownVoice:
        if models.is_own(model):
            return voices.resolve(None, grant, models.voices.get(model))
        if not _CATALOGUE_VOICE.fullmatch(model):
            raise
        return voices.resolve(None, grant)


def make_deepgram_options(query: DeepgramQuery, voice: str, audio: AudioFormat) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    return SynthesisOptions(voice=voice, audio=audio, speed=query.speed)
