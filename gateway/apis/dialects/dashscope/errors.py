"""DashScope's errors: the translation of vivavoce's errors to DashScope's codes, texts and HTTP status.

BadRequest
├── InvalidDashScopeField    a field of a request or frame is missing or not allowed
└── DashScopeModelNotFound   the model is not a CosyVoice
"""

from dataclasses import dataclass

from .....adapters.dashscope.events import DashScopeErrorCode as Code
from .....adapters.ssml.document import BadSsml
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing, UrlRefused
from ...shell.model_names import UnknownModel


class InvalidDashScopeField(BadRequest):
    """A field of a request or frame is missing or not allowed; the message is a sentence for the client."""


class DashScopeModelNotFound(BadRequest):
    """The request names a model that is not a CosyVoice."""


@dataclass(frozen=True, slots=True)
class DashScopeErrorResponse:
    """An error as DashScope's clients see it."""

    code: Code
    message: str
    status: int  # of HTTP
    retry_after_s: float | None = None  # None where trying again does not help


def to_dashscope_error(error: Exception) -> DashScopeErrorResponse:
    """Translate an error; an exception that is not vivavoce's becomes a generic 500."""
    match error:
        case KeyRefused():
            return DashScopeErrorResponse(Code.INVALID_API_KEY, "Invalid API-key provided.", 401)
        case ScopeMissing() | OriginRefused():
            return DashScopeErrorResponse(Code.ACCESS_DENIED, str(error), 403)
        case Overloaded(reason="shutting_down" | "disk" | "process", retry_after_s=wait_s):
            return DashScopeErrorResponse(Code.THROTTLED, str(error), 503, wait_s)
        case RateLimited(retry_after_s=wait_s) | Overloaded(retry_after_s=wait_s):
            # DashScope's own sentence, and in brackets which limit it was.
            message = f"Requests rate limit exceeded, please try again later. ({error})"
            return DashScopeErrorResponse(Code.THROTTLED, message, 429, wait_s)
        case DashScopeModelNotFound() | UnknownModel():
            return DashScopeErrorResponse(Code.MODEL_NOT_FOUND, str(error), 404)
        case UnknownVoice():
            # DashScope's own text for a voice that does not exist.
            message = f"[tts:]Engine return error code: 418 ({error})"
            return DashScopeErrorResponse(Code.INVALID_PARAMETER, message, 400)
        case UrlRefused():
            return DashScopeErrorResponse(Code.DOWNLOAD_FAILED, str(error), 400)
        case BadRequest() | BadSsml():
            return DashScopeErrorResponse(Code.INVALID_PARAMETER, str(error), 400)
        case VivavoceError():
            return DashScopeErrorResponse(Code.INTERNAL, str(error), 500)
        case _:
            return DashScopeErrorResponse(Code.INTERNAL, "the task failed inside the server", 500)
