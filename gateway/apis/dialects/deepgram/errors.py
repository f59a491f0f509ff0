"""Every error of this package in Deepgram's terms: HTTP status, code and message."""

from dataclasses import dataclass

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing


class InvalidDeepgramRequest(VivavoceError):
    """A request or message that does not follow the API."""


class DeepgramBodyTooLong(VivavoceError):
    """The body is longer than the server reads."""


@dataclass(frozen=True, slots=True)
class DeepgramErrorDescription:
    """An error in Deepgram's terms."""

    status: int  # HTTP
    code: str
    message: str
    flux_code: str = "NET-0000"  # on a /v2/speak socket
    retry_after_s: float | None = None  # None where a repeated request would fail again


def to_deepgram_error(error: Exception) -> DeepgramErrorDescription:
    """Describe an error; the text of an unknown exception is not disclosed."""
    message = str(error)
    match error:
        case InvalidDeepgramRequest():
            return DeepgramErrorDescription(400, "INVALID_QUERY_PARAMETER", message, "MESSAGE-0000")
        case DeepgramBodyTooLong():
            return DeepgramErrorDescription(413, "PAYLOAD_TOO_LARGE", message)
        case TranscriptQueueFull():
            return DeepgramErrorDescription(429, "TOO_MANY_REQUESTS", message, "BIG-0000")
        case KeyRefused():
            return DeepgramErrorDescription(401, "INVALID_AUTH", message)
        case ScopeMissing() | OriginRefused():
            return DeepgramErrorDescription(403, "INSUFFICIENT_PERMISSIONS", message)
        case RateLimited(retry_after_s=wait_s):
            return DeepgramErrorDescription(429, "TOO_MANY_REQUESTS", message, retry_after_s=wait_s)
        case Overloaded(retry_after_s=wait_s):
            return DeepgramErrorDescription(503, "SERVICE_UNAVAILABLE", message, retry_after_s=wait_s)
        case UnknownVoice():
            return DeepgramErrorDescription(400, "MODEL_NOT_FOUND", message, "DATA-0000")
        case BadRequest():
            return DeepgramErrorDescription(400, "INVALID_QUERY_PARAMETER", message, "DATA-0000")
        case VivavoceError():
            return DeepgramErrorDescription(500, "INTERNAL_SERVER_ERROR", message)
        case _:
            return DeepgramErrorDescription(
                500, "INTERNAL_SERVER_ERROR", "the request failed inside the server"
            )
