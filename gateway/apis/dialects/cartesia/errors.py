"""Errors in Cartesia's terms: status, code and title."""

from dataclasses import dataclass
from typing import Final

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...kits.error_table import DescribedError, ErrorTable, RequestBodyTooLong, UnknownPath, WrongMethod
from .models import CartesiaErrorBody, new_cartesia_id


class CartesiaContextClosed(BadRequest):
    """Text for a context whose last text has come."""


class CartesiaLimitReached(VivavoceError):
    """A connection has too many contexts."""


@dataclass(frozen=True, slots=True)
class CartesiaError(DescribedError):
    """An error in Cartesia's terms."""

    title: str = ""


def _make_body(described: CartesiaError, error: Exception, request_id: str) -> CartesiaErrorBody:
    return CartesiaErrorBody(
        error_code=described.code,
        title=described.title,
        message=described.message,
        request_id=request_id,
        status_code=described.status,
    )


_FORBIDDEN: Final = CartesiaError(403, "forbidden", title="Forbidden")
_TOO_MANY: Final = CartesiaError(429, "concurrency_limited", title="Too many contexts")
CARTESIA_ERRORS: Final = ErrorTable(
    {
        RequestBodyTooLong: CartesiaError(413, "request_too_large", title="Request too large"),
        CartesiaContextClosed: CartesiaError(400, "context_closed", title="Context closed"),
        CartesiaLimitReached: _TOO_MANY,
        TranscriptQueueFull: _TOO_MANY,
        KeyRefused: CartesiaError(401, "unauthorized", title="Unauthorized"),
        ScopeMissing: _FORBIDDEN,
        OriginRefused: _FORBIDDEN,
        RateLimited: CartesiaError(429, "rate_limited", title="Too many requests"),
        Overloaded: CartesiaError(503, "overloaded", title="Server at capacity"),
        UnknownVoice: CartesiaError(404, "voice_not_found", title="Voice not found"),
        UnknownPath: CartesiaError(404, "not_found", title="No such endpoint"),
        WrongMethod: CartesiaError(405, "method_not_allowed", title="No such endpoint"),
        BadRequest: CartesiaError(400, "invalid_request", title="Invalid request"),
        VivavoceError: CartesiaError(500, "internal_error", title="Speech failed"),
        Exception: CartesiaError(500, "internal_error", title="Internal error"),
    },
    _make_body,
    new_cartesia_id,
)
