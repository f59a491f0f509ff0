"""Errors in Deepgram's terms: HTTP status, and codes of HTTP and of ``/v2/speak`` sockets."""

from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...kits.error_table import (
    DescribedError,
    ErrorTable,
    InvalidRequest,
    RequestBodyTooLong,
    UnknownPath,
    WrongMethod,
)
from .models import DeepgramErrorBody


@dataclass(frozen=True, slots=True)
class DeepgramError(DescribedError):
    """An error in Deepgram's terms."""

    flux_code: str = "NET-0000"  # on a /v2/speak socket


def _make_body(described: DeepgramError, error: Exception, request_id: str) -> DeepgramErrorBody:
    return DeepgramErrorBody(err_code=described.code, err_msg=described.message, request_id=request_id)


_FORBIDDEN: Final = DeepgramError(403, "INSUFFICIENT_PERMISSIONS")
DEEPGRAM_ERRORS: Final = ErrorTable(
    {
        InvalidRequest: DeepgramError(400, "INVALID_QUERY_PARAMETER", flux_code="MESSAGE-0000"),
        RequestBodyTooLong: DeepgramError(413, "PAYLOAD_TOO_LARGE"),
        TranscriptQueueFull: DeepgramError(429, "TOO_MANY_REQUESTS", flux_code="BIG-0000"),
        KeyRefused: DeepgramError(401, "INVALID_AUTH"),
        ScopeMissing: _FORBIDDEN,
        OriginRefused: _FORBIDDEN,
        RateLimited: DeepgramError(429, "TOO_MANY_REQUESTS"),
        Overloaded: DeepgramError(503, "SERVICE_UNAVAILABLE"),
        UnknownVoice: DeepgramError(400, "MODEL_NOT_FOUND", flux_code="DATA-0000"),
        UnknownPath: DeepgramError(404, "NOT_FOUND"),
        WrongMethod: DeepgramError(405, "METHOD_NOT_ALLOWED"),
        BadRequest: DeepgramError(400, "INVALID_QUERY_PARAMETER", flux_code="DATA-0000"),
        Exception: DeepgramError(500, "INTERNAL_SERVER_ERROR"),
    },
    _make_body,
    lambda: str(uuid4()),
)
