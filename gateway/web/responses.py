"""JSON answers in the server's own format, that of the calls API, the page and the operator's routes."""

from collections.abc import Mapping

from pydantic import BaseModel

from .openapi.operations import ACCESS_ERRORS, Responses, error_responses


class ErrorBody(BaseModel):
    """An error."""

    error: str


class Status(BaseModel):
    """The result of an action or of a probe."""

    status: str
    reason: str | None = None


def native_errors(*errors: Mapping[int, str]) -> Responses:
    """Describe a route's errors by status; those of access control are added."""
    return error_responses(ErrorBody, ACCESS_ERRORS, *errors)
