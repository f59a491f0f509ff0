"""Endpoints of OpenAI's API that answer JSON: authorization, answers from models, errors."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from uuid import uuid4

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from .....tts_engine.errors import VivavoceError
from ....access.access_control import AccessControl, Grant
from ....access.keys import Scope
from ....web.openapi.operations import ACCESS_ERRORS, Responses, Schema, error_responses
from ....web.unmatched import ErrorFormat
from .errors import to_openai_error
from .models import OpenAIErrorBody, OpenAIErrorDetail

JsonHandler = Callable[[Request, Grant], Awaitable[BaseModel]]
ListHandler = Callable[[Request, Grant | None], Awaitable[BaseModel]]

REQUEST_ID_HEADER: Final[Mapping[str, Schema]] = {"x-request-id": {"schema": {"type": "string"}}}


def json_endpoint(
    access: AccessControl, scope: Scope, handler: JsonHandler
) -> Callable[..., Awaitable[Response]]:
    """Return an endpoint that needs a key of that scope; errors are answered in OpenAI's terms.

    Fields of the answer that are None are left out.
    """

    async def answer(request: Request) -> BaseModel:
        grant = access.grant(request.headers)
        grant.require(scope)
        return await handler(request, grant)

    return _endpoint(answer)


def list_endpoint(access: AccessControl, handler: ListHandler) -> Callable[..., Awaitable[Response]]:
    """Return an endpoint that needs a key that may speak, or none where the settings make lists public.

    Its answers and errors are those of ``json_endpoint``.
    """

    async def answer(request: Request) -> BaseModel:
        grant = access.list_grant(request.headers)
        if grant is not None:
            grant.require(Scope.SPEAK)
        return await handler(request, grant)

    return _endpoint(answer)


def _endpoint(answer: Callable[[Request], Awaitable[BaseModel]]) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        headers = {"x-request-id": new_request_id()}
        try:
            return JSONResponse((await answer(request)).model_dump(exclude_none=True), headers=headers)
        except VivavoceError as error:
            return error_json(error, headers)

    return endpoint


def error_json(error: Exception, headers: Mapping[str, str]) -> JSONResponse:
    """Return OpenAI's answer to an error, with those headers and the status's own."""
    response = to_openai_error(error)
    return JSONResponse(response.body, response.status, {**headers, **response.headers})


def openai_errors(*errors: Mapping[int, str]) -> Responses:
    """Describe the errors of an endpoint by status; those of access control are added."""
    return error_responses(OpenAIErrorBody, ACCESS_ERRORS, *errors, headers=REQUEST_ID_HEADER)


def new_request_id() -> str:
    """Return an id for the log and for the x-request-id header."""
    return f"req_{uuid4().hex}"


def _unmatched_error_body(status: int, message: str) -> OpenAIErrorBody:
    """Return OpenAI's body for a path or method that no route has."""
    code = {404: "unknown_url", 405: "method_not_supported"}.get(status)
    return OpenAIErrorBody(error=OpenAIErrorDetail(message=message, type="invalid_request_error", code=code))


OPENAI_ERROR_FORMAT: Final = ErrorFormat("/v1", _unmatched_error_body)
