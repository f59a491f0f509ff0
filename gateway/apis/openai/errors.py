"""TODO."""

import math
from dataclasses import dataclass
from typing import Any

from ....adapters.openai.json_fields import InvalidRequestError
from ....adapters.openai.responses import error_body
from ....tts_engine.errors import BadRequest, BadText, Overloaded, UnknownVoice, VivavoceError
from ...access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing, UrlRefused


class OpenAIResourceNotFound(BadRequest):
    """What is asked about is not here."""


class OpenAIModelNotFound(BadRequest):
    """No model of that name is here."""


class OpenAIBodyTooLong(InvalidRequestError):
    """The body goes on beyond what is read."""


@dataclass(frozen=True, slots=True)
class OpenAIErrorResponse:
    """An error in OpenAI's words. retry_after_s: when it is a matter of time."""

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of it."""
        return error_body(self.message, self.kind, self.param, self.code)

    @property
    def headers(self) -> dict[str, str]:
        """What goes with it."""
        headers = {} if self.retry_after_s is None else {"retry-after": str(math.ceil(self.retry_after_s))}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status == 413:
            headers["connection"] = "close"  # the rest of it is not waited for
        return headers


def to_openai_error(error: Exception) -> OpenAIErrorResponse:
    """OpenAI's words for an error of ours; an error that is none of ours is told nothing about."""
    error_type, message = "invalid_request_error", str(error)
    match error:
        case OpenAIBodyTooLong():
            return OpenAIErrorResponse(413, error_type, message)
        case InvalidRequestError(param=param, code=code):
            return OpenAIErrorResponse(400, error_type, message, param, code)
        case KeyRefused():
            return OpenAIErrorResponse(401, error_type, message, code="invalid_api_key")
        case ScopeMissing() | OriginRefused():
            return OpenAIErrorResponse(403, error_type, message, code="insufficient_permissions")
        case RateLimited(retry_after_s=wait_s):
            return OpenAIErrorResponse(
                429, "requests", message, code="rate_limit_exceeded", retry_after_s=wait_s
            )
        case Overloaded(retry_after_s=wait_s, reason=reason):
            return OpenAIErrorResponse(
                503, "server_error", message, code=f"overloaded_{reason}", retry_after_s=wait_s
            )
        case OpenAIModelNotFound():
            return OpenAIErrorResponse(404, error_type, message, "model", "model_not_found")
        case OpenAIResourceNotFound():
            return OpenAIErrorResponse(404, error_type, message, code="not_found")
        case UnknownVoice():
            return OpenAIErrorResponse(400, error_type, message, "voice", "voice_not_found")
        case UrlRefused():
            return OpenAIErrorResponse(400, error_type, message, "ref_audio", "invalid_value")
        case BadText():
            return OpenAIErrorResponse(400, error_type, message, "input", "invalid_value")
        case BadRequest():
            return OpenAIErrorResponse(400, error_type, message)
        case VivavoceError():
            return OpenAIErrorResponse(500, "server_error", message)
        case _:
            return OpenAIErrorResponse(500, "server_error", "the request failed inside the server")
