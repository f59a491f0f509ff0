"""OpenAI's speech API over the engine: ``/v1/audio/speech``, ``/v1/models``, ``/v1/audio/voices``.

    request -> adapters.openai_speech.read_speech_request -> speech.Utterance -> audio, or server-sent events

Headers are sent with the first audio, so whatever goes wrong before it is an answer of its own. A client that
leaves is noticed while it is spoken to, and one that takes nothing holds up its own utterance only.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from ...adapters.openai_speech import (
    MODELS,
    MOST_BODY,
    ProtocolError,
    SpeechRequest,
    SpeechSettings,
    StreamFormat,
    delta_event,
    done_event,
    error_body,
    error_event,
    model_body,
    models_body,
    read_speech_request,
)
from ...tts_engine.backend import Delivery
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.engine import Engine
from ...tts_engine.errors import BadRequest, BadText, Overloaded, UnknownVoice, VivavoceError
from ..access.access import Access, Grant
from ..access.errors import KeyRefused, OriginRefused, RateLimited, ScopeMissing, UrlRefused
from ..access.keys import Scope as KeyScope
from ..access.url_guard import UrlGuard
from ..voice_registry import NewVoice, VoiceRegistry
from .request_log import RequestLog, RequestRecord
from .speech import SpeechOrder, open_utterance
from .streamed import StreamedBody, while_connected

logger = logging.getLogger(__name__)

OWN_MODEL: Final = "vivavoce"
_API: Final = "openai"
_KNOWN_MODELS: Final = re.compile(r"(vivavoce|cosyvoice|gpt-4o-mini-tts)([.-].*)?|tts-1(-hd)?", re.ASCII)
_LONG_BODY: Final = 2**18  # bytes; more are parsed on a thread
_SPEECH_IDS_PER_S: Final = 25  # what output is counted in, as OpenAI counts its own
_EVENTS: Final = "text/event-stream"
_STREAM_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class NotFound(BadRequest):
    """What is asked about is not here."""


class ModelNotFound(BadRequest):
    """No model of that name is here."""


class BodyTooLong(ProtocolError):
    """The body goes on beyond what is read."""


Answer = Callable[[Request, Grant], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in OpenAI's words. retry_after_s: when it is a matter of time."""

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of it."""
        return error_body(self.message, self.kind, self.param, self.code)

    @property
    def headers(self) -> dict[str, str]:
        """What goes with it."""
        headers = {} if self.retry_after_s is None else {"retry-after": str(math.ceil(self.retry_after_s))}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status == 413:
            headers["connection"] = "close"  # the rest of it is not waited for
        return headers


def refusal_of(error: Exception) -> Refusal:
    """OpenAI's words for an error of ours; an error that is none of ours is told nothing about."""
    bad, sentence = "invalid_request_error", str(error)
    match error:
        case BodyTooLong():
            return Refusal(413, bad, sentence)
        case ProtocolError(param=param, code=code):
            return Refusal(400, bad, sentence, param, code)
        case KeyRefused():
            return Refusal(401, bad, sentence, code="invalid_api_key")
        case ScopeMissing() | OriginRefused():
            return Refusal(403, bad, sentence, code="insufficient_permissions")
        case RateLimited(retry_after_s=wait_s):
            return Refusal(429, "requests", sentence, code="rate_limit_exceeded", retry_after_s=wait_s)
        case Overloaded(retry_after_s=wait_s, reason=reason):
            return Refusal(503, "server_error", sentence, code=f"overloaded_{reason}", retry_after_s=wait_s)
        case ModelNotFound():
            return Refusal(404, bad, sentence, "model", "model_not_found")
        case NotFound():
            return Refusal(404, bad, sentence, code="not_found")
        case UnknownVoice():
            return Refusal(400, bad, sentence, "voice", "voice_not_found")
        case UrlRefused():
            return Refusal(400, bad, sentence, "ref_audio", "invalid_value")
        case BadText():
            return Refusal(400, bad, sentence, "input", "invalid_value")
        case BadRequest():
            return Refusal(400, bad, sentence)
        case VivavoceError():
            return Refusal(500, "server_error", sentence)
        case _:
            return Refusal(500, "server_error", "the request failed inside the server")


class OpenAISpeech:
    """The API of one server; belongs to its event loop. longest_text: characters of one request."""

    def __init__(
        self,
        engine: Engine,
        access: Access,
        voices: VoiceRegistry,
        log: RequestLog,
        guard: UrlGuard,
        longest_text: int = 4_096,
    ) -> None:
        self.engine = engine
        self.access = access
        self.voices = voices
        self.log = log
        self.guard = guard
        self.longest_text = longest_text
        self._since = int(time.time())
        self.answers: set[_SpeechAnswer] = set()
        self._draining = False

    def routes(self) -> APIRouter:
        """Everything under /v1 that is OpenAI's."""
        router = APIRouter()
        router.add_api_route("/v1/audio/speech", self._speech, methods=["POST"])
        router.add_api_route("/v1/models", self.answering(KeyScope.SPEAK, self._models), methods=["GET"])
        router.add_api_route(
            "/v1/models/{model:path}", self.answering(KeyScope.SPEAK, self._model), methods=["GET"]
        )
        return router

    async def finish(self, within_s: float) -> None:
        """Take no new requests, and let those under way be answered, at most ``within_s``."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for answer in tuple(self.answers):
                    await answer.over.wait()

    def enter(self, headers: Mapping[str, str]) -> Grant:
        """Who is here for speech; raises what ``refusal_of`` knows."""
        if self._draining:
            raise Overloaded("the server is shutting down", reason="shutting_down", retry_after_s=5.0)
        grant = self.access.grant(headers)
        grant.require(KeyScope.SPEAK)
        return grant

    def admit(self, headers: Mapping[str, str]) -> Grant:
        """Who asks for an utterance now; raises as ``enter``, and RateLimited."""
        grant = self.enter(headers)
        grant.charge_request()
        return grant

    def order(self, settings: SpeechSettings, voice: str | None) -> SpeechOrder:
        """What the engine is asked for; raises BadRequest."""
        return SpeechOrder(
            voice=voice,
            audio=settings.audio,
            speed=settings.speed,
            volume=settings.volume,
            seed=settings.seed,
            delivery=Delivery(instruction=settings.instructions, language=settings.language),
        )

    def named_voice(self, settings: SpeechSettings, grant: Grant) -> str | None:
        """The engine's voice of a request, None where it is to be made of a recording that may be used.

        Raises BadRequest.
        """
        check_model(settings.model)
        if settings.ref_audio is None:
            return self.voices.resolve(settings.voice, grant)
        grant.require(KeyScope.ENROL)
        self.voices.check_cloning()
        return None

    @asynccontextmanager
    async def voice(self, settings: SpeechSettings, grant: Grant) -> AsyncIterator[str]:
        """The engine's voice for a request: a named one, or one of a recording that comes with it.

        Such a voice is the key's own, and gone when the block is left. Raises BadRequest, Overloaded.
        """
        named = self.named_voice(settings, grant)
        if named is not None:
            yield named
            return
        assert settings.ref_audio is not None
        recording = await self.guard.fetch(settings.ref_audio)
        new = NewVoice("of one request", settings.ref_text, provenance="ref_audio of a request")
        async with self.voices.borrowed(recording, new, grant) as voice_id:
            yield voice_id

    async def _speech(self, request: Request) -> Response:
        return _SpeechAnswer(self, request)

    async def _models(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        return models_body((OWN_MODEL, *MODELS), self._since)

    async def _model(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        model = request.path_params["model"]
        check_model(model)
        return model_body(model, self._since)

    def answering(self, scope: KeyScope, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """A route that asks for a key of that scope and answers JSON, refusals too."""

        async def route(request: Request) -> Response:
            headers = {"x-request-id": _request_id()}
            try:
                grant = self.access.grant(request.headers)
                grant.require(scope)
                return JSONResponse(await answer(request, grant), headers=headers)
            except VivavoceError as error:
                refusal = refusal_of(error)
                return JSONResponse(refusal.body, refusal.status, headers | refusal.headers)

        return route


class _SpeechAnswer(Response):
    """One request for speech, from its body to its last byte."""

    def __init__(self, house: OpenAISpeech, request: Request) -> None:
        super().__init__()
        self.over = asyncio.Event()
        self._house = house
        self._request = request
        self._id = _request_id()
        self._answer_headers: dict[str, str] = {}
        self._send: Send
        self._body: StreamedBody

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Boundary: whatever is raised ends this answer and no more."""
        self._answer_headers = {"x-request-id": self._id, **_STREAM_HEADERS}
        self._send, self._body = send, StreamedBody(scope, send, self._answer_headers)
        self._house.answers.add(self)
        try:
            await self._answer()
        except (ClientDisconnect, TimeoutError):
            logger.debug("request %s: its client left or takes nothing", self._id)
        except VivavoceError as error:
            await self._refuse(refusal_of(error))
        except Exception as error:
            logger.exception("request %s failed", self._id)
            await self._refuse(refusal_of(error))
        finally:
            self._house.answers.discard(self)
            self.over.set()

    async def _answer(self) -> None:
        house = self._house
        grant = house.admit(self._request.headers)
        request = await _read(self._request, house.longest_text)
        with house.log.request(_API, grant, self._id) as record, grant.stream():
            record.text(len(request.text))
            await while_connected(self._request.receive, self._find_voice_and_speak(request, grant, record))

    async def _find_voice_and_speak(
        self, request: SpeechRequest, grant: Grant, record: RequestRecord
    ) -> None:
        async with self._house.voice(request.settings, grant) as record.voice:
            order = self._house.order(request.settings, record.voice)
            grant.charge_characters(len(request.text))
            await self._speak(request, order, record)

    async def _speak(self, request: SpeechRequest, order: SpeechOrder, record: RequestRecord) -> None:
        as_events = request.stream_format is StreamFormat.SSE
        self._answer_headers["content-type"] = _EVENTS if as_events else order.audio.content_type
        self._body.bytes_per_s = order.audio.bytes_per_second
        samples = 0
        async with open_utterance(self._house.engine, order) as utterance:
            utterance.push_text(request.text)
            utterance.end_input()
            async for encoded in utterance:
                if encoded.audio:
                    await self._body.write(delta_event(encoded.audio) if as_events else encoded.audio)
                    record.audio((encoded.samples[1] - samples) / SAMPLE_RATE)
                    samples = encoded.samples[1]
        if as_events:
            await self._body.write(
                done_event(len(request.text), round(samples / SAMPLE_RATE * _SPEECH_IDS_PER_S))
            )
        await self._body.end()

    async def _refuse(self, refusal: Refusal) -> None:
        """Say what is wrong, as an answer of its own or as far as is possible in one that has begun."""
        if not self._body.begun:
            headers = {"x-request-id": self._id} | refusal.headers
            answer = JSONResponse(refusal.body, refusal.status, headers)
            await answer(self._request.scope, self._request.receive, self._send)
        elif self._answer_headers["content-type"] == _EVENTS:
            await self._body.write(error_event(refusal.body))
            await self._body.end()
        # Audio that is cut off has no end: the server drops the connection, and the client knows.


async def _read(request: Request, longest_text: int) -> SpeechRequest:
    """The request in a bounded body; raises ProtocolError."""
    body = await bounded(request).body()
    if len(body) > _LONG_BODY:
        return await asyncio.to_thread(read_speech_request, body, longest_text)
    return read_speech_request(body, longest_text)


def bounded(request: Request) -> Request:
    """The same request, whose body may be read without fear; reading raises BodyTooLong."""
    read = 0

    async def receive() -> Message:
        nonlocal read
        message = await request.receive()
        read += len(message.get("body", b""))
        if read > MOST_BODY:
            raise BodyTooLong(f"the body has more than the {MOST_BODY:,} bytes that are allowed")
        return message

    return Request(request.scope, receive)


def check_model(model: str | None) -> None:
    """Raise ModelNotFound for the name of a model of another kind."""
    if model is not None and not _KNOWN_MODELS.fullmatch(model):
        allowed = ", ".join((OWN_MODEL, *MODELS))
        raise ModelNotFound(f"The model '{model}' does not exist; there are {allowed}, which are one here")


def _request_id() -> str:
    return f"req_{uuid4().hex}"
