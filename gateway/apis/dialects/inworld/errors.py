"""Every error of this package in Inworld's terms: HTTP status, code of google.rpc and message.

Source: google/rpc/code.proto of googleapis; grpc-gateway's mapping to HTTP (runtime/errors.go).
"""

from dataclasses import dataclass
from enum import IntEnum

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...shell.model_names import UnknownModel


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


class InvalidInworldRequest(VivavoceError):
    """A request or message that does not follow the API."""


class InworldBodyTooLong(VivavoceError):
    """The body is longer than the server reads."""


class InworldContextNotFound(VivavoceError):
    """A message names a context that is not open."""


class InworldContextExists(VivavoceError):
    """A context is created that is open."""


class InworldContextClosed(VivavoceError):
    """Text for a context that has been closed."""


class InworldContextLimitReached(VivavoceError):
    """A connection has too many contexts."""


@dataclass(frozen=True, slots=True)
class InworldErrorDescription:
    """An error in Inworld's terms."""

    http_status: int
    code: GoogleRpcCode
    message: str
    retry_after_s: float | None = None  # None where a repeated request would fail again


def to_inworld_error(error: Exception) -> InworldErrorDescription:
    """Describe an error; the text of an unknown exception is not disclosed."""
    message = str(error)
    match error:
        case InworldBodyTooLong():
            return InworldErrorDescription(413, GoogleRpcCode.INVALID_ARGUMENT, message)
        case InvalidInworldRequest():
            return InworldErrorDescription(400, GoogleRpcCode.INVALID_ARGUMENT, message)
        case InworldContextNotFound() | UnknownVoice() | UnknownModel():
            return InworldErrorDescription(404, GoogleRpcCode.NOT_FOUND, message)
        case InworldContextExists():
            return InworldErrorDescription(409, GoogleRpcCode.ALREADY_EXISTS, message)
        case InworldContextClosed():
            return InworldErrorDescription(400, GoogleRpcCode.FAILED_PRECONDITION, message)
        case InworldContextLimitReached() | TranscriptQueueFull():
            return InworldErrorDescription(429, GoogleRpcCode.RESOURCE_EXHAUSTED, message)
        case KeyRefused():
            return InworldErrorDescription(401, GoogleRpcCode.UNAUTHENTICATED, message)
        case ScopeMissing() | OriginRefused():
            return InworldErrorDescription(403, GoogleRpcCode.PERMISSION_DENIED, message)
        case RateLimited(retry_after_s=wait_s):
            return InworldErrorDescription(429, GoogleRpcCode.RESOURCE_EXHAUSTED, message, wait_s)
        case Overloaded(retry_after_s=wait_s):
            return InworldErrorDescription(503, GoogleRpcCode.UNAVAILABLE, message, wait_s)
        case BadRequest():
            return InworldErrorDescription(400, GoogleRpcCode.INVALID_ARGUMENT, message)
        case VivavoceError():
            return InworldErrorDescription(500, GoogleRpcCode.INTERNAL, message)
        case _:
            return InworldErrorDescription(
                500, GoogleRpcCode.INTERNAL, "the request failed inside the server"
            )
