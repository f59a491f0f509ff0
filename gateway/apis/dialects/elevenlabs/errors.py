"""Every error of this package in ElevenLabs' terms: HTTP status, status word and message."""

from dataclasses import dataclass

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...shell.model_names import UnknownModel


class InvalidElevenLabsRequest(VivavoceError):
    """A request or message that does not follow the API.

    Attributes:
        place: names of the field at fault, from the outermost.
    """

    def __init__(self, message: str, place: tuple[str | int, ...] = ("body",)) -> None:
        super().__init__(message)
        self.place = place


class ElevenLabsFormatUnknown(VivavoceError):
    """An output format that the API does not have."""


class ElevenLabsBodyTooLong(VivavoceError):
    """The body is longer than the server reads."""


class ElevenLabsContextClosed(VivavoceError):
    """Text for a context whose last text has come."""


class ElevenLabsContextLimitReached(VivavoceError):
    """A connection has too many contexts."""


@dataclass(frozen=True, slots=True)
class ElevenLabsErrorDescription:
    """An error in ElevenLabs' terms."""

    http_status: int
    status: str  # ElevenLabs' word for it
    message: str
    retry_after_s: float | None = None  # None where a repeated request would fail again


def to_elevenlabs_error(error: Exception) -> ElevenLabsErrorDescription:
    """Describe an error; the text of an unknown exception is not disclosed."""
    message = str(error)
    match error:
        case InvalidElevenLabsRequest():
            return ElevenLabsErrorDescription(422, "invalid_request", message)
        case ElevenLabsFormatUnknown():
            return ElevenLabsErrorDescription(400, "invalid_output_format", message)
        case ElevenLabsBodyTooLong():
            return ElevenLabsErrorDescription(413, "request_too_large", message)
        case ElevenLabsContextClosed():
            return ElevenLabsErrorDescription(400, "context_closed", message)
        case ElevenLabsContextLimitReached():
            return ElevenLabsErrorDescription(400, "max_active_conversations", message)
        case TranscriptQueueFull():
            return ElevenLabsErrorDescription(429, "too_many_concurrent_requests", message)
        case KeyRefused():
            return ElevenLabsErrorDescription(401, "invalid_api_key", message)
        case ScopeMissing() | OriginRefused():
            return ElevenLabsErrorDescription(403, "missing_permissions", message)
        case RateLimited(retry_after_s=wait_s):
            return ElevenLabsErrorDescription(429, "too_many_concurrent_requests", message, wait_s)
        case Overloaded(retry_after_s=wait_s):
            return ElevenLabsErrorDescription(503, "system_busy", message, wait_s)
        case UnknownVoice():
            return ElevenLabsErrorDescription(404, "voice_not_found", message)
        case UnknownModel():
            return ElevenLabsErrorDescription(400, "model_not_found", message)
        case BadRequest():
            return ElevenLabsErrorDescription(400, "invalid_request", message)
        case VivavoceError():
            return ElevenLabsErrorDescription(500, "internal_error", message)
        case _:
            return ElevenLabsErrorDescription(500, "internal_error", "the request failed inside the server")
