"""Inworld's HTTP endpoints.

POST /tts/v1/voice            one JSON object: all audio in base64, and the times of its words
POST /tts/v1/voice:stream     a JSON object a line, each with a piece of audio and its words
GET  /tts/v1/voices           the voices
"""

import asyncio
import math
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.errors import VivavoceError
from ....access.access_control import Grant
from ....access.keys import Scope
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BODY_TOO_LONG,
    JSON,
    SPEECH_ERRORS,
    Schema,
    content_response,
    error_responses,
    json_body,
    json_response,
    operation,
)
from ....web.request_body import read_body
from ....web.unmatched import ErrorFormat
from ...shell.speech import EncodedChunk
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse, check_file_length
from ...shell.speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses
from .alignment import EntryAligner, TextEntry
from .audio_config import file_format, streamed_encoding
from .errors import GoogleRpcCode, InworldBodyTooLong, to_inworld_error
from .models import (
    MAX_BODY_BYTES,
    InworldAudioConfig,
    InworldErrorBody,
    InworldListedVoice,
    InworldSpeech,
    InworldSpeechLine,
    InworldSpeechRequest,
    InworldStatus,
    InworldTimestampInfo,
    InworldUsage,
    InworldVoiceList,
    InworldWordAlignment,
    parse_message,
)
from .request_mapping import make_inworld_options, resolve_inworld_voice

_SPEECH_PATH: Final = "/tts/v1/voice"
_VOICES_PATH: Final = "/tts/v1/voices"
_API: Final = "inworld"  # in the log and the metrics
_JSON_LINES: Final = "application/x-ndjson"
_ENCODED_BYTES: Final = 3 * 2**16  # of audio, encoded at once; 3 bytes become 4 characters
_LANGUAGE_FILTER: Final = "language="
_ERRORS: Final = error_responses(
    InworldErrorBody,
    ACCESS_ERRORS,
    {400: "A field is invalid.", 404: "No such voice."},
    BODY_TOO_LONG,
    SPEECH_ERRORS,
)
_FILTER_PARAMETER: Final[Schema] = {
    "name": "filter",
    "in": "query",
    "description": "Only voices of a language: 'language=en'.",
    "schema": {"type": "string"},
}


class InworldHttpApi:
    """The endpoints of one server; belongs to its event loop."""

    def __init__(self, host: JobServer) -> None:
        self.host = host
        self.active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        body = json_body(InworldSpeechRequest)
        whole = operation(
            "inworldSpeech",
            "Speak a text: Inworld's request.",
            json_response(InworldSpeech, headers=UNREAD_HEADER_SCHEMA),
            _ERRORS,
            body=body,
        )
        streamed = operation(
            "inworldSpeechStream",
            "Speak a text, in JSON lines.",
            content_response("An object a line: 'result', or 'error' of speech that failed.", _JSON_LINES),
            _ERRORS,
            body=body,
        )
        voices = operation(
            "inworldVoices",
            "List the voices, as Inworld does.",
            json_response(InworldVoiceList),
            error_responses(InworldErrorBody, ACCESS_ERRORS),
            other_parameters=[_FILTER_PARAMETER],
        )
        router.add_api_route(_SPEECH_PATH, self._speak, methods=["POST"], **whole)
        router.add_api_route(f"{_SPEECH_PATH}:stream", self._stream, methods=["POST"], **streamed)
        router.add_api_route(_VOICES_PATH, self._list_voices, methods=["GET"], **voices)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.host.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    async def _speak(self, request: Request) -> Response:
        return _WholeSpeech(self.host, self.active_responses, request, _API)

    async def _stream(self, request: Request) -> Response:
        return _SpeechLines(self.host, self.active_responses, request, _API)

    async def _list_voices(self, request: Request) -> Response:
        try:
            grant = self.host.server.access.list_grant(request.headers)
            if grant is not None:
                grant.require(Scope.SPEAK)
        except VivavoceError as error:
            return inworld_error_response(error)
        found = self.host.voices.bundle_voices() if grant is None else self.host.voices.usable_voices(grant)
        filtered = request.query_params.get("filter", "")
        language = filtered.removeprefix(_LANGUAGE_FILTER) if filtered.startswith(_LANGUAGE_FILTER) else ""
        listed = [
            InworldListedVoice(
                voiceId=voice.id,
                displayName=voice.name,
                description=voice.description,
                languages=[voice.language],
                isCustom=voice.stored is not None,
            )
            for voice in found
            if voice.language.casefold().startswith(language.casefold())
        ]
        return JSONResponse(InworldVoiceList(voices=listed).model_dump())


class _InworldSpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        body = await read_body(self.request, MAX_BODY_BYTES, InworldBodyTooLong)
        self._speech = speech = parse_message(InworldSpeechRequest, body)
        voice = resolve_inworld_voice(self.host.voices, self.host.server.models, speech, grant)
        options = make_inworld_options(speech, voice, self.format_of(speech.audio_config))
        return SpeechJob(speech.text, options)

    def error_response(self, error: Exception) -> Response:
        return inworld_error_response(error)

    @abstractmethod
    def format_of(self, config: InworldAudioConfig) -> AudioFormat:
        """Return the format of the encoder; raises BadRequest."""

    def begin(self, job: SpeechJob) -> None:
        self._aligner = EntryAligner()

    def entries_of(self, chunk: EncodedChunk) -> list[TextEntry]:
        """Return the entries of the words that begin in a piece."""
        return self._aligner.align(chunk.written_words, self.utterance.text, is_last=chunk.final)

    def times_of(self, entries: Sequence[TextEntry]) -> InworldTimestampInfo | None:
        """Return the times of entries, None if there are none or they are not asked for."""
        if not (entries and self._speech.has_word_times):
            return None
        return InworldTimestampInfo(wordAlignment=InworldWordAlignment.of(entries))

    @property
    def usage(self) -> InworldUsage:
        """What the request is charged for."""
        return InworldUsage(processedCharactersCount=len(self._speech.text), modelId=self._speech.model_id)


class _WholeSpeech(_InworldSpeechResponse):
    """All audio, then the times of all words, in one object."""

    def format_of(self, config: InworldAudioConfig) -> AudioFormat:
        return file_format(config)

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self._audio = bytearray()
        self._entries: list[TextEntry] = []

    async def write(self, chunk: EncodedChunk) -> None:
        check_file_length(chunk.samples[1])
        self._audio += chunk.audio
        self._entries += self.entries_of(chunk)

    async def end(self) -> Response:
        # 100 MB of audio would hold up the event loop for long.
        body = await asyncio.to_thread(self._encode)
        return Response(body, headers=self.stream_headers, media_type=JSON)

    def _encode(self) -> bytes:
        answer = InworldSpeech(audioContent="", timestampInfo=self.times_of(self._entries), usage=self.usage)
        before, after = answer.encode().encode().split(b'""', 1)  # audioContent is the first field
        # In pieces, between which other threads run.
        starts = range(0, len(self._audio), _ENCODED_BYTES)
        pieces = (b64encode(self._audio[start : start + _ENCODED_BYTES]) for start in starts)
        return b"".join((before, b'"', *pieces, b'"', after))


class _SpeechLines(_InworldSpeechResponse):
    """Audio with the words that begin in it, an object a line."""

    def format_of(self, config: InworldAudioConfig) -> AudioFormat:
        self._encoding = streamed_encoding(config)
        return self._encoding.audio

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self.stream_headers["content-type"] = _JSON_LINES
        self.body_stream.bytes_per_s = math.ceil(4 / 3 * job.options.audio.bytes_per_second)  # in base64

    async def write(self, chunk: EncodedChunk) -> None:
        times = self.times_of(self.entries_of(chunk))
        if chunk.audio or times is not None or chunk.final:
            audio = b64encode(self._encoding.wrap(chunk.audio)).decode("ascii")
            usage = self.usage if chunk.final else None
            piece = InworldSpeech(audioContent=audio, timestampInfo=times, usage=usage)
            await self._write_line(InworldSpeechLine(result=piece))

    async def end_with_error(self, error: Exception) -> None:
        await self._write_line(InworldSpeechLine(error=InworldStatus.of(to_inworld_error(error))))
        await self.body_stream.end()

    async def _write_line(self, line: InworldSpeechLine) -> None:
        await self.body_stream.write(line.encode().encode() + b"\n")


def inworld_error_response(error: Exception) -> JSONResponse:
    """Return the answer to an error."""
    described = to_inworld_error(error)
    wait_s = described.retry_after_s
    headers = {} if wait_s is None else {"retry-after": str(math.ceil(wait_s))}
    if described.http_status == 413:
        headers["connection"] = "close"  # the rest of the body is not read
    body = InworldErrorBody.of(described)
    return JSONResponse(body.model_dump(), described.http_status, headers)


def _unmatched_error_body(status: int, message: str) -> InworldErrorBody:
    code = GoogleRpcCode.NOT_FOUND if status == 404 else GoogleRpcCode.UNIMPLEMENTED
    return InworldErrorBody(code=code.value, message=message, details=[])


INWORLD_ERROR_FORMATS: Final = (ErrorFormat("/tts/v1", _unmatched_error_body),)
