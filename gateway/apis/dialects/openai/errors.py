"""Errors of OpenAI's API, and the mapping of every error of this package to OpenAI's status, type and code.

VivavoceError
+-- InvalidRequestError       a field at fault
|   +-- OpenAIBodyTooLong
+-- BadRequest
    +-- OpenAIResourceNotFound
"""

import math
from dataclasses import dataclass

from .....tts_engine.errors import BadRequest, BadText, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import (
    KeyRefused,
    OriginRefused,
    RateLimited,
    RequestTooLarge,
    ScopeMissing,
    UrlRefused,
)
from ...shell.model_names import UnknownModel
from .models import OpenAIErrorBody, OpenAIErrorDetail


class InvalidRequestError(VivavoceError):
    """A request or message that does not follow the API.

    Attributes:
        param: the field at fault, None for the whole request.
        code: OpenAI's code, None where it has none.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class OpenAIBodyTooLong(InvalidRequestError):
    """The body is longer than the server reads."""


class OpenAIResourceNotFound(BadRequest):
    """The path names nothing that exists."""


@dataclass(frozen=True, slots=True)
class OpenAIErrorResponse:
    """An error in OpenAI's terms."""

    status: int  # HTTP
    type: str
    message: str
    param: str | None = None  # the field at fault
    code: str | None = None
    retry_after_s: float | None = None  # None where a repeated request would fail again

    @property
    def detail(self) -> OpenAIErrorDetail:
        """The error as the body has it."""
        return OpenAIErrorDetail(message=self.message, type=self.type, param=self.param, code=self.code)

    @property
    def body(self) -> dict[str, object]:
        """The JSON body."""
        return OpenAIErrorBody(error=self.detail).model_dump()

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the status calls for."""
        headers = {} if self.retry_after_s is None else {"retry-after": str(math.ceil(self.retry_after_s))}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status == 413:
            headers["connection"] = "close"  # the rest of the body is not read
        return headers


def to_openai_error(error: Exception) -> OpenAIErrorResponse:
    """Convert an error to OpenAI's terms; the text of an unknown exception is not disclosed."""
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
        case UnknownModel():
            return OpenAIErrorResponse(404, error_type, message, "model", "model_not_found")
        case OpenAIResourceNotFound():
            return OpenAIErrorResponse(404, error_type, message, code="not_found")
        case UnknownVoice():
            return OpenAIErrorResponse(400, error_type, message, "voice", "voice_not_found")
        case UrlRefused():
            return OpenAIErrorResponse(400, error_type, message, "ref_audio", "invalid_value")
        case RequestTooLarge():
            return OpenAIErrorResponse(400, error_type, message, "input", "string_above_max_length")
        case BadText():
            return OpenAIErrorResponse(400, error_type, message, "input", "invalid_value")
        case BadRequest():
            return OpenAIErrorResponse(400, error_type, message)
        case VivavoceError():
            return OpenAIErrorResponse(500, "server_error", message)
        case _:
            return OpenAIErrorResponse(500, "server_error", "the request failed inside the server")
