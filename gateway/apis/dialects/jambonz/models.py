"""Requests, messages and errors of jambonz' text-to-speech API.

Source: docs.jambonz.org/guides/features/custom-tts-providers, November 2026; jambonz/custom-speech-example
@7c37b2f (lib/tts/google.js, lib/tts/streaming/elevenlabs.js).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from .....adapters.ssml.document import BadSsml
from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ....web.client_json import parse_json

MAX_BODY_BYTES: Final = 512 * 1024
MAX_TEXT_CHARACTERS: Final = 40_000
_MAX_NAME_CHARACTERS: Final = 256

_Name = Annotated[str, Field(max_length=_MAX_NAME_CHARACTERS)]
_Language = Annotated[str | None, Field(max_length=35, description="BCP 47.")]
T = TypeVar("T")


class InvalidJambonzRequest(VivavoceError):
    """A request or message that does not follow the API."""


class JambonzBodyTooLong(VivavoceError):
    """The body is longer than the server reads."""


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
        """Parse the query; raises InvalidJambonzRequest."""
        return _validated(TypeAdapter(cls), dict(parameters))


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


@dataclass(frozen=True, slots=True)
class JambonzErrorDescription:
    """An error in terms of HTTP."""

    status: int
    message: str
    retry_after_s: float | None = None  # None where a repeated request would fail again

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        headers = {} if self.retry_after_s is None else {"retry-after": str(math.ceil(self.retry_after_s))}
        # After 413 the rest of the body is not read.
        return {**headers, **({"connection": "close"} if self.status == 413 else {})}


def to_jambonz_error(error: Exception) -> JambonzErrorDescription:
    """Describe an error; the text of an unknown exception is not disclosed."""
    message = str(error)
    match error:
        case JambonzBodyTooLong():
            return JambonzErrorDescription(413, message)
        case KeyRefused():
            return JambonzErrorDescription(401, message)
        case ScopeMissing() | OriginRefused():
            return JambonzErrorDescription(403, message)
        case RateLimited(retry_after_s=wait_s):
            return JambonzErrorDescription(429, message, wait_s)
        case TranscriptQueueFull():
            return JambonzErrorDescription(429, message)
        case Overloaded(retry_after_s=wait_s):
            return JambonzErrorDescription(503, message, wait_s)
        case UnknownVoice():
            return JambonzErrorDescription(404, message)
        case BadRequest() | BadSsml() | InvalidJambonzRequest():
            return JambonzErrorDescription(400, message)
        case VivavoceError():
            return JambonzErrorDescription(500, message)
        case _:
            return JambonzErrorDescription(500, "the request failed inside the server")


def parse_speech_request(data: bytes) -> JambonzSpeechRequest:
    """Parse a body; raises InvalidJambonzRequest."""
    return _validated(TypeAdapter(JambonzSpeechRequest), _parse(data))


def parse_client_message(data: str | bytes) -> JambonzClientMessage:
    """Parse a message; raises InvalidJambonzRequest."""
    return _validated(CLIENT_MESSAGE, _parse(data))


def _parse(data: str | bytes) -> Any:
    return parse_json(data, MAX_BODY_BYTES, InvalidJambonzRequest)


def _validated(adapter: TypeAdapter[T], value: Any) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidJambonzRequest(f"{place or 'the message'}: {first['msg']}") from None
