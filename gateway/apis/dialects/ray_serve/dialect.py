"""The API of CosyVoice behind Ray Serve: ``/v1/model/cosyvoice/``, speech, batches of it, a health check.

    fields -> the endpoint's request -> SpeechJob -> a file, or the same audio while it is made

Source: see ``models``.
"""

import asyncio
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from .....tts_engine.errors import VivavoceError
from ....access.access_control import Grant
from ....access.keys import Scope
from ....access.url_guard import UrlGuard
from ....voice_registry import NewVoice
from ....web.openapi.operations import ACCESS_ERRORS, error_responses, json_body, json_response, operation
from ...dialect import Dialect, OpenDialect
from ...kits.error_table import STATUSES, DescribedError, ErrorTable, InvalidField
from ...kits.exchange_folder import ExchangeFolder
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import AUDIO_CONTENT_TYPES, speech_errors
from ...kits.request_fields import UploadedRecording, parse_fields, read_fields
from ...kits.service_names import ServiceNames
from ...kits.speech_response import audio_response
from ...kits.streamed_body import cancel_on_disconnect
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import ReferenceRecording, SpeechJob
from ...shell.speech_server import SpeechServer
from .models import (
    DEFAULT_VOICE,
    REQUESTS,
    CosyVoiceApiError,
    CosyVoiceBatch,
    CosyVoiceBatchAnswer,
    CosyVoiceBatchResult,
    CosyVoiceHealth,
    CosyVoiceSpeechRequest,
    ReferenceAudioRequest,
)

_ROOT: Final = "/v1/model/cosyvoice"
_NAMES: Final = ServiceNames(voices=re.compile(DEFAULT_VOICE))
_MAX_BATCH_TEXTS: Final = 4  # texts of the largest length in a batch, together; its audio is held in memory
_BATCH_STREAMS: Final = 4  # items of a batch spoken at once, so that it leaves room for other clients
_ERRORS: Final = speech_errors(
    CosyVoiceApiError,
    {400: "A field is missing or invalid; 'field' names it.", 404: "No such voice, model or recording."},
)
_AUDIO: Final = audio_response("Speech: one file, or a stream.", *AUDIO_CONTENT_TYPES)
_BATCH: Final = operation(
    "cosyVoiceBatch",
    "Speak up to 32 requests, each with a status of its own.",
    json_response(CosyVoiceBatchAnswer, 207, "The results, in the order of the items."),
    _ERRORS,
    body=json_body(CosyVoiceBatch),
)


def _error_body(described: DescribedError, error: Exception, request_id: str) -> CosyVoiceApiError:
    field = error.field if isinstance(error, InvalidField) else None
    return CosyVoiceApiError(error=described.message, field=field)


_ERROR_TABLE: Final = ErrorTable(STATUSES, _error_body)


class RayServeApi(SpeechHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    name = "ray-serve"
    errors = _ERROR_TABLE
    error_formats = _ERROR_TABLE.formats(_ROOT)

    def __init__(self, server: SpeechServer, guard: UrlGuard, folder: ExchangeFolder) -> None:
        """Make the API; guard and folder: of recordings that requests name."""
        super().__init__(server)
        self._guard = guard
        self._folder = folder

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        for name, model in REQUESTS.items():
            described = operation(
                f"cosyVoice_{name}", f"Speak a text: {name}.", _AUDIO, _ERRORS, body=json_body(model)
            )
            yield f"POST {_ROOT}/{name}", self.speaking(partial(_RaySpeechResponse, name)), described
        yield f"POST {_ROOT}/batch", self.speaking(partial(_BatchResponse, "tts")), _BATCH
        for method in ("GET", "POST"):
            described = operation(
                f"cosyVoiceHealth_{method.lower()}",
                "Whether the server speaks.",
                json_response(CosyVoiceHealth),
                error_responses(CosyVoiceApiError, ACCESS_ERRORS, {503: "The server is shutting down."}),
            )
            yield f"{method} {_ROOT}/healthcheck", self.answering(Scope.SPEAK, _check_health), described

    async def make_job(self, name: str, fields: Mapping[str, Any], grant: Grant) -> SpeechJob:
        """Return the job of an endpoint's request; raises VivavoceError."""
        body = parse_fields(REQUESTS[name], fields)
        default = self.server.models.default_voice(body.model)
        text, voice = self.server.check_text(body.text), body.voice_name
        if voice is not None:
            voice = _NAMES.resolve_voice(self.server.voices, voice, grant, default)
        options = SynthesisOptions(voice, body.audio, body.speed, seed=body.seed, delivery=body.delivery)
        recording = self._recording(body, grant) if voice is None else None
        return SpeechJob(text, options, recording, is_whole=not body.stream)

    def _recording(self, body: CosyVoiceSpeechRequest, grant: Grant) -> ReferenceRecording:
        assert isinstance(body, ReferenceAudioRequest)
        grant.require(Scope.ENROLL)
        self.server.voices.cloning_voices()  # before anything is fetched
        new = NewVoice("of one request", body.transcript, provenance="reference_audio of a request")
        match body.reference_audio:
            case UploadedRecording(data=data):
                return ReferenceRecording.uploaded(data, new)
            case str(url) if url.lower().startswith(("http://", "https://", "data:")):
                return ReferenceRecording(partial(self._guard.fetch, url), new)
            case name:
                read = partial(asyncio.to_thread, self._folder.read_recording, str(name))
                return ReferenceRecording(read, new)


class _RaySpeechResponse(SpeechJobResponse):
    """The response of an endpoint that speaks."""

    api: RayServeApi

    def __init__(self, name: str, api: RayServeApi, request: Request) -> None:
        super().__init__(api, request)
        self._name = name

    async def read_job(self, grant: Grant) -> SpeechJob:
        return await self.api.make_job(self._name, await read_fields(self.request), grant)


class _BatchResponse(_RaySpeechResponse):
    """The response with the results of several requests."""

    async def respond(self) -> Response | None:
        grant = self.server.authorize(self.request.headers)
        fields = await read_fields(self.request)
        batch = parse_fields(CosyVoiceBatch, fields)
        characters = sum(len(str(item.get("text", ""))) for item in batch.items)
        limit = _MAX_BATCH_TEXTS * self.server.policy.max_text_characters
        if characters > limit:
            raise InvalidField("items", f"have {characters} characters of text; at most {limit} may be")
        return await cancel_on_disconnect(self.request.receive, self._speak_items(batch, grant))

    async def _speak_items(self, batch: CosyVoiceBatch, grant: Grant) -> Response:
        places = asyncio.Semaphore(_BATCH_STREAMS)
        defaults = {"format": batch.format, "sample_rate": batch.sample_rate}

        async def speak(index: int, item: dict[str, Any]) -> CosyVoiceBatchResult:
            async with places:
                return await self._result(index, {**defaults, **item, "stream": False}, grant)

        async with asyncio.TaskGroup() as tasks:
            results = [tasks.create_task(speak(*entry)) for entry in enumerate(batch.items)]
        answer = CosyVoiceBatchAnswer(results=[task.result() for task in results])
        return JSONResponse(answer.model_dump(exclude_none=True), 207, self.stream_headers)

    async def _result(self, index: int, fields: dict[str, Any], grant: Grant) -> CosyVoiceBatchResult:
        try:
            job, audio = await self._speak_item(index, fields, grant)
        except VivavoceError as error:
            status = _ERROR_TABLE.describe(error).status
            told = _ERROR_TABLE.body(error).model_dump()
            return CosyVoiceBatchResult(index=index, status=status, **told)
        content_type = job.options.audio.content_type
        data = await asyncio.to_thread(lambda: b64encode(audio).decode("ascii"))
        return CosyVoiceBatchResult(index=index, status=200, audio=data, content_type=content_type)

    async def _speak_item(self, index: int, fields: dict[str, Any], grant: Grant) -> tuple[SpeechJob, bytes]:
        grant.charge_request()
        mode = fields.get("mode", "tts")
        if not isinstance(mode, str) or mode not in REQUESTS:
            raise InvalidField("mode", f"got {str(mode)[:40]!r}; there are {', '.join(REQUESTS)}")
        job = await self.api.make_job(mode, fields, grant)
        log = self.server.log
        with log.track(self.api.name, grant, f"{self.request_id}-{index}") as record, grant.stream():
            record.count_text(len(job.text))
            return job, await self.server.speak_file(job, grant, record)


async def _check_health(request: Request, grant: Grant) -> CosyVoiceHealth:
    return CosyVoiceHealth()


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(RayServeApi(server, server.guard, ExchangeFolder(server.policy.exchange_folder)))


RAY_SERVE: Final = Dialect("ray_serve", _open, title="CosyVoice on Ray Serve")
