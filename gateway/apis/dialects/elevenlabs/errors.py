"""Errors in ElevenLabs' terms: HTTP status, and a word that the service calls "status"."""

from typing import Final

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...kits.error_table import (
    DescribedError,
    ErrorTable,
    InvalidField,
    InvalidRequest,
    RequestBodyTooLong,
    UnknownPath,
    WrongMethod,
)
from .models import ElevenLabsErrorBody, ElevenLabsErrorDetail, ElevenLabsInvalidField


class ElevenLabsFormatUnknown(BadRequest):
    """An output format that the API does not have."""


class ElevenLabsContextClosed(VivavoceError):
    """Text for a context whose last text has come."""


class ElevenLabsContextLimitReached(VivavoceError):
    """A connection has too many contexts."""


def _make_body(described: DescribedError, error: Exception, request_id: str) -> ElevenLabsErrorBody:
    if isinstance(error, InvalidRequest):
        place = error.place if isinstance(error, InvalidField) else ("body",)
        return ElevenLabsErrorBody(detail=[ElevenLabsInvalidField(loc=list(place), msg=described.message)])
    return ElevenLabsErrorBody(detail=ElevenLabsErrorDetail(status=described.code, message=described.message))


_FORBIDDEN: Final = DescribedError(403, "missing_permissions")
_TOO_MANY: Final = DescribedError(429, "too_many_concurrent_requests")
ELEVENLABS_ERRORS: Final = ErrorTable(
    {
        InvalidRequest: DescribedError(422, "invalid_request"),
        ElevenLabsFormatUnknown: DescribedError(400, "invalid_output_format"),
        RequestBodyTooLong: DescribedError(413, "request_too_large"),
        ElevenLabsContextClosed: DescribedError(400, "context_closed"),
        ElevenLabsContextLimitReached: DescribedError(400, "max_active_conversations"),
        TranscriptQueueFull: _TOO_MANY,
        KeyRefused: DescribedError(401, "invalid_api_key"),
        ScopeMissing: _FORBIDDEN,
        OriginRefused: _FORBIDDEN,
        RateLimited: _TOO_MANY,
        Overloaded: DescribedError(503, "system_busy"),
        UnknownVoice: DescribedError(404, "voice_not_found"),
        UnknownPath: DescribedError(404, "not_found"),
        WrongMethod: DescribedError(405, "method_not_allowed"),
        BadRequest: DescribedError(400, "invalid_request"),
        Exception: DescribedError(500, "internal_error"),
    },
    _make_body,
)
