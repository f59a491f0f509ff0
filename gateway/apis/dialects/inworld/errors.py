"""Errors in Inworld's terms: HTTP status and code of google.rpc.

Source: google/rpc/code.proto of googleapis; grpc-gateway's mapping to HTTP (runtime/errors.go).
"""

from dataclasses import dataclass
from typing import Final

from .....adapters.transcript_queue import TranscriptQueueFull
from .....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ....access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...kits.error_table import DescribedError, ErrorTable, RequestBodyTooLong, UnknownPath, WrongMethod
from .models import GoogleRpcCode, InworldErrorBody


class InworldContextNotFound(VivavoceError):
    """A message names a context that is not open."""


class InworldContextExists(VivavoceError):
    """A context is created that is open."""


class InworldContextClosed(VivavoceError):
    """Text for a context that has been closed."""


class InworldContextLimitReached(VivavoceError):
    """A connection has too many contexts."""


@dataclass(frozen=True, slots=True)
class InworldError(DescribedError):
    """An error in Inworld's terms."""

    rpc_code: GoogleRpcCode = GoogleRpcCode.INTERNAL


def _make_body(described: InworldError, error: Exception, request_id: str) -> InworldErrorBody:
    return InworldErrorBody(code=described.rpc_code, message=described.message, details=[])


def _error(status: int, code: GoogleRpcCode) -> InworldError:
    return InworldError(status, rpc_code=code)


_NOT_FOUND: Final = _error(404, GoogleRpcCode.NOT_FOUND)
_EXHAUSTED: Final = _error(429, GoogleRpcCode.RESOURCE_EXHAUSTED)
_DENIED: Final = _error(403, GoogleRpcCode.PERMISSION_DENIED)
INWORLD_ERRORS: Final = ErrorTable(
    {
        RequestBodyTooLong: _error(413, GoogleRpcCode.INVALID_ARGUMENT),
        InworldContextNotFound: _NOT_FOUND,
        InworldContextExists: _error(409, GoogleRpcCode.ALREADY_EXISTS),
        InworldContextClosed: _error(400, GoogleRpcCode.FAILED_PRECONDITION),
        InworldContextLimitReached: _EXHAUSTED,
        TranscriptQueueFull: _EXHAUSTED,
        KeyRefused: _error(401, GoogleRpcCode.UNAUTHENTICATED),
        ScopeMissing: _DENIED,
        OriginRefused: _DENIED,
        RateLimited: _EXHAUSTED,
        Overloaded: _error(503, GoogleRpcCode.UNAVAILABLE),
        UnknownVoice: _NOT_FOUND,
        UnknownPath: _NOT_FOUND,
        WrongMethod: _error(405, GoogleRpcCode.UNIMPLEMENTED),
        BadRequest: _error(400, GoogleRpcCode.INVALID_ARGUMENT),
        Exception: _error(500, GoogleRpcCode.INTERNAL),
    },
    _make_body,
)
