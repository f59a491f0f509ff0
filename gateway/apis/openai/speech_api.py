"""OpenAI's speech API over the engine: ``/v1/audio/speech``, ``/v1/models``, ``/v1/audio/voices``.

    request -> adapters.openai_speech.parse_speech_request -> speech.Utterance -> audio, or server-sent events

Headers are sent with the first audio, so whatever goes wrong before it is an answer of its own. A client that
leaves is noticed while it is spoken to, and one that takes nothing holds up its own utterance only.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from ....adapters.openai.responses import (
    audio_delta_event,
    audio_done_event,
    audio_error_event,
    model_body,
    models_body,
)
from ....adapters.openai.speech_request import (
    MAX_BODY_BYTES,
    MODELS,
    CreateSpeechRequest,
    OpenAISpeechSettings,
    OpenAIStreamFormat,
    parse_speech_request,
)
from ....tts_engine.backends.base import Delivery
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.engine import Engine
from ....tts_engine.errors import Overloaded, VivavoceError
from ...access.access_control import AccessControl, Grant
from ...access.keys import Scope as KeyScope
from ...access.url_guard import UrlGuard
from ...voice_registry import NewVoice, VoiceRegistry
from ...web.request_log import RequestLog, RequestRecord
from ...web.streamed_body import StreamedBody, cancel_on_disconnect
from ..speech import SynthesisOptions, open_encoded_stream
from .errors import OpenAIBodyTooLong, OpenAIErrorResponse, OpenAIModelNotFound, to_openai_error

logger = logging.getLogger(__name__)

OWN_MODEL: Final = "vivavoce"
_API: Final = "openai"
_KNOWN_MODELS: Final = re.compile(r"(vivavoce|cosyvoice|gpt-4o-mini-tts)([.-].*)?|tts-1(-hd)?", re.ASCII)
_THREAD_PARSING_BYTES: Final = 2**18  # bytes; more are parsed on a thread
_SPEECH_IDS_PER_S: Final = 25  # what output is counted in, as OpenAI counts its own
_EVENT_STREAM_TYPE: Final = "text/event-stream"
_STREAM_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


JsonHandler = Callable[[Request, Grant], Awaitable[Mapping[str, Any]]]


class OpenAISpeechApi:
    """The API of one server; belongs to its event loop. max_text_characters: characters of one request."""

    def __init__(
        self,
        engine: Engine,
        access: AccessControl,
        voices: VoiceRegistry,
        log: RequestLog,
        guard: UrlGuard,
        max_text_characters: int = 4_096,
    ) -> None:
        self.engine = engine
        self.access = access
        self.voices = voices
        self.log = log
        self.guard = guard
        self.max_text_characters = max_text_characters
        self._models_created_at = int(time.time())
        self.active_responses: set[_OpenAISpeechResponse] = set()
        self._draining = False

    def routes(self) -> APIRouter:
        """Everything under /v1 that is OpenAI's."""
        router = APIRouter()
        router.add_api_route("/v1/audio/speech", self._speech, methods=["POST"])
        router.add_api_route("/v1/models", self.json_route(KeyScope.SPEAK, self._models), methods=["GET"])
        router.add_api_route(
            "/v1/models/{model:path}", self.json_route(KeyScope.SPEAK, self._model), methods=["GET"]
        )
        return router

    async def finish(self, within_s: float) -> None:
        """Take no new requests, and let those under way be answered, at most ``within_s``."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for answer in tuple(self.active_responses):
                    await answer.finished.wait()

    def authorize(self, headers: Mapping[str, str]) -> Grant:
        """Who is here for speech; raises what ``to_openai_error`` knows."""
        if self._draining:
            raise Overloaded("the server is shutting down", reason="shutting_down", retry_after_s=5.0)
        grant = self.access.grant(headers)
        grant.require(KeyScope.SPEAK)
        return grant

    def authorize_utterance(self, headers: Mapping[str, str]) -> Grant:
        """Who asks for an utterance now; raises as ``enter``, and RateLimited."""
        grant = self.authorize(headers)
        grant.charge_request()
        return grant

    def synthesis_options(self, settings: OpenAISpeechSettings, voice: str | None) -> SynthesisOptions:
        """What the engine is asked for; raises BadRequest."""
        return SynthesisOptions(
            voice=voice,
            audio=settings.audio,
            speed=settings.speed,
            volume=settings.volume,
            seed=settings.seed,
            delivery=Delivery(instruction=settings.instructions, language=settings.language),
        )

    def resolve_named_voice(self, settings: OpenAISpeechSettings, grant: Grant) -> str | None:
        """The engine's voice of a request, None where it is to be made of a recording that may be used.

        Raises BadRequest.
        """
        check_openai_model(settings.model)
        if settings.ref_audio is None:
            return self.voices.resolve(settings.voice, grant)
        grant.require(KeyScope.ENROLL)
        self.voices.check_cloning()
        return None

    @asynccontextmanager
    async def engine_voice(self, settings: OpenAISpeechSettings, grant: Grant) -> AsyncIterator[str]:
        """The engine's voice for a request: a named one, or one of a recording that comes with it.

        Such a voice is the key's own, and gone when the block is left. Raises BadRequest, Overloaded.
        """
        named_voice_id = self.resolve_named_voice(settings, grant)
        if named_voice_id is not None:
            yield named_voice_id
            return
        assert settings.ref_audio is not None
        recording = await self.guard.fetch(settings.ref_audio)
        new = NewVoice("of one request", settings.ref_text, provenance="ref_audio of a request")
        async with self.voices.temporary(recording, new, grant) as voice_id:
            yield voice_id

    async def _speech(self, request: Request) -> Response:
        return _OpenAISpeechResponse(self, request)

    async def _models(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        return models_body((OWN_MODEL, *MODELS), self._models_created_at)

    async def _model(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        model = request.path_params["model"]
        check_openai_model(model)
        return model_body(model, self._models_created_at)

    def json_route(self, scope: KeyScope, answer: JsonHandler) -> Callable[[Request], Awaitable[Response]]:
        """A route that asks for a key of that scope and answers JSON, refusals too."""

        async def route(request: Request) -> Response:
            headers = {"x-request-id": _request_id()}
            try:
                grant = self.access.grant(request.headers)
                grant.require(scope)
                return JSONResponse(await answer(request, grant), headers=headers)
            except VivavoceError as error:
                error_response = to_openai_error(error)
                return JSONResponse(
                    error_response.body, error_response.status, headers | error_response.headers
                )

        return route


class _OpenAISpeechResponse(Response):
    """One request for speech, from its body to its last byte."""

    def __init__(self, server: OpenAISpeechApi, request: Request) -> None:
        super().__init__()
        self.finished = asyncio.Event()
        self._server = server
        self._request = request
        self._id = _request_id()
        self._response_headers: dict[str, str] = {}
        self._send: Send
        self._body: StreamedBody

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Boundary: whatever is raised ends this answer and no more."""
        self._response_headers = {"x-request-id": self._id, **_STREAM_HEADERS}
        self._send, self._body = send, StreamedBody(scope, send, self._response_headers)
        self._server.active_responses.add(self)
        try:
            await self._respond()
        except (ClientDisconnect, TimeoutError):
            logger.debug("request %s: its client left or takes nothing", self._id)
        except VivavoceError as error:
            await self._send_error(to_openai_error(error))
        except Exception as error:
            logger.exception("request %s failed", self._id)
            await self._send_error(to_openai_error(error))
        finally:
            self._server.active_responses.discard(self)
            self.finished.set()

    async def _respond(self) -> None:
        server = self._server
        grant = server.authorize_utterance(self._request.headers)
        request = await _read_request(self._request, server.max_text_characters)
        with server.log.track(_API, grant, self._id) as record, grant.stream():
            record.count_text(len(request.text))
            await cancel_on_disconnect(
                self._request.receive, self._find_voice_and_speak(request, grant, record)
            )

    async def _find_voice_and_speak(
        self, request: CreateSpeechRequest, grant: Grant, record: RequestRecord
    ) -> None:
        async with self._server.engine_voice(request.settings, grant) as record.voice:
            order = self._server.synthesis_options(request.settings, record.voice)
            grant.charge_characters(len(request.text))
            await self._speak(request, order, record)

    async def _speak(
        self, request: CreateSpeechRequest, order: SynthesisOptions, record: RequestRecord
    ) -> None:
        as_events = request.stream_format is OpenAIStreamFormat.SSE
        self._response_headers["content-type"] = _EVENT_STREAM_TYPE if as_events else order.audio.content_type
        self._body.bytes_per_s = order.audio.bytes_per_second
        samples = 0
        async with open_encoded_stream(self._server.engine, order) as utterance:
            utterance.push_text(request.text)
            utterance.end_input()
            async for chunk in utterance:
                if chunk.audio:
                    await self._body.write(audio_delta_event(chunk.audio) if as_events else chunk.audio)
                    record.count_audio((chunk.samples[1] - samples) / SAMPLE_RATE)
                    samples = chunk.samples[1]
        if as_events:
            await self._body.write(
                audio_done_event(len(request.text), round(samples / SAMPLE_RATE * _SPEECH_IDS_PER_S))
            )
        await self._body.end()

    async def _send_error(self, error_response: OpenAIErrorResponse) -> None:
        """Say what is wrong, as an answer of its own or as far as is possible in one that has begun."""
        if not self._body.started:
            headers = {"x-request-id": self._id} | error_response.headers
            answer = JSONResponse(error_response.body, error_response.status, headers)
            await answer(self._request.scope, self._request.receive, self._send)
        elif self._response_headers["content-type"] == _EVENT_STREAM_TYPE:
            await self._body.write(audio_error_event(error_response.body))
            await self._body.end()
        # Audio that is cut off has no end: the server drops the connection, and the client knows.


async def _read_request(request: Request, max_text_characters: int) -> CreateSpeechRequest:
    """The request in a bounded body; raises ProtocolError."""
    body = await with_bounded_body(request).body()
    if len(body) > _THREAD_PARSING_BYTES:
        return await asyncio.to_thread(parse_speech_request, body, max_text_characters)
    return parse_speech_request(body, max_text_characters)


def with_bounded_body(request: Request) -> Request:
    """The same request, whose body may be read without fear; reading raises OpenAIBodyTooLong."""
    read = 0

    async def receive() -> Message:
        nonlocal read
        message = await request.receive()
        read += len(message.get("body", b""))
        if read > MAX_BODY_BYTES:
            raise OpenAIBodyTooLong(f"the body has more than the {MAX_BODY_BYTES:,} bytes that are allowed")
        return message

    return Request(request.scope, receive)


def check_openai_model(model: str | None) -> None:
    """Raise ModelNotFound for the name of a model of another kind."""
    if model is not None and not _KNOWN_MODELS.fullmatch(model):
        allowed = ", ".join((OWN_MODEL, *MODELS))
        raise OpenAIModelNotFound(
            f"The model '{model}' does not exist; there are {allowed}, which are one here"
        )


def _request_id() -> str:
    return f"req_{uuid4().hex}"
