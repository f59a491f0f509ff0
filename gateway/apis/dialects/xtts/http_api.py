"""The speech endpoints of XTTS's servers: ``/tts``, ``/tts_stream``, ``/tts_to_audio`` and ``/tts_to_file``.

    fields of the body -> which server's request -> request_mapping -> SpeechJob -> WAV, L16, base64 or a file

``voices_api`` has the lists, the settings and cloning. Source: see ``models``.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from ....access.access_control import Grant
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BINARY_CONTENT,
    BODY_TOO_LONG,
    SPEECH_ERRORS,
    error_responses,
    json_body,
    json_response,
    operation,
)
from ....web.unmatched import ErrorFormat
from ...shell.exchange_folder import ExchangeFolder
from ...shell.http_errors import error_headers, error_message, error_status
from ...shell.request_fields import parse_fields, read_fields
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse
from ...shell.speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses
from .models import (
    CoquiSpeechRequest,
    FileSpeechRequest,
    NamedSpeechRequest,
    SpeakerSpeechRequest,
    XttsErrorBody,
    XttsFileWritten,
)
from .request_mapping import L16, coqui_job, named_job, speaker_job
from .settings_store import XttsSettingsStore

_API: Final = "xtts"  # in the log and the metrics
_ERRORS: Final = error_responses(
    XttsErrorBody,
    ACCESS_ERRORS,
    {400: "A field is invalid, or the server exchanges no files.", 404: "No such voice."},
    BODY_TOO_LONG,
    SPEECH_ERRORS,
)
_AUDIO: Final = {
    200: {
        "description": "Speech; streams are sent while they are made.",
        "headers": UNREAD_HEADER_SCHEMA,
        "content": dict.fromkeys(("audio/wav", "audio/x-wav", "audio/L16", "audio/pcm"), BINARY_CONTENT),
    }
}
_TTS: Final = operation(
    "xttsSpeech",
    "Speak a text: a JSON string of a WAV file in base64 for 'speaker_embedding', else a file on the server.",
    json_response(XttsFileWritten),
    _ERRORS,
    body=json_body(SpeakerSpeechRequest),
)
_TTS_STREAM: Final = operation(
    "xttsSpeechStream",
    "Speak a text while it is made: WAV for 'speaker_embedding' and 'speaker_wav', else s16le as audio/L16.",
    _AUDIO,
    _ERRORS,
    body=json_body(CoquiSpeechRequest),
)


def _query(name: str, description: str) -> dict[str, object]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}


_TTS_STREAM_QUERY: Final = operation(
    "xttsSpeechStreamOfQuery",
    "Speak the text of the query while it is made, as SillyTavern's player asks for it.",
    _AUDIO,
    _ERRORS,
    other_parameters=[
        _query("text", "Text."),
        _query("speaker_wav", "Name of a voice."),
        _query("language", "Of the text; 'en' by default."),
    ],
)
_TTS_TO_AUDIO: Final = operation(
    "xttsSpeechFile", "Speak a text as one WAV file.", _AUDIO, _ERRORS, body=json_body(NamedSpeechRequest)
)
_TTS_TO_FILE: Final = operation(
    "xttsSpeechToServerFile",
    "Speak a text into a file in the server's folder.",
    json_response(XttsFileWritten),
    _ERRORS,
    body=json_body(FileSpeechRequest),
)


class XttsSpeechApi:
    """The speech endpoints of one server; belongs to its event loop."""

    def __init__(self, host: JobServer, folder: ExchangeFolder, settings: XttsSettingsStore) -> None:
        self.host = host
        self.folder = folder
        self.settings = settings
        self.active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        router.add_api_route("/tts", self._endpoint(_SpeechForTts), methods=["POST"], **_TTS)
        stream = self._endpoint(_SpeechStream)
        router.add_api_route("/tts_stream", stream, methods=["POST"], **_TTS_STREAM)
        query = self._endpoint(_SpeechOfQuery)
        router.add_api_route("/tts_stream", query, methods=["GET"], **_TTS_STREAM_QUERY)
        audio = self._endpoint(_SpeechFile)
        router.add_api_route("/tts_to_audio", audio, methods=["POST"], **_TTS_TO_AUDIO)
        file = self._endpoint(_SpeechToServerFile)
        router.add_api_route("/tts_to_file", file, methods=["POST"], **_TTS_TO_FILE)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.host.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    def _endpoint(self, response: type["_XttsResponse"]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return response(self, request)

        return answer


class _XttsResponse(SpeechJobResponse):
    """The response to one request."""

    def __init__(self, api: XttsSpeechApi, request: Request) -> None:
        super().__init__(api.host, api.active_responses, request, _API)
        self.api = api

    def error_response(self, error: Exception) -> Response:
        return xtts_error_response(error)

    def named_job(self, fields: dict[str, Any], grant: Grant, *, streams: bool) -> SpeechJob:
        """Return the job of a request of xtts-api-server."""
        body = parse_fields(NamedSpeechRequest, fields)
        return named_job(self.host, body, self.api.settings.of(grant), grant, streams=streams)

    async def write_file(self, name: str, audio: bytes, grant: Grant, message: str) -> Response:
        """Write the speech to the folder and return its path."""
        path = await asyncio.to_thread(self.api.folder.write_speech, name, audio, grant.key_id)
        written = XttsFileWritten(message=message, output_path=str(path))
        return JSONResponse(written.model_dump(), headers=self.stream_headers)


class _SpeechForTts(_XttsResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = await read_fields(self.request)
        self._file_name: str | None = None
        if "speaker_embedding" in fields:
            return coqui_job(self.host, parse_fields(CoquiSpeechRequest, fields), grant, streams=False)
        if "speaker_wav" in fields:
            return self.named_job(fields, grant, streams=False)
        body = parse_fields(SpeakerSpeechRequest, fields)
        self._file_name = body.output_path
        self.api.folder.check_writable(body.output_path, grant.key_id)
        return speaker_job(self.host, body, grant, None)

    async def complete(self, job: SpeechJob, audio: bytes, grant: Grant) -> Response:
        if self._file_name is not None:
            return await self.write_file(self._file_name, audio, grant, "TTS completed")
        # xtts-streaming-server answers with a JSON string, not with an object.
        return JSONResponse(b64encode(audio).decode("ascii"), headers=self.stream_headers)


class _SpeechStream(_XttsResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = await read_fields(self.request)
        if "speaker_embedding" in fields:
            return coqui_job(self.host, parse_fields(CoquiSpeechRequest, fields), grant, streams=True)
        if "speaker_wav" in fields:
            return self.named_job(fields, grant, streams=True)
        # RFC 2586 wants the high byte first; the clients of this server read the low byte first.
        accepts_pcm = "audio/pcm" in self.request.headers.get("accept", "")
        body = parse_fields(SpeakerSpeechRequest, fields)
        return speaker_job(self.host, body, grant, "audio/pcm" if accepts_pcm else L16)


class _SpeechOfQuery(_XttsResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        return self.named_job(dict(self.request.query_params), grant, streams=True)


class _SpeechFile(_XttsResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        return self.named_job(await read_fields(self.request), grant, streams=False)


class _SpeechToServerFile(_XttsResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = await read_fields(self.request)
        self._file_name = parse_fields(FileSpeechRequest, fields).file_name_or_path
        self.api.folder.check_writable(self._file_name, grant.key_id)
        return self.named_job(fields, grant, streams=False)

    async def complete(self, job: SpeechJob, audio: bytes, grant: Grant) -> Response:
        return await self.write_file(self._file_name, audio, grant, "The audio was successfully made.")


def xtts_error_body(error: Exception) -> XttsErrorBody:
    """Return the body of an error, in the fields of all three servers."""
    return XttsErrorBody(error=error_message(error), detail=error_message(error))


def xtts_error_response(error: Exception) -> JSONResponse:
    """Return the answer to an error."""
    return JSONResponse(xtts_error_body(error).model_dump(), error_status(error), error_headers(error))


def _unmatched_error_body(status: int, message: str) -> XttsErrorBody:
    return XttsErrorBody(error=message, detail=message)


XTTS_ERROR_FORMATS: Final = (
    ErrorFormat("/tts_stream", _unmatched_error_body),
    ErrorFormat("/tts_to_audio", _unmatched_error_body),
    ErrorFormat("/tts_to_file", _unmatched_error_body),
)
