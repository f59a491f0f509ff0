"""Requests, messages and errors of jambonz' text-to-speech API.

Source: docs.jambonz.org/guides/features/custom-tts-providers, November 2026; jambonz/custom-speech-example
@7c37b2f (lib/tts/google.js, lib/tts/streaming/elevenlabs.js).
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .....adapters.transcript_queue import TranscriptQueueFull
from ...kits.error_table import STATUSES, DescribedError, ErrorTable
from ...kits.request_fields import parse_message, validated

MESSAGE: Final = "the message"  # at fault where no field is
MAX_TEXT_CHARACTERS: Final = 40_000
_MAX_NAME_CHARACTERS: Final = 256

_Name = Annotated[str, Field(max_length=_MAX_NAME_CHARACTERS)]
_Language = Annotated[str | None, Field(max_length=35, description="BCP 47.")]


class JambonzModel(BaseModel):
    """Base of what jambonz sends."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class JambonzSpeechRequest(JambonzModel):
    """Body of a request for speech over HTTP."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS, examples=["Good morning."])]
    type: Literal["text", "ssml"] = "text"
    voice: _Name = ""
    language: _Language = None


class JambonzSocketQuery(BaseModel):
    """Parameters of a socket's address."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    voice: _Name = ""
    language: _Language = None
    sample_rate: Annotated[int, Field(alias="sampleRate", description="Hz of the call's audio.")] = 8_000

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "JambonzSocketQuery":
        """Parse the query; raises InvalidField."""
        return validated(cls.model_validate, dict(parameters), MESSAGE)


class JambonzStreamMessage(JambonzModel):
    """Text to speak: whole words."""

    type: Literal["stream"]
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]


class JambonzFlushMessage(JambonzModel):
    """Speak all text so far."""

    type: Literal["flush"]


class JambonzStopMessage(JambonzModel):
    """Drop everything that has not been sent, and close."""

    type: Literal["stop"]


class JambonzKeepAliveMessage(JambonzModel):
    """Keep the connection open."""

    type: Literal["keepalive"]


JambonzClientMessage = Annotated[
    JambonzStreamMessage | JambonzFlushMessage | JambonzStopMessage | JambonzKeepAliveMessage,
    Field(discriminator="type"),
]
CLIENT_MESSAGE: Final[TypeAdapter[JambonzClientMessage]] = TypeAdapter(JambonzClientMessage)


class JambonzAudioFormat(BaseModel):
    """Format of the binary messages: s16le."""

    sample_rate: int
    base64_encoding: Literal[False] = False


class JambonzConnectMessage(BaseModel):
    """The first message of a socket."""

    type: Literal["connect"] = "connect"
    data: JambonzAudioFormat


class JambonzErrorMessage(BaseModel):
    """A text or a message was refused."""

    type: Literal["error"] = "error"
    error: str


class JambonzErrorBody(BaseModel):
    """An error over HTTP."""

    error: str


JambonzServerMessage = Annotated[JambonzConnectMessage | JambonzErrorMessage, Field(discriminator="type")]


JAMBONZ_ERRORS: Final = ErrorTable(
    {**STATUSES, TranscriptQueueFull: DescribedError(429)},
    lambda described, error, request_id: JambonzErrorBody(error=described.message),
)


def parse_client_message(data: str | bytes) -> JambonzClientMessage:
    """Parse a message; raises InvalidRequest."""
    return validated(CLIENT_MESSAGE.validate_python, parse_message(data), MESSAGE)
