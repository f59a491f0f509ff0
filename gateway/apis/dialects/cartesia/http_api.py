"""Cartesia's HTTP endpoints: ``POST /tts/bytes``, ``POST /tts/sse``, ``GET /voices`` and ``/voices/{id}``."""

import math
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from .....tts_engine.errors import UnknownVoice, VivavoceError
from ....access.access_control import Grant
from ....access.keys import Scope
from ....voice_registry import ListedVoice
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BINARY_CONTENT,
    BODY_TOO_LONG,
    EVENT_STREAM,
    SPEECH_ERRORS,
    error_responses,
    event_stream,
    json_body,
    json_response,
    operation,
)
from ....web.request_body import read_body
from ....web.unmatched import ErrorFormat
from ...shell.speech import EncodedChunk
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse
from ...shell.speech_response import UNREAD_HEADER_SCHEMA, ActiveResponses
from .errors import CartesiaBodyTooLong, InvalidCartesiaRequest, to_cartesia_error
from .models import (
    MAX_BODY_BYTES,
    AudioChunkMessage,
    CartesiaAnswer,
    CartesiaErrorBody,
    CartesiaErrorMessage,
    CartesiaSpeechRequest,
    CartesiaVoice,
    CartesiaVoiceList,
    DoneMessage,
    TimestampsMessage,
    VoiceListQuery,
    WordTimestamps,
    parse_request,
)
from .output_format import make_encoding
from .request_mapping import make_synthesis_options, resolve_cartesia_voice

_API: Final = "cartesia"  # in the log and the metrics
_ERRORS: Final = error_responses(
    CartesiaErrorBody,
    ACCESS_ERRORS,
    {400: "A field is invalid.", 404: "No such voice."},
    BODY_TOO_LONG,
    SPEECH_ERRORS,
)
_BYTES: Final = operation(
    "cartesiaSpeech",
    "Speak a transcript: Cartesia's request.",
    {
        200: {
            "description": "Audio, while it is made.",
            "headers": UNREAD_HEADER_SCHEMA,
            "content": dict.fromkeys(("application/octet-stream", "audio/wav", "audio/mpeg"), BINARY_CONTENT),
        }
    },
    _ERRORS,
    body=json_body(CartesiaSpeechRequest),
)
_EVENTS: Final = operation(
    "cartesiaSpeechEvents",
    "Speak a transcript as server-sent events: Cartesia's request.",
    {
        200: {
            "description": "Audio in base64, and the times of words.",
            "headers": UNREAD_HEADER_SCHEMA,
            "content": event_stream(AudioChunkMessage, TimestampsMessage, DoneMessage, CartesiaErrorMessage),
        }
    },
    _ERRORS,
    body=json_body(CartesiaSpeechRequest),
)


def _query(name: str, description: str, kind: str = "string") -> dict[str, object]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind}}


_VOICES: Final = operation(
    "cartesiaVoices",
    "List the voices, as Cartesia does.",
    json_response(CartesiaVoiceList),
    error_responses(
        CartesiaErrorBody, ACCESS_ERRORS, {400: "A parameter is invalid.", 404: "No such voice."}
    ),
    other_parameters=[
        _query("limit", "Voices of a page, 1 to 100; 10 by default.", "integer"),
        _query("starting_after", "Id of the last voice of the page before."),
        _query("ending_before", "Id of the first voice of the page after."),
        _query("q", "Text in the name, the description or the id."),
    ],
)
_VOICE: Final = operation(
    "cartesiaVoice",
    "Describe a voice, as Cartesia does.",
    json_response(CartesiaVoice),
    error_responses(CartesiaErrorBody, ACCESS_ERRORS, {404: "No such voice."}),
    path_parameters=("voice_id",),
)


class CartesiaHttpApi:
    """The endpoints of one server; belongs to its event loop."""

    def __init__(self, host: JobServer) -> None:
        self.host = host
        self.active_responses = ActiveResponses()
        self._started_at = datetime.now(UTC)

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        router.add_api_route("/tts/bytes", self._speak, methods=["POST"], **_BYTES)
        router.add_api_route("/tts/sse", self._speak_events, methods=["POST"], **_EVENTS)
        router.add_api_route("/voices", self._list_voices, methods=["GET"], **_VOICES)
        router.add_api_route("/voices/{voice_id}", self._describe_voice, methods=["GET"], **_VOICE)
        return router

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.host.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    async def _speak(self, request: Request) -> Response:
        return _CartesiaSpeechResponse(self.host, self.active_responses, request)

    async def _speak_events(self, request: Request) -> Response:
        return _CartesiaSpeechEvents(self.host, self.active_responses, request)

    async def _list_voices(self, request: Request) -> Response:
        try:
            grant = self.host.server.access.list_grant(request.headers)
            query = VoiceListQuery.of(request.query_params)
            voices = [self._describe(voice, grant) for voice in self._usable(grant)]
            return _json(query.page_of(voices))
        except VivavoceError as error:
            return error_response(error, _new_request_id())

    async def _describe_voice(self, request: Request) -> Response:
        voice_id = request.path_params["voice_id"]
        try:
            grant = self.host.server.access.list_grant(request.headers)
            for voice in self._usable(grant):
                if voice.id == voice_id:
                    return _json(self._describe(voice, grant))
            raise UnknownVoice(f"there is no voice {voice_id!r}")
        except VivavoceError as error:
            return error_response(error, _new_request_id())

    def _usable(self, grant: Grant | None) -> tuple[ListedVoice, ...]:
        if grant is None:
            return self.host.voices.bundle_voices()
        grant.require(Scope.SPEAK)
        return self.host.voices.usable_voices(grant)

    def _describe(self, voice: ListedVoice, grant: Grant | None) -> CartesiaVoice:
        stored = voice.stored
        created_at = self._started_at if stored is None else datetime.fromtimestamp(stored.created_at, UTC)
        return CartesiaVoice(
            id=voice.id,
            name=voice.name,
            description=voice.description,
            language=voice.language,
            is_owner=stored is not None and grant is not None and stored.about.owner == grant.key_id,
            is_public=stored is None,
            access="public" if stored is None else "private",
            created_at=created_at.isoformat(timespec="seconds"),
        )


class _CartesiaSpeechResponse(SpeechJobResponse):
    """Audio as it is made."""

    def __init__(self, host: JobServer, active: ActiveResponses, request: Request) -> None:
        request_id = _new_request_id()
        super().__init__(host, active, request, _API, request_id=request_id, id_header="cartesia-request-id")

    async def read_job(self, grant: Grant) -> SpeechJob:
        body = await read_body(self.request, MAX_BODY_BYTES, CartesiaBodyTooLong)
        self._speech = speech = parse_request(CartesiaSpeechRequest, body)
        self._encoding = encoding = make_encoding(speech.output_format)
        voice = resolve_cartesia_voice(self.host.voices, self.host.server.models, speech, grant)
        options = make_synthesis_options(speech, voice, encoding)
        return SpeechJob(
            speech.transcript, options, content_type=encoding.content_type, header=encoding.header
        )

    def error_response(self, error: Exception) -> Response:
        return error_response(error, self.request_id)

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self.body_stream.bytes_per_s = self._encoding.bytes_per_s

    async def write(self, chunk: EncodedChunk) -> None:
        await super().write(replace(chunk, audio=self._encoding.convert(chunk.audio)))


class _CartesiaSpeechEvents(_CartesiaSpeechResponse):
    """Audio and the times of words in server-sent events."""

    async def read_job(self, grant: Grant) -> SpeechJob:
        job = await super().read_job(grant)
        if self._speech.output_format.container != "raw":
            raise InvalidCartesiaRequest("output_format.container: events carry 'raw' audio only")
        return replace(job, content_type=EVENT_STREAM)

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self.body_stream.bytes_per_s = math.ceil(4 / 3 * self._encoding.bytes_per_s)

    async def write(self, chunk: EncodedChunk) -> None:
        context_id = self._speech.context_id
        if chunk.written_words and self._speech.add_timestamps:
            words = WordTimestamps.of(chunk.written_words)
            await self._send(TimestampsMessage(context_id=context_id, word_timestamps=words))
        if chunk.audio:
            data = b64encode(self._encoding.convert(chunk.audio)).decode("ascii")
            await self._send(AudioChunkMessage(context_id=context_id, data=data, step_time=0.0))

    async def end(self) -> None:
        await self._send(DoneMessage(context_id=self._speech.context_id))
        await super().end()

    async def end_with_error(self, error: Exception) -> None:
        body = error_body(error, self.request_id)
        await self._send(CartesiaErrorMessage(**body.model_dump()))
        await self.body_stream.end()

    async def _send(self, message: CartesiaAnswer) -> None:
        await self.body_stream.write(message.encode_event())


def error_body(error: Exception, request_id: str) -> CartesiaErrorBody:
    """Return the JSON body of an error."""
    described = to_cartesia_error(error)
    return CartesiaErrorBody(
        error_code=described.code,
        title=described.title,
        message=described.message,
        request_id=request_id,
        status_code=described.status,
    )


def error_response(error: Exception, request_id: str) -> JSONResponse:
    """Return the answer to an error."""
    retry_after_s = to_cartesia_error(error).retry_after_s
    headers = {} if retry_after_s is None else {"retry-after": str(math.ceil(retry_after_s))}
    body = error_body(error, request_id)
    if body.status_code == 413:
        headers["connection"] = "close"  # the rest of the body is not read
    return JSONResponse(body.model_dump(), body.status_code, headers)


def _unmatched_error_body(status: int, message: str) -> CartesiaErrorBody:
    return CartesiaErrorBody(
        error_code="not_found" if status == 404 else "method_not_allowed",
        title="No such endpoint",
        message=message,
        request_id=_new_request_id(),
        status_code=status,
    )


CARTESIA_ERROR_FORMATS: Final = (
    ErrorFormat("/tts", _unmatched_error_body),
    ErrorFormat("/voices", _unmatched_error_body),
)


def _json(model: CartesiaVoice | CartesiaVoiceList) -> JSONResponse:
    return JSONResponse(model.model_dump())


def _new_request_id() -> str:
    return f"req_{uuid4().hex}"
