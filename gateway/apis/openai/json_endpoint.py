"""Endpoints of OpenAI's API that answer JSON: authorization, answers from models, errors."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from uuid import uuid4

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from ....tts_engine.errors import VivavoceError
from ...access.access_control import AccessControl, Grant
from ...access.keys import Scope
from ...web.openapi.operations import ACCESS_ERRORS, Responses, Schema, error_responses
from .errors import to_openai_error
from .models import OpenAIErrorBody

JsonHandler = Callable[[Request, Grant], Awaitable[BaseModel]]

REQUEST_ID_HEADER: Final[Mapping[str, Schema]] = {"x-request-id": {"schema": {"type": "string"}}}


def json_endpoint(
    access: AccessControl, scope: Scope, handler: JsonHandler
) -> Callable[..., Awaitable[Response]]:
    """Return an endpoint that needs a key of that scope; errors are answered in OpenAI's terms.

    Fields of the answer that are None are left out.
    """

    async def endpoint(request: Request) -> Response:
        headers = {"x-request-id": new_request_id()}
        try:
            grant = access.grant(request.headers)
            grant.require(scope)
            answer = await handler(request, grant)
            return JSONResponse(answer.model_dump(exclude_none=True), headers=headers)
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
