"""Every error of this package in Cartesia's terms: status, code and title."""

from dataclasses import dataclass

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...shell.model_names import UnknownModel


class InvalidCartesiaRequest(VivavoceError):
    """A request or message that does not follow the API."""


class CartesiaContextClosed(InvalidCartesiaRequest):
    """Text for a context whose last text has come."""


class CartesiaBodyTooLong(InvalidCartesiaRequest):
    """The body is longer than the server reads."""


class CartesiaLimitReached(VivavoceError):
    """A connection has too many contexts."""


@dataclass(frozen=True, slots=True)
class CartesiaErrorDescription:
    """An error in Cartesia's terms."""

    status: int  # HTTP
    code: str
    title: str
    message: str
    retry_after_s: float | None = None  # None where a repeated request would fail again


def to_cartesia_error(error: Exception) -> CartesiaErrorDescription:
    """Describe an error; the text of an unknown exception is not disclosed."""
    message = str(error)
    match error:
        case CartesiaBodyTooLong():
            return CartesiaErrorDescription(413, "request_too_large", "Request too large", message)
        case CartesiaContextClosed():
            return CartesiaErrorDescription(400, "context_closed", "Context closed", message)
        case CartesiaLimitReached() | TranscriptQueueFull():
            return CartesiaErrorDescription(429, "concurrency_limited", "Too many contexts", message)
        case InvalidCartesiaRequest():
            return CartesiaErrorDescription(400, "invalid_request", "Invalid request", message)
        case KeyRefused():
            return CartesiaErrorDescription(401, "unauthorized", "Unauthorized", message)
        case ScopeMissing() | OriginRefused():
            return CartesiaErrorDescription(403, "forbidden", "Forbidden", message)
        case RateLimited(retry_after_s=wait_s):
            return CartesiaErrorDescription(429, "rate_limited", "Too many requests", message, wait_s)
        case Overloaded(retry_after_s=wait_s):
            return CartesiaErrorDescription(503, "overloaded", "Server at capacity", message, wait_s)
        case UnknownVoice():
            return CartesiaErrorDescription(404, "voice_not_found", "Voice not found", message)
        case UnknownModel():
            return CartesiaErrorDescription(404, "model_not_found", "Model not found", message)
        case BadRequest():
            return CartesiaErrorDescription(400, "invalid_request", "Invalid request", message)
        case VivavoceError():
            return CartesiaErrorDescription(500, "internal_error", "Speech failed", message)
        case _:
            return CartesiaErrorDescription(
                500, "internal_error", "Internal error", "the request failed inside the server"
            )
