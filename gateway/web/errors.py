"""Errors of resources, which the HTTP app answers with 404 and 409, and answers in the server's own format.

BadRequest
+-- ResourceNotFound
+-- ResourceConflict

The calls API, the page and the operator's routes have that format.
"""

from collections.abc import Mapping

from pydantic import BaseModel

from ...tts_engine.errors import BadRequest
from .openapi.operations import ACCESS_ERRORS, Responses, error_responses


class ResourceNotFound(BadRequest):
    """The path names nothing that exists: HTTP 404."""


class ResourceConflict(BadRequest):
    """The resource is in use by another client: HTTP 409."""


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
