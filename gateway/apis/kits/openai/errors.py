"""Errors of OpenAI's API: status, type, code and the field at fault.

VivavoceError
+-- InvalidRequestError       a field at fault
+-- BadRequest
    +-- OpenAIResourceNotFound
"""

from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from .....tts_engine.errors import BadRequest, BadText, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import (
    KeyRefused,
    OriginRefused,
    RateLimited,
    RequestTooLarge,
    ScopeMissing,
    UrlRefused,
)
from ..error_table import DescribedError, ErrorTable, RequestBodyTooLong


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


class OpenAIResourceNotFound(BadRequest):
    """The path names nothing that exists."""


class OpenAIAnswer(BaseModel):
    """Base class of answers and of server-sent events."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class OpenAIErrorDetail(OpenAIAnswer):
    """The error itself."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIErrorBody(OpenAIAnswer):
    """An error, as OpenAI's clients parse it."""

    error: OpenAIErrorDetail


@dataclass(frozen=True, slots=True)
class OpenAIError(DescribedError):
    """An error in OpenAI's terms; its code may be "", for none."""

    type: str = "invalid_request_error"
    param: str | None = None  # the field at fault

    @property
    def detail(self) -> OpenAIErrorDetail:
        """The error as the body has it."""
        return OpenAIErrorDetail(
            message=self.message, type=self.type, param=self.param, code=self.code or None
        )

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the status calls for."""
        challenge = {"www-authenticate": "Bearer"} if self.status == 401 else {}
        return {**super(OpenAIError, self).headers, **challenge}  # slots make another class: no bare super()


def _make_body(described: OpenAIError, error: Exception, request_id: str) -> OpenAIErrorBody:
    return OpenAIErrorBody(error=described.detail)


_DENIED: Final = OpenAIError(403, "insufficient_permissions")
OPENAI_ERRORS: Final = ErrorTable(
    {
        RequestBodyTooLong: OpenAIError(413),
        InvalidRequestError: lambda error: OpenAIError(400, error.code or "", param=error.param),
        KeyRefused: OpenAIError(401, "invalid_api_key"),
        ScopeMissing: _DENIED,
        OriginRefused: _DENIED,
        RateLimited: OpenAIError(429, "rate_limit_exceeded", type="requests"),
        Overloaded: lambda error: OpenAIError(503, f"overloaded_{error.reason}", type="server_error"),
        OpenAIResourceNotFound: OpenAIError(404, "not_found"),
        UnknownVoice: OpenAIError(400, "voice_not_found", param="voice"),
        UrlRefused: OpenAIError(400, "invalid_value", param="ref_audio"),
        RequestTooLarge: OpenAIError(400, "string_above_max_length", param="input"),
        BadText: OpenAIError(400, "invalid_value", param="input"),
        BadRequest: OpenAIError(400),
        Exception: OpenAIError(500, type="server_error"),
    },
    _make_body,
    lambda: f"req_{uuid4().hex}",
)
