"""Errors in the terms of a dialect: a table from this package's errors to a status and the dialect's words.

    error  ->  the entry of its nearest class  ->  DescribedError  ->  the dialect's body  ->  a response

A dialect with words of its own derives its entries from ``DescribedError``. An entry may be a function of
the error. ``STATUSES`` is the table of dialects whose errors are a status and a sentence.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from ....tts_engine.errors import BadRequest, Overloaded, UnknownVoice, VivavoceError
from ...access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing
from ...web.errors import ResourceNotFound
from ...web.unmatched import ErrorFormat

_UNDISCLOSED: Final = "the request failed inside the server"


class InvalidRequest(BadRequest):
    """A request or message that does not follow the API."""


class InvalidField(InvalidRequest):
    """A field of a request is missing or has a value that is not allowed.

    Attributes:
        field: its name, dotted if it is in an object.
        place: the part of the request, such as "body", and the names from the outermost.
    """

    def __init__(self, field: str, problem: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.place = place


class RequestBodyTooLong(BadRequest):
    """The body is longer than the server reads."""


class UnknownPath(ResourceNotFound):
    """No route has the path."""


class WrongMethod(BadRequest):
    """The path has no such method."""


@dataclass(frozen=True, slots=True)
class DescribedError:
    """An error in a dialect's terms."""

    status: int  # HTTP
    code: str = ""  # the dialect's word for it
    message: str = "{}"  # in a table, {} is the error's own sentence
    retry_after_s: float | None = None  # None where a repeated request would fail again

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its answer over HTTP."""
        headers = {} if self.retry_after_s is None else {"retry-after": str(math.ceil(self.retry_after_s))}
        return {**headers, **({"connection": "close"} if self.status == 413 else {})}  # the rest is not read


D = TypeVar("D", bound=DescribedError)
Entries = Mapping[type[Exception], D | Callable[[Any], D]]


def describe(error: Exception, entries: Entries[D]) -> D:
    """Describe an error by the entry of its class, or of the nearest base class that has one.

    The text of an exception that is not this package's is not disclosed.
    """
    entry = next(entries[kind] for kind in type(error).__mro__ if kind in entries)
    described = entry if isinstance(entry, DescribedError) else entry(error)
    sentence = str(error) if isinstance(error, VivavoceError) else _UNDISCLOSED
    wait_s = error.retry_after_s if isinstance(error, RateLimited | Overloaded) else None
    return replace(described, message=described.message.format(sentence), retry_after_s=wait_s)


@dataclass(frozen=True, slots=True)
class ErrorTable(Generic[D]):
    """The errors of a dialect."""

    entries: Entries[D]  # of Exception at least
    make_body: Callable[[D, Exception, str], BaseModel]  # of an error, by the request's id
    make_request_id: Callable[[], str] = lambda: uuid4().hex

    def describe(self, error: Exception) -> D:
        """Describe an error."""
        return describe(error, self.entries)

    def body(self, error: Exception, request_id: str = "") -> BaseModel:
        """Return the body of the answer to an error."""
        return self.make_body(self.describe(error), error, request_id)

    def response(
        self, error: Exception, request_id: str = "", headers: Mapping[str, str] | None = None
    ) -> JSONResponse:
        """Return the answer to an error, with those headers and its own."""
        described = self.describe(error)
        body = self.make_body(described, error, request_id)
        return JSONResponse(body.model_dump(), described.status, {**(headers or {}), **described.headers})

    def formats(self, *prefixes: str) -> tuple[ErrorFormat, ...]:
        """The errors of what no route answers below those paths."""
        return tuple(ErrorFormat(prefix, self._unmatched_body) for prefix in prefixes)

    def _unmatched_body(self, status: int, message: str) -> BaseModel:
        error = UnknownPath(message) if status == 404 else WrongMethod(message)
        return self.body(error, self.make_request_id())


STATUSES: Final[Entries[DescribedError]] = {
    KeyRefused: DescribedError(401),
    ScopeMissing: DescribedError(403),
    OriginRefused: DescribedError(403),
    UnknownVoice: DescribedError(404),
    ResourceNotFound: DescribedError(404),
    RequestBodyTooLong: DescribedError(413),
    RateLimited: DescribedError(429),
    BadRequest: DescribedError(400),
    Overloaded: DescribedError(503),
    Exception: DescribedError(500),
}


class ErrorSentence(BaseModel):
    """An error, of dialects without words of their own."""

    error: str


SENTENCES: Final = ErrorTable(
    STATUSES, lambda described, error, request_id: ErrorSentence(error=described.message)
)
