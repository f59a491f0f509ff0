"""Base of the endpoints of OpenAI's API: their errors, and answers without absent fields."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from fastapi import Request
from fastapi.responses import JSONResponse

from ....access.keys import Scope
from ....web.openapi.operations import ACCESS_ERRORS, Responses, Schema, error_responses
from ....web.unmatched import ErrorFormat
from ...kits.http_api import Endpoint, JsonHandler, SpeechHttpApi
from ...kits.openai.errors import OPENAI_ERRORS, OpenAIErrorBody, OpenAIErrorDetail

REQUEST_ID_HEADER: Final[Mapping[str, Schema]] = {"x-request-id": {"schema": {"type": "string"}}}


def _unmatched_error_body(status: int, message: str) -> OpenAIErrorBody:
    code = {404: "unknown_url", 405: "method_not_supported"}.get(status)
    return OpenAIErrorBody(error=OpenAIErrorDetail(message=message, type="invalid_request_error", code=code))


class OpenAIHttpApi(SpeechHttpApi):
    """Endpoints of one server; belongs to its event loop."""

    name = "openai"
    errors = OPENAI_ERRORS
    error_formats: ClassVar[tuple[ErrorFormat, ...]] = (ErrorFormat("/v1", _unmatched_error_body),)

    def error_response(self, error: Exception, request_id: str) -> JSONResponse:
        return self.errors.response(error, request_id, {"x-request-id": request_id})

    def json_response(self, answer: Any, request_id: str) -> JSONResponse:
        """Return the answer; fields that are None are left out."""
        return JSONResponse(answer.model_dump(exclude_none=True), headers={"x-request-id": request_id})

    def answering(self, scope: Scope, handler: JsonHandler) -> Endpoint:
        """Return an endpoint that answers JSON to a key of that scope, also while the server drains."""

        async def answer(request: Request) -> Any:
            grant = self.server.access.grant(request.headers)
            grant.require(scope)
            return await handler(request, grant)

        return self.endpoint(answer)


def openai_errors(*errors: Mapping[int, str]) -> Responses:
    """Describe the errors of an endpoint by status; those of access control are added."""
    return error_responses(OpenAIErrorBody, ACCESS_ERRORS, *errors, headers=REQUEST_ID_HEADER)
