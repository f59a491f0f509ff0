"""The speech API of Alibaba Cloud's PAI: ``/api/v1/audio/``, speech and recordings over HTTP, and a socket.

Source: see ``models``.
"""

import json
import math
import time
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from .....adapters.audio.format_kind import AudioLayout
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.voices.store import StoredVoice
from ....access.access_control import Grant
from ....access.keys import Scope
from ....voice_registry import NewVoice
from ....web.openapi.operations import ACCESS_ERRORS, error_responses, json_body, json_response, operation
from ...dialect import Dialect, OpenDialect
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import (
    BODY_TOO_LONG,
    ENROLLMENT_NOTE,
    EVENT_STREAM,
    RATE_LIMITED,
    event_stream,
    form_body,
    query,
    speech_errors,
)
from ...kits.request_fields import MAX_MESSAGE_BYTES, parse_fields, read_fields
from ...shell.speech import EncodedChunk
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer
from .models import (
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
    ReferenceAudioList,
    ReferenceAudioQuery,
)
from .request_mapping import PAI_ERRORS, make_pai_options
from .socket_api import PAI_SOCKET_OPERATION, PaiSocketApi

_ROOTS: Final = ("/api/v1/audio", "/v1/audio")  # the second is of an older version
_FAULTS: Final = {400: "A field is invalid.", 404: "No such recording."}
_ERRORS: Final = error_responses(PaiErrorBody, ACCESS_ERRORS, _FAULTS)
_SPEAK: Final = operation(
    "paiSpeech",
    "Speak a text with the voice of a recording: PAI's request.",
    {
        200: {
            "model": PaiSpeechAnswer,
            "description": "The speech, or with 'stream' events of it.",
            "content": event_stream(PaiSpeechEvent),
        }
    },
    speech_errors(PaiErrorBody, _FAULTS),
    body=json_body(PaiSpeechRequest),
)


class PaiHttpApi(SpeechHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    name = "pai"
    errors = PAI_ERRORS

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield "POST /api/v1/audio/speech", self.speaking(_PaiSpeechResponse), _SPEAK
        for root in _ROOTS:
            yield from self._recordings(f"{root}/reference_audio", "" if root == _ROOTS[0] else "OfOlderPath")

    def _recordings(self, path: str, suffix: str) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        one, of_one = path + "/{reference_audio_id}", ("reference_audio_id",)
        created = operation(
            f"paiCreateReferenceAudio{suffix}",
            "Make a voice of a recording.",
            json_response(ReferenceAudio),
            _ERRORS,
            error_responses(
                PaiErrorBody, BODY_TOO_LONG, RATE_LIMITED, {503: "Too many recordings are waiting."}
            ),
            description=ENROLLMENT_NOTE,
            body=form_body(ReferenceAudioForm),
        )
        listed = operation(
            f"paiReferenceAudio{suffix}",
            "List the recordings that the key may use.",
            json_response(ReferenceAudioList),
            _ERRORS,
            other_parameters=[
                query("limit", kind="integer", default=100),
                query("order", enum=["asc", "desc"]),
            ],
        )
        found = operation(
            f"paiGetReferenceAudio{suffix}",
            "Describe a recording.",
            json_response(ReferenceAudio),
            _ERRORS,
            path_parameters=of_one,
        )
        deleted = operation(
            f"paiDeleteReferenceAudio{suffix}",
            "Delete a recording of the key's.",
            json_response(ReferenceAudioDeleted),
            _ERRORS,
            description="Needs the scope 'enrol'.",
            path_parameters=of_one,
        )
        yield f"POST {path}", self.answering(Scope.ENROLL, self._create), created
        yield f"GET {path}", self.answering(Scope.SPEAK, self._list), listed
        yield f"GET {one}", self.answering(Scope.SPEAK, self._find), found
        yield f"DELETE {one}", self.answering(Scope.ENROLL, self._delete), deleted

    async def _create(self, request: Request, grant: Grant) -> ReferenceAudio:
        grant.charge_request()
        form = parse_fields(ReferenceAudioForm, await read_fields(request))
        name = form.file.name[:80].strip() or "recording"
        new = NewVoice(name, form.text, provenance="uploaded to /api/v1/audio/reference_audio")
        return _describe(await self.server.voices.create(form.file.data, new, grant))

    async def _list(self, request: Request, grant: Grant) -> list[dict[str, Any]]:
        query = parse_fields(ReferenceAudioQuery, request.query_params)
        voices = list(self.server.voices.enrolled_voices(grant))  # oldest first
        if query.order == "desc":
            voices.reverse()
        return [_describe(voice).model_dump() for voice in voices[: query.limit]]

    async def _find(self, request: Request, grant: Grant) -> ReferenceAudio:
        return _describe(self.server.voices.find(request.path_params["reference_audio_id"], grant))

    async def _delete(self, request: Request, grant: Grant) -> ReferenceAudioDeleted:
        voice_id = request.path_params["reference_audio_id"]
        await self.server.voices.remove(voice_id, grant)
        message = f"reference audio: {voice_id} deleted."
        return ReferenceAudioDeleted(message=message, data={})


class _PaiSpeechResponse(SpeechJobResponse):
    """The speech in one JSON object, or in server-sent events."""

    async def read_job(self, grant: Grant) -> SpeechJob:
        body = parse_fields(PaiSpeechRequest, await read_fields(self.request, MAX_MESSAGE_BYTES))
        self._request_at = self._piece_at = time.monotonic()
        text = self.server.check_text(body.input.text, "input.text")
        layout = AudioLayout.STREAM if body.stream else AudioLayout.FILE
        options = make_pai_options(body.input, body.model, self.server, grant, layout)
        return SpeechJob(text, options, is_whole=not body.stream)

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
        body = PAI_ERRORS.body(error).model_dump(include={"code", "message"})
        await self._send(b"", 0.0, error=body)
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


def _describe(voice: StoredVoice) -> ReferenceAudio:
    return ReferenceAudio(
        id=voice.id,
        filename=voice.name,
        bytes=voice.bytes,
        created_at=int(voice.created_at),
        text=voice.transcript,
    )


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(PaiSocketApi(server), PaiHttpApi(server))


PAI: Final = Dialect("pai", _open, (PAI_SOCKET_OPERATION,), title="PAI")
