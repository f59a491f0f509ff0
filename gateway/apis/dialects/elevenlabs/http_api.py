"""ElevenLabs' HTTP speech: ``POST /v1/text-to-speech/{voice_id}``, with and without times of characters.

PATH                            audio while it is made; so is PATH/stream
PATH/with-timestamps            one JSON object: all audio in base64, then the times
PATH/stream/with-timestamps     a JSON object a line, each with a piece of audio and its times
"""

import math
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from .....tts_engine.chunk import SAMPLE_RATE
from ....access.access_control import Grant
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BINARY_CONTENT,
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
from ...shell.speech import AUDIO_CONTENT_TYPES, EncodedChunk
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse
from ...shell.speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses
from .alignment import CharacterAligner, TimedCharacter
from .errors import ElevenLabsBodyTooLong, InvalidElevenLabsRequest, to_elevenlabs_error
from .models import (
    MAX_BODY_BYTES,
    ElevenLabsErrorBody,
    ElevenLabsErrorDetail,
    ElevenLabsInvalidField,
    ElevenLabsSpeechRequest,
    TimedCharacters,
    TimedSpeech,
    parse_body,
)
from .output_format import parse_output_format
from .request_mapping import make_elevenlabs_options, resolve_elevenlabs_voice

PATH: Final = "/v1/text-to-speech/{voice_id}"
_API: Final = "elevenlabs"  # in the log and the metrics
_JSON_LINES: Final = "application/x-ndjson"
_BASE64_BYTES: Final = 3  # that become 4 characters
_FORMAT_PARAMETER: Final[Schema] = {
    "name": "output_format",
    "in": "query",
    "description": "Codec, sample rate and kbit/s: 'mp3_44100_128' (default), 'pcm_24000', 'ulaw_8000'.",
    "schema": {"type": "string"},
}
_ERRORS: Final = error_responses(
    ElevenLabsErrorBody,
    ACCESS_ERRORS,
    {400: "The output format or the text is invalid.", 404: "No such voice.", 422: "A field is invalid."},
    BODY_TOO_LONG,
    SPEECH_ERRORS,
)
_AUDIO: Final = {
    200: {
        "description": "Audio, while it is made.",
        "headers": UNREAD_HEADER_SCHEMA,
        "content": dict.fromkeys(AUDIO_CONTENT_TYPES, BINARY_CONTENT),
    }
}


class ElevenLabsHttpApi:
    """The endpoints of one server; belongs to its event loop."""

    def __init__(self, host: JobServer) -> None:
        self.host = host
        self.active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        body = json_body(ElevenLabsSpeechRequest)
        timed = json_response(TimedSpeech)
        lines = content_response("Objects as of with-timestamps, one a line.", _JSON_LINES)
        for path, name, summary, answer in (
            ("", "Speech", "Speak a text", _AUDIO),
            ("/stream", "SpeechStream", "Speak a text", _AUDIO),
            ("/with-timestamps", "TimedSpeech", "Speak a text with the times of its characters", timed),
            ("/stream/with-timestamps", "TimedSpeechStream", "The same, an object a line", lines),
        ):
            described = operation(
                f"elevenLabs{name}",
                f"{summary}: ElevenLabs' request.",
                answer,
                _ERRORS,
                other_parameters=[_FORMAT_PARAMETER],
                path_parameters=("voice_id",),
                body=body,
            )
            router.add_api_route(PATH + path, self._speaking(path), methods=["POST"], **described)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.host.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    def _speaking(self, path: str) -> Callable[[Request], Awaitable[Response]]:
        async def speak(request: Request) -> Response:
            response = _RESPONSES[path]
            return response(self.host, self.active_responses, request, _API, id_header="request-id")

        return speak


class _SpokenText(SpeechJobResponse):
    """Audio as it is made."""

    async def read_job(self, grant: Grant) -> SpeechJob:
        body = await read_body(self.request, MAX_BODY_BYTES, ElevenLabsBodyTooLong)
        speech = parse_body(ElevenLabsSpeechRequest, body)
        audio = parse_output_format(self.request.query_params.get("output_format"))
        voice = resolve_elevenlabs_voice(
            self.host.voices,
            self.host.server.models,
            self.request.path_params["voice_id"],
            speech.model_id,
            grant,
        )
        self.stream_headers["character-cost"] = str(len(speech.text))
        options = make_elevenlabs_options(voice, audio, speech, speech.language_code, speech.seed)
        return SpeechJob(speech.text, options)

    def error_response(self, error: Exception) -> Response:
        return elevenlabs_error_response(error)


class _TimedLines(_SpokenText):
    """Audio and the times of characters, a JSON object a line."""

    content_type = _JSON_LINES

    def begin(self, job: SpeechJob) -> None:
        """Set the headers."""
        self.stream_headers["content-type"] = self.content_type
        self.body_stream.bytes_per_s = math.ceil(4 / 3 * job.options.audio.bytes_per_second)
        self._aligner = CharacterAligner()

    async def write(self, chunk: EncodedChunk) -> None:
        """Send a piece of speech."""
        times = self._align(chunk)
        if times or chunk.audio:
            data = b64encode(chunk.audio).decode("ascii")
            aligned = TimedCharacters.of(times) if times else None
            line = TimedSpeech(audio_base64=data, alignment=aligned, normalized_alignment=aligned)
            await self.body_stream.write(line.encode().encode() + b"\n")

    def _align(self, chunk: EncodedChunk) -> list[TimedCharacter]:
        return align_chunk(self._aligner, chunk, self.utterance.text)


class _TimedText(_TimedLines):
    """All audio in base64, then the times of all characters: one JSON object, sent while it is made."""

    content_type = JSON

    def begin(self, job: SpeechJob) -> None:
        """Set the headers."""
        super().begin(job)
        self._times: list[TimedCharacter] = []
        self._rest = b""  # bytes that do not fill a group of base64 yet
        self._prefix = b'{"audio_base64":"'

    async def write(self, chunk: EncodedChunk) -> None:
        """Send a piece of the object."""
        self._times += self._align(chunk)
        audio = self._rest + chunk.audio
        whole = len(audio) if chunk.final else len(audio) - len(audio) % _BASE64_BYTES
        self._rest = audio[whole:]
        piece, self._prefix = self._prefix + b64encode(audio[:whole]), b""
        if chunk.final:
            times = TimedCharacters.of(self._times).model_dump_json().encode()
            piece += b'","alignment":' + times + b',"normalized_alignment":' + times + b"}"
        if piece:
            await self.body_stream.write(piece)


_RESPONSES: Final[dict[str, type[_SpokenText]]] = {
    "": _SpokenText,
    "/stream": _SpokenText,
    "/with-timestamps": _TimedText,
    "/stream/with-timestamps": _TimedLines,
}


def align_chunk(aligner: CharacterAligner, chunk: EncodedChunk, text: str) -> list[TimedCharacter]:
    """Return the characters of a chunk's words, and of the last chunk those that remain.

    text: of the utterance, as far as it has come.
    """
    characters = aligner.align(chunk.words, text)
    return characters + aligner.finish(text, chunk.samples[1] / SAMPLE_RATE) if chunk.final else characters


def elevenlabs_error_response(error: Exception) -> JSONResponse:
    """Return the answer to an error."""
    described = to_elevenlabs_error(error)
    wait_s = described.retry_after_s
    headers = {} if wait_s is None else {"retry-after": str(math.ceil(wait_s))}
    if described.http_status == 413:
        headers["connection"] = "close"  # the rest of the body is not read
    if isinstance(error, InvalidElevenLabsRequest):
        field = ElevenLabsInvalidField(loc=list(error.place), msg=described.message)
        body = ElevenLabsErrorBody(detail=[field])
    else:
        body = _error_body(described.status, described.message)
    return JSONResponse(body.model_dump(), described.http_status, headers)


def _error_body(status: str, message: str) -> ElevenLabsErrorBody:
    return ElevenLabsErrorBody(detail=ElevenLabsErrorDetail(status=status, message=message))


def _unmatched_error_body(status: int, message: str) -> ElevenLabsErrorBody:
    return _error_body("not_found" if status == 404 else "method_not_allowed", message)


ELEVENLABS_ERROR_FORMATS: Final = tuple(
    ErrorFormat(prefix, _unmatched_error_body)
    for prefix in ("/v1/text-to-speech", "/v1/voices", "/v2/voices", "/v1/user")
)
