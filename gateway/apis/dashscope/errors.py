"""TODO."""

from dataclasses import dataclass

from ....adapters.dashscope.events import DashScopeErrorCode
from ....adapters.dashscope.parameters import InvalidDashScopeField as InvalidTaskField
from ....adapters.ssml import BadSsml
from ....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ...access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing, UrlRefused


class InvalidDashScopeField(BadRequest):
    """A field of a request or frame is missing or not allowed; the message is a sentence for the client."""


class DashScopeModelNotFound(BadRequest):
    """The request names a model that is not a CosyVoice."""


@dataclass(frozen=True, slots=True)
class DashScopeErrorResponse:
    """An error in DashScope's words. status: over HTTP. retry_after_s: when it is a matter of time."""

    code: DashScopeErrorCode
    message: str
    status: int
    retry_after_s: float | None = None


def to_dashscope_error(error: Exception) -> DashScopeErrorResponse:
    """DashScope's words for an error of ours; an error that is none of ours is told nothing about."""
    match error:
        case KeyRefused():
            return DashScopeErrorResponse(
                DashScopeErrorCode.INVALID_API_KEY, "Invalid API-key provided.", 401
            )
        case ScopeMissing() | OriginRefused():
            return DashScopeErrorResponse(DashScopeErrorCode.ACCESS_DENIED, str(error), 403)
        case Overloaded(reason="shutting_down", retry_after_s=wait_s):
            return DashScopeErrorResponse(DashScopeErrorCode.THROTTLED, str(error), 503, wait_s)
        case RateLimited(retry_after_s=wait_s) | Overloaded(retry_after_s=wait_s):
            message = f"Requests rate limit exceeded, please try again later. ({error})"
            return DashScopeErrorResponse(DashScopeErrorCode.THROTTLED, message, 429, wait_s)
        case DashScopeModelNotFound():
            return DashScopeErrorResponse(DashScopeErrorCode.MODEL_NOT_FOUND, str(error), 404)
        case UnknownVoice():
            return DashScopeErrorResponse(
                DashScopeErrorCode.INVALID_PARAMETER, f"[tts:]Engine return error code: 418 ({error})", 400
            )
        case UrlRefused():
            return DashScopeErrorResponse(DashScopeErrorCode.DOWNLOAD_FAILED, str(error), 400)
        case BadRequest() | InvalidTaskField() | BadSsml():
            return DashScopeErrorResponse(DashScopeErrorCode.INVALID_PARAMETER, str(error), 400)
        case VivavoceError():
            return DashScopeErrorResponse(DashScopeErrorCode.INTERNAL, str(error), 500)
        case _:
            return DashScopeErrorResponse(
                DashScopeErrorCode.INTERNAL, "the task failed inside the server", 500
            )
