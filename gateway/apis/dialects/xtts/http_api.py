"""The speech endpoints of XTTS's servers: ``/tts``, ``/tts_stream``, ``/tts_to_audio`` and ``/tts_to_file``.

    fields of the body -> which server's request -> request_mapping -> SpeechJob -> WAV, L16, base64 or a file

``voices_api`` has the lists, the settings and cloning. Source: see ``models``.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from fastapi.responses import JSONResponse, Response

from ....access.access_control import Grant
from ....web.openapi.operations import json_body, json_response, operation
from ...kits.error_table import STATUSES, DescribedError, ErrorTable
from ...kits.exchange_folder import ExchangeFolder
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import query, speech_errors
from ...kits.request_fields import parse_fields, read_fields
from ...kits.speech_response import audio_response
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer
from .models import (
    CoquiSpeechRequest,
    FileSpeechRequest,
    NamedSpeechRequest,
    SpeakerSpeechRequest,
    XttsErrorBody,
    XttsFileWritten,
)
from .request_mapping import L16, XttsSettingsStore, coqui_job, named_job, speaker_job

_ERRORS: Final = speech_errors(
    XttsErrorBody, {400: "A field is invalid, or the server exchanges no files.", 404: "No such voice."}
)
_AUDIO: Final = audio_response(
    "Speech; streams are sent while they are made.", *("audio/wav", "audio/x-wav", "audio/L16", "audio/pcm")
)
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
_TTS_STREAM_QUERY: Final = operation(
    "xttsSpeechStreamOfQuery",
    "Speak the text of the query while it is made, as SillyTavern's player asks for it.",
    _AUDIO,
    _ERRORS,
    other_parameters=[
        query("text", "Text."),
        query("speaker_wav", "Name of a voice."),
        query("language", "Of the text; 'en' by default."),
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


def _error_body(described: DescribedError, error: Exception, request_id: str) -> XttsErrorBody:
    return XttsErrorBody(error=described.message, detail=described.message)  # for all three servers


XTTS_ERRORS: Final = ErrorTable(STATUSES, _error_body)


class XttsSpeechApi(SpeechHttpApi):
    """The speech endpoints of one server; belongs to its event loop."""

    name = "xtts"
    errors = XTTS_ERRORS
    error_formats = XTTS_ERRORS.formats("/tts_stream", "/tts_to_audio", "/tts_to_file")

    def __init__(self, server: SpeechServer, folder: ExchangeFolder, settings: XttsSettingsStore) -> None:
        super().__init__(server)
        self.folder = folder
        self.settings = settings

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield "POST /tts", self.speaking(_SpeechForTts), _TTS
        yield "POST /tts_stream", self.speaking(_SpeechStream), _TTS_STREAM
        yield "GET /tts_stream", self.speaking(_SpeechOfQuery), _TTS_STREAM_QUERY
        yield "POST /tts_to_audio", self.speaking(_SpeechFile), _TTS_TO_AUDIO
        yield "POST /tts_to_file", self.speaking(_SpeechToServerFile), _TTS_TO_FILE


class _XttsResponse(SpeechJobResponse):
    """The response to one request."""

    api: XttsSpeechApi

    def named_job(self, fields: dict[str, Any], grant: Grant, *, streams: bool) -> SpeechJob:
        """Return the job of a request of xtts-api-server."""
        body = parse_fields(NamedSpeechRequest, fields)
        return named_job(self.server, body, self.api.settings.of(grant), grant, streams=streams)

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
            return coqui_job(self.server, parse_fields(CoquiSpeechRequest, fields), grant, streams=False)
        if "speaker_wav" in fields:
            return self.named_job(fields, grant, streams=False)
        body = parse_fields(SpeakerSpeechRequest, fields)
        self._file_name = body.output_path
        self.api.folder.check_writable(body.output_path, grant.key_id)
        return speaker_job(self.server, body, grant, None)

    async def complete(self, job: SpeechJob, audio: bytes, grant: Grant) -> Response:
        if self._file_name is not None:
            return await self.write_file(self._file_name, audio, grant, "TTS completed")
        # xtts-streaming-server answers with a JSON string, not with an object.
        return JSONResponse(b64encode(audio).decode("ascii"), headers=self.stream_headers)


class _SpeechStream(_XttsResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = await read_fields(self.request)
        if "speaker_embedding" in fields:
            return coqui_job(self.server, parse_fields(CoquiSpeechRequest, fields), grant, streams=True)
        if "speaker_wav" in fields:
            return self.named_job(fields, grant, streams=True)
        # RFC 2586 wants the high byte first; the clients of this server read the low byte first.
        accepts_pcm = "audio/pcm" in self.request.headers.get("accept", "")
        body = parse_fields(SpeakerSpeechRequest, fields)
        return speaker_job(self.server, body, grant, "audio/pcm" if accepts_pcm else L16)


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
