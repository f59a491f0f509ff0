"""Deepgram's HTTP speech: ``POST /v1/speak`` and, with the same fields, ``POST /v2/speak``."""

import math
from typing import Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from ....access.access_control import Grant
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BINARY_CONTENT,
    BODY_TOO_LONG,
    SPEECH_ERRORS,
    Schema,
    error_responses,
    json_body,
    operation,
)
from ....web.request_body import read_body
from ....web.unmatched import ErrorFormat
from ...shell.speech import AUDIO_CONTENT_TYPES
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse
from ...shell.speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses
from .errors import DeepgramBodyTooLong, to_deepgram_error
from .models import (
    MAX_BODY_BYTES,
    DeepgramErrorBody,
    DeepgramQuery,
    DeepgramSpeechRequest,
    parse_speech_request,
)
from .output_format import make_response_encoding
from .request_mapping import make_deepgram_options, resolve_deepgram_voice

PATHS: Final = ("/v1/speak", "/v2/speak")
_API: Final = "deepgram"  # in the log and the metrics


def _query(name: str, description: str, kind: str = "string") -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind}}


_PARAMETERS: Final = [
    _query("model", "The voice; one of Deepgram's is the default voice."),
    _query("encoding", "'mp3' (default), 'linear16', 'mulaw', 'alaw', 'opus', 'flac' or 'aac'."),
    _query("container", "'wav' (default), 'none' or, of 'opus', 'ogg'."),
    _query("sample_rate", "Hz.", "integer"),
    _query("bit_rate", "Bits a second.", "integer"),
    _query("speed", "Factor of the usual rate.", "number"),
]
_ERRORS: Final = error_responses(
    DeepgramErrorBody,
    ACCESS_ERRORS,
    {400: "A parameter or the text is invalid."},
    BODY_TOO_LONG,
    SPEECH_ERRORS,
)


class DeepgramHttpApi:
    """The endpoints of one server; belongs to its event loop."""

    def __init__(self, host: JobServer) -> None:
        self.host = host
        self.active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        for version, path in enumerate(PATHS, 1):
            audio = {
                "description": "Audio, while it is made.",
                "headers": UNREAD_HEADER_SCHEMA,
                "content": dict.fromkeys(AUDIO_CONTENT_TYPES, BINARY_CONTENT),
            }
            described = operation(
                f"deepgramSpeech{version}",
                "Speak a text: Deepgram's request.",
                {200: audio},
                _ERRORS,
                other_parameters=_PARAMETERS,
                body=json_body(DeepgramSpeechRequest),
            )
            router.add_api_route(path, self._speak, methods=["POST"], **described)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.host.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    async def _speak(self, request: Request) -> Response:
        return _DeepgramSpeechResponse(self.host, self.active_responses, request)


class _DeepgramSpeechResponse(SpeechJobResponse):
    def __init__(self, host: JobServer, active: ActiveResponses, request: Request) -> None:
        super().__init__(host, active, request, _API, request_id=str(uuid4()), id_header="dg-request-id")

    async def read_job(self, grant: Grant) -> SpeechJob:
        body = await read_body(self.request, MAX_BODY_BYTES, DeepgramBodyTooLong)
        text = parse_speech_request(body).text
        query = DeepgramQuery.of(self.request.query_params)
        encoding = make_response_encoding(query)
        voice = resolve_deepgram_voice(self.host.voices, self.host.server.models, query.model, grant)
        self.stream_headers["dg-char-count"] = str(len(text))
        self.stream_headers["dg-model-name"] = voice.encode("ascii", "replace").decode()
        options = make_deepgram_options(query, voice, encoding.audio)
        return SpeechJob(text, options, content_type=encoding.content_type, header=encoding.header)

    def error_response(self, error: Exception) -> Response:
        return deepgram_error_response(error, self.request_id)


def deepgram_error_response(error: Exception, request_id: str) -> JSONResponse:
    """Return the answer to an error; clients of a socket read the header ``dg-error``."""
    described = to_deepgram_error(error)
    message = " ".join(described.message.encode("ascii", "replace").decode().split())
    headers = {"dg-request-id": request_id, "dg-error": message}
    if described.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(described.retry_after_s))
    if described.status == 413:
        headers["connection"] = "close"  # the rest of the body is not read
    body = DeepgramErrorBody(err_code=described.code, err_msg=described.message, request_id=request_id)
    return JSONResponse(body.model_dump(), described.status, headers)


def _unmatched_error_body(status: int, message: str) -> DeepgramErrorBody:
    code = "NOT_FOUND" if status == 404 else "METHOD_NOT_ALLOWED"
    return DeepgramErrorBody(err_code=code, err_msg=message, request_id=str(uuid4()))


DEEPGRAM_ERROR_FORMATS: Final = tuple(ErrorFormat(path, _unmatched_error_body) for path in PATHS)
