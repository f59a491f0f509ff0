"""DashScope's errors: codes, texts and HTTP status.

BadRequest
├── InvalidDashScopeField    a field of a request or frame is missing or not allowed
├── DashScopeModelNotFound   the model is not a CosyVoice
└── DashScopeVoiceNotFound   an action names a voice that is not enrolled
"""

from typing import Annotated, Final
from uuid import uuid4

from pydantic import BaseModel, Field

from .....adapters.dashscope.events import DashScopeErrorCode as Code
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing, UrlRefused
from ..error_table import DescribedError, ErrorTable, UnknownPath, WrongMethod


class InvalidDashScopeField(BadRequest):
    """A field of a request or frame is missing or not allowed; the message is a sentence for the client."""


class DashScopeModelNotFound(BadRequest):
    """The request names a model that is not a CosyVoice."""


class DashScopeVoiceNotFound(BadRequest):
    """An action names a voice that is not enrolled."""


class DashScopeErrorBody(BaseModel):
    """A refused or failed request."""

    request_id: str
    code: Annotated[str, Field(description="DashScope's error code.", examples=["InvalidParameter"])]
    message: str


def _make_body(described: DescribedError, error: Exception, request_id: str) -> DashScopeErrorBody:
    return DashScopeErrorBody(request_id=request_id, code=described.code, message=described.message)


# Sentences of DashScope's own, and in brackets what it was.
_LIMITED: Final = DescribedError(
    429, Code.THROTTLED, "Requests rate limit exceeded, please try again later. ({})"
)
_NO_PATH: Final = DescribedError(404, Code.INVALID_PARAMETER, "url error, please check url! ({})")
_DENIED: Final = DescribedError(403, Code.ACCESS_DENIED)


def _overloaded(error: Overloaded) -> DescribedError:
    is_down = error.reason in ("shutting_down", "disk", "process", "device")
    return DescribedError(503, Code.THROTTLED) if is_down else _LIMITED


DASHSCOPE_ERRORS: Final = ErrorTable(
    {
        KeyRefused: DescribedError(401, Code.INVALID_API_KEY, "Invalid API-key provided."),
        ScopeMissing: _DENIED,
        OriginRefused: _DENIED,
        RateLimited: _LIMITED,
        Overloaded: _overloaded,
        DashScopeModelNotFound: DescribedError(404, Code.MODEL_NOT_FOUND),
        UnknownVoice: DescribedError(400, Code.INVALID_PARAMETER, "[tts:]Engine return error code: 418 ({})"),
        DashScopeVoiceNotFound: DescribedError(400, Code.VOICE_NOT_FOUND),
        UrlRefused: DescribedError(400, Code.DOWNLOAD_FAILED),
        UnknownPath: _NO_PATH,
        WrongMethod: _NO_PATH,
        BadRequest: DescribedError(400, Code.INVALID_PARAMETER),
        VivavoceError: DescribedError(500, Code.INTERNAL),
        Exception: DescribedError(500, Code.INTERNAL, "the task failed inside the server"),
    },
    _make_body,
    lambda: str(uuid4()),
)
