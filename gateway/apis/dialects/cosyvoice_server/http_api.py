"""Upstream CosyVoice's HTTP endpoints: a form in, s16le at 24 kHz out while it is made.

The published client sends the form as the body of a GET request, so each path has both methods. Source: see
``models``.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from ....access.access_control import Grant
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BINARY_CONTENT,
    BODY_TOO_LONG,
    SPEECH_ERRORS,
    error_responses,
    form_body,
    operation,
)
from ...shell.http_errors import InvalidField, error_headers, error_message, error_status
from ...shell.request_fields import parse_fields, read_fields
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse
from ...shell.speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses
from .models import (
    CosyVoiceErrorBody,
    CosyVoiceForm,
    CrossLingualForm,
    InstructForm,
    RecordingInstructForm,
    SftForm,
    ZeroShotForm,
    inference_job,
)

_API: Final = "cosyvoice"  # in the log and the metrics
_FORMS: Final[Mapping[str, type[CosyVoiceForm]]] = {
    "inference_sft": SftForm,
    "inference_zero_shot": ZeroShotForm,
    "inference_cross_lingual": CrossLingualForm,
    "inference_instruct": InstructForm,
    "inference_instruct2": RecordingInstructForm,
}
_AUDIO: Final = {
    200: {
        "description": "s16le samples at 24 kHz, while they are made.",
        "headers": UNREAD_HEADER_SCHEMA,
        "content": {"application/octet-stream": BINARY_CONTENT},
    }
}
_ERRORS: Final = error_responses(
    CosyVoiceErrorBody,
    ACCESS_ERRORS,
    {400: "The text or the recording is unusable, or the loaded model clones no voices."},
    {404: "No such voice.", 422: "A field is missing or invalid."},
    BODY_TOO_LONG,
    SPEECH_ERRORS,
)


class CosyVoiceHttpApi:
    """The endpoints of one server; belongs to its event loop."""

    def __init__(self, host: JobServer) -> None:
        self._host = host
        self._active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        for name, form in _FORMS.items():
            for method in ("GET", "POST"):
                described = operation(
                    f"{name}_{method.lower()}",
                    f"Speak a text: upstream CosyVoice's {name}.",
                    _AUDIO,
                    _ERRORS,
                    body=form_body(form),
                )
                router.add_api_route(f"/{name}", self._endpoint(form), methods=[method], **described)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self._host.server.start_draining()
        await self._active_responses.wait_finished(within_s)

    def _endpoint(self, form: type[CosyVoiceForm]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return _CosyVoiceResponse(self._host, self._active_responses, request, form)

        return answer


class _CosyVoiceResponse(SpeechJobResponse):
    def __init__(
        self, host: JobServer, active: ActiveResponses, request: Request, form: type[CosyVoiceForm]
    ) -> None:
        super().__init__(host, active, request, _API)
        self._form = form

    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = {**self.request.query_params, **await self._read_body()}
        return inference_job(self.host, parse_fields(self._form, fields), grant)

    async def _read_body(self) -> dict[str, object]:
        has_body = "content-type" in self.request.headers
        return await read_fields(self.request) if has_body else {}

    def error_response(self, error: Exception) -> Response:
        # FastAPI, on which upstream's server is built, answers 422 to a wrong field.
        status = 422 if isinstance(error, InvalidField) else error_status(error)
        body = CosyVoiceErrorBody(detail=error_message(error))
        return JSONResponse(body.model_dump(), status, error_headers(error))
