"""HTTP statuses of this package's errors, for dialects whose errors are a status and a sentence."""

import math
from collections.abc import Mapping
from typing import Final

from ....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ...access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...web.errors import ResourceNotFound
from .model_names import UnknownModel


class InvalidField(BadRequest):
    """A field of a request is missing or has a value that is not allowed."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class RequestBodyTooLong(BadRequest):
    """The body is longer than the server reads."""


# The first class that matches counts; any other BadRequest is 400.
_STATUS_BY_ERROR: Final[Mapping[type[Exception], int]] = {
    KeyRefused: 401,
    ScopeMissing: 403,
    OriginRefused: 403,
    UnknownVoice: 404,
    UnknownModel: 404,
    ResourceNotFound: 404,
    RequestBodyTooLong: 413,
    RateLimited: 429,
    Overloaded: 503,
    BadRequest: 400,
}


def error_status(error: Exception) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUS_BY_ERROR.items() if isinstance(error, kind)), 500)


def error_message(error: Exception) -> str:
    """Return the sentence for the client; the text of an unknown exception is not disclosed."""
    return str(error) if isinstance(error, VivavoceError) else "the request failed inside the server"


def error_headers(error: Exception) -> dict[str, str]:
    """Return the headers that an answer to an error has."""
    match error:
        case RateLimited(retry_after_s=wait_s) | Overloaded(retry_after_s=wait_s):
            return {"retry-after": str(math.ceil(wait_s))}
        case RequestBodyTooLong():
            return {"connection": "close"}  # the rest of the body is not read
        case _:
            return {}
