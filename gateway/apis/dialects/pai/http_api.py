"""PAI's HTTP endpoints: ``/api/v1/audio/reference_audio`` and ``/api/v1/audio/speech``.

Source: see ``models``.
"""

import json
import math
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import RootModel

from .....adapters.audio.encoders import AudioLayout
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import VivavoceError
from .....tts_engine.voices.store import StoredVoice
from ....access.access_control import Grant
from ....access.keys import Scope
from ....voice_registry import NewVoice
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BODY_TOO_LONG,
    ENROLLMENT_NOTE,
    EVENT_STREAM,
    RATE_LIMITED,
    SPEECH_ERRORS,
    error_responses,
    event_stream,
    form_body,
    json_body,
    json_response,
    operation,
)
from ...shell.request_fields import parse_fields, read_fields
from ...shell.speech import EncodedChunk
from ...shell.speech_job import JobServer, SpeechJob, SpeechJobResponse
from ...shell.speech_response import ActiveResponses
from .models import (
    MAX_BODY_BYTES,
    PaiAudio,
    PaiErrorBody,
    PaiMetrics,
    PaiOutput,
    PaiSpeechAnswer,
    PaiSpeechEvent,
    PaiSpeechRequest,
    ReferenceAudio,
    ReferenceAudioDeleted,
    ReferenceAudioForm,
    ReferenceAudioQuery,
)
from .request_mapping import make_pai_options, pai_error_body, pai_error_response

_API: Final = "pai"  # in the log and the metrics
_ROOTS: Final = ("/api/v1/audio", "/v1/audio")  # the second is of an older version
_Handler = Callable[[Request, Grant], Awaitable[Any]]


class PaiHttpApi:
    """The endpoints of one server; belongs to its event loop."""

    def __init__(self, host: JobServer) -> None:
        self.host = host
        self.active_responses = ActiveResponses()

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        errors = error_responses(
            PaiErrorBody, ACCESS_ERRORS, {400: "A field is invalid.", 404: "No such recording."}
        )
        spoken = operation(
            "paiSpeech",
            "Speak a text with the voice of a recording: PAI's request.",
            {**json_response(PaiSpeechAnswer), 200: _SPEECH_ANSWER},
            {**errors, **error_responses(PaiErrorBody, BODY_TOO_LONG, SPEECH_ERRORS)},
            body=json_body(PaiSpeechRequest),
        )
        router.add_api_route("/api/v1/audio/speech", self._speak, methods=["POST"], **spoken)
        for root in _ROOTS:
            self._add_recordings(router, root, errors)
        return router

    def _add_recordings(self, router: APIRouter, root: str, errors: dict[int, Any]) -> None:
        path, suffix = f"{root}/reference_audio", "" if root == _ROOTS[0] else "OfOlderPath"
        one, of_one = path + "/{reference_audio_id}", ("reference_audio_id",)
        created = operation(
            f"paiCreateReferenceAudio{suffix}",
            "Make a voice of a recording.",
            json_response(ReferenceAudio),
            errors,
            error_responses(
                PaiErrorBody, BODY_TOO_LONG, RATE_LIMITED, {503: "Too many recordings are waiting."}
            ),
            description=ENROLLMENT_NOTE,
            body=form_body(ReferenceAudioForm),
        )
        listed = operation(
            f"paiReferenceAudio{suffix}",
            "List the recordings that the key may use.",
            json_response(RootModel[list[ReferenceAudio]]),
            errors,
            other_parameters=[
                {"name": "limit", "in": "query", "schema": {"type": "integer", "default": 100}},
                {"name": "order", "in": "query", "schema": {"type": "string", "enum": ["asc", "desc"]}},
            ],
        )
        found = operation(
            f"paiGetReferenceAudio{suffix}",
            "Describe a recording.",
            json_response(ReferenceAudio),
            errors,
            path_parameters=of_one,
        )
        deleted = operation(
            f"paiDeleteReferenceAudio{suffix}",
            "Delete a recording of the key's.",
            json_response(ReferenceAudioDeleted),
            errors,
            description="Needs the scope 'enrol'.",
            path_parameters=of_one,
        )
        for method, route, scope, handler, described in (
            ("POST", path, Scope.ENROLL, self._create, created),
            ("GET", path, Scope.SPEAK, self._list, listed),
            ("GET", one, Scope.SPEAK, self._find, found),
            ("DELETE", one, Scope.ENROLL, self._delete, deleted),
        ):
            router.add_api_route(route, self._endpoint(scope, handler), methods=[method], **described)

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.host.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    def _endpoint(self, scope: Scope, handler: _Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                grant = self.host.server.authorize(request.headers, scope)
                return JSONResponse(await handler(request, grant))
            except VivavoceError as error:
                return pai_error_response(error, uuid4().hex)

        return answer

    async def _speak(self, request: Request) -> Response:
        return _PaiSpeechResponse(self.host, self.active_responses, request, _API)

    async def _create(self, request: Request, grant: Grant) -> dict[str, Any]:
        grant.charge_request()
        form = parse_fields(ReferenceAudioForm, await read_fields(request))
        name = form.file.name[:80].strip() or "recording"
        new = NewVoice(name, form.text, provenance="uploaded to /api/v1/audio/reference_audio")
        return _describe(await self.host.voices.create(form.file.data, new, grant))

    async def _list(self, request: Request, grant: Grant) -> list[dict[str, Any]]:
        query = parse_fields(ReferenceAudioQuery, request.query_params)
        voices = list(self.host.voices.enrolled_voices(grant))  # oldest first
        if query.order == "desc":
            voices.reverse()
        return [_describe(voice) for voice in voices[: query.limit]]

    async def _find(self, request: Request, grant: Grant) -> dict[str, Any]:
        return _describe(self.host.voices.find(request.path_params["reference_audio_id"], grant))

    async def _delete(self, request: Request, grant: Grant) -> dict[str, Any]:
        voice_id = request.path_params["reference_audio_id"]
        await self.host.voices.remove(voice_id, grant)
        message = f"reference audio: {voice_id} deleted."
        return ReferenceAudioDeleted(message=message, data={}).model_dump()


_SPEECH_ANSWER: Final = {
    "model": PaiSpeechAnswer,
    "description": "The speech, or with 'stream' events of it.",
    "content": event_stream(PaiSpeechEvent),
}


class _PaiSpeechResponse(SpeechJobResponse):
    """The speech in one JSON object, or in server-sent events."""

    async def read_job(self, grant: Grant) -> SpeechJob:
        body = parse_fields(PaiSpeechRequest, await read_fields(self.request, MAX_BODY_BYTES))
        self._request_at = self._piece_at = time.monotonic()
        text = self.host.check_text(body.input.text, "input.text")
        layout = AudioLayout.STREAM if body.stream else AudioLayout.FILE
        options = make_pai_options(body.input, body.model, self.host, grant, layout)
        return SpeechJob(text, options, is_whole=not body.stream)

    def error_response(self, error: Exception) -> Response:
        return pai_error_response(error, self.request_id)

    async def complete(self, job: SpeechJob, audio: bytes, grant: Grant) -> Response:
        output = PaiOutput(finish_reason=None, audio=self._audio(audio))
        answer = PaiSpeechAnswer(
            output=output, request_id=self.request_id, usage={"characters": len(job.text)}
        )
        return JSONResponse(answer.model_dump(), headers=self.stream_headers)

    def begin(self, job: SpeechJob) -> None:
        self.stream_headers["content-type"] = EVENT_STREAM
        self.body_stream.bytes_per_s = math.ceil(4 / 3 * job.options.audio.bytes_per_second)

    async def write(self, chunk: EncodedChunk) -> None:
        if chunk.audio:
            await self._send(chunk.audio, (chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE)

    async def end(self) -> None:
        await self._send(b"", 0.0, is_last=True)
        await self.body_stream.end()

    async def end_with_error(self, error: Exception) -> None:
        body = pai_error_body(error, self.request_id)
        await self._send(b"", 0.0, error={"code": body.code, "message": body.message})
        await self.body_stream.end()

    async def _send(
        self, audio: bytes, seconds: float, *, is_last: bool = False, error: dict[str, str] | None = None
    ) -> None:
        now = time.monotonic()
        event = PaiSpeechEvent(
            output=PaiOutput(finish_reason="stop" if is_last else None, audio=self._audio(audio)),
            request_id=self.request_id,
            usage=None,
            error=error,
            metrics=PaiMetrics(
                speech_len=seconds,
                server_cost_time=round(now - self._request_at, 4),
                generate_time=round(now - self._piece_at, 4),
            ),
        )
        self._piece_at = now
        await self.body_stream.write(b"data: " + json.dumps(event.model_dump()).encode() + b"\n\n")

    def _audio(self, audio: bytes) -> PaiAudio:
        return PaiAudio(id=f"audio_{self.request_id}", data=b64encode(audio).decode("ascii"))


def _describe(voice: StoredVoice) -> dict[str, Any]:
    return ReferenceAudio(
        id=voice.id,
        filename=voice.name,
        bytes=voice.bytes,
        created_at=int(voice.created_at),
        text=voice.transcript,
    ).model_dump()
