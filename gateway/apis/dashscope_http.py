"""DashScope over HTTP: voices enrolled, listed, replaced and deleted, and speech as a link or as events.

    POST /api/v1/services/audio/tts/customization      {"model": "voice-enrollment", "input": {"action", ...}}
    POST /api/v1/services/audio/tts/SpeechSynthesizer  {"model", "input": {"text", "voice", ...}}
    GET  /api/v1/services/audio/tts/results/{id}       what an answer's audio.url is

A recording comes as a URL, fetched through the guard, or inside the request as a data: URL. Voices that this
API makes carry DashScope's ids, {target_model}-{prefix}-{32 hex}; it tells of no others.

Source: enrollment.py and http_speech_synthesizer.py of dashscope-sdk-python 2.0.2; Alibaba's help pages.
"""

import asyncio
import json
import logging
import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ...adapters.dashscope import (
    MOST_FRAME,
    MOST_TEXT,
    AudioComing,
    ErrorCode,
    SentenceBegun,
    SentenceEnded,
    sentence_payload,
    whole_characters,
)
from ...adapters.dashscope_parameters import Invalid, TaskParameters, charged_characters, parameters_of
from ...adapters.dashscope_sentences import Sentences
from ...adapters.ssml import Spoken, read_ssml
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.engine import Engine
from ...tts_engine.errors import Overloaded, UnknownVoice, VivavoceError
from ..access.access import Access, Grant
from ..access.keys import Scope as KeyScope
from ..access.url_guard import UrlGuard
from .audio_store import AudioStore, KeptAudio
from .dashscope_enrolment import Enrolment, Registry
from .dashscope_words import Refusal, check_model, order_of, refusal_of, resolve_voice
from .request_log import RequestLog, RequestRecord
from .speech import Encoded, open_utterance
from .streamed import StreamedBody, while_connected

logger = logging.getLogger(__name__)

PATH: Final = "/api/v1/services/audio/tts"
MOST_ENROLMENT: Final = 28 << 20  # bytes of a request with a recording inside: the guard's 20 MB in base64
_LONG_BODY: Final = 1 << 18  # bytes; more are parsed on a thread
_API: Final = "dashscope-http"


class DashScopeHttp:
    """The routes, and the speech that their links lead to; belongs to an event loop."""

    def __init__(
        self,
        engine: Engine,
        access: Access,
        voices: Registry,
        log: RequestLog,
        guard: UrlGuard,
        store: AudioStore,
    ) -> None:
        self.engine = engine
        self.access = access
        self.voices = voices
        self.log = log
        self.store = store
        self.answers: set[_SpeechAnswer] = set()
        self._enrolment = Enrolment(voices, guard)
        self._draining = False

    def routes(self) -> APIRouter:
        """Everything of this API that is not a WebSocket."""
        router = APIRouter(prefix=PATH)
        router.add_api_route("/customization", self._customize, methods=["POST"])
        router.add_api_route("/SpeechSynthesizer", self._synthesize, methods=["POST"])
        router.add_api_route("/results/{id}", self._result, methods=["GET", "HEAD"])
        return router

    async def finish(self, within_s: float) -> None:
        """Begin nothing new, and let what has begun end, at most ``within_s``."""
        self._draining = True
        if self.answers:
            await asyncio.wait({answer.over for answer in self.answers}, timeout=within_s)

    def admit(self, request: Request, scope: KeyScope) -> Grant:
        """Who asks; raises what ``refusal_of`` knows."""
        if self._draining:
            raise Overloaded("the server is shutting down", reason="shutting_down", retry_after_s=5.0)
        grant = self.access.grant(request.headers)
        grant.require(scope)
        grant.charge_request()
        return grant

    async def _customize(self, request: Request) -> Response:
        request_id = str(uuid4())
        try:
            grant = self.admit(request, KeyScope.ENROL)
            given = _input(await _body(request, MOST_ENROLMENT))
            output = await self._enrolment.answer(given, grant)
        except UnknownVoice as error:
            return _refused(Refusal(ErrorCode.NO_SUCH_VOICE, str(error), 400), request_id)
        except VivavoceError as error:
            return _refused(refusal_of(error), request_id)
        return JSONResponse({"request_id": request_id, "output": output, "usage": {"count": 1}})

    async def _synthesize(self, request: Request) -> Response:
        return _SpeechAnswer(self, request)

    async def _result(self, id: str) -> Response:
        audio = self.store.get(id)
        if audio is None:
            missing = {"code": "NoSuchKey", "message": "this audio does not exist, or its time is over"}
            return JSONResponse(missing, 404)
        return FileResponse(audio.path, media_type=audio.content_type)


class _SpeechAnswer(Response):
    """One request for speech, from its body to its last byte."""

    def __init__(self, house: DashScopeHttp, request: Request) -> None:
        super().__init__()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._house = house
        self._request = request
        self._id = str(uuid4())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Boundary: whatever is raised ends this answer and no more."""
        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        events = StreamedBody(scope, send, headers)
        self._house.answers.add(self)
        try:
            answer = await self._answer(receive, events)
        except (ClientDisconnect, TimeoutError):
            logger.debug("request %s: its client left or takes nothing", self._id)
            return
        except VivavoceError as error:
            answer = await self._failed(refusal_of(error), events)
        except Exception as error:
            logger.exception("request %s failed", self._id)
            answer = await self._failed(refusal_of(error), events)
        finally:
            self._house.answers.discard(self)
            self.over.set_result(None)
        if answer is not None:
            await answer(scope, receive, send)

    async def _answer(self, receive: Receive, events: StreamedBody) -> Response | None:
        """Speak, and return the answer, or None where it went as events."""
        house = self._house
        grant = house.admit(self._request, KeyScope.SPEAK)
        body = await _body(self._request, MOST_FRAME)
        given = _input(body)
        check_model(_string(body, "model"))
        parameters = parameters_of(given, codec="wav", sample_rate=SAMPLE_RATE)
        spoken = _spoken(given, parameters)
        characters = charged_characters(spoken.text)
        with house.log.request(_API, grant, self._id) as record, grant.stream():
            grant.charge_characters(characters)
            record.text(len(spoken.text))
            record.voice = resolve_voice(house.voices, parameters.voice, grant)
            wants_events = self._request.headers.get("x-dashscope-sse", "").lower() == "enable"
            speech = _Speech(self._id, parameters, spoken, record, events if wants_events else None)
            audio = await while_connected(receive, speech.spoken(house.engine, house.store))
        output = {"finish_reason": "stop", "audio": self._link(audio)}
        done = {"request_id": self._id, "output": output, "usage": {"characters": characters}}
        if not wants_events:
            return JSONResponse(done)
        await events.write(_event("result", done))
        await events.end()
        return None

    async def _failed(self, refusal: Refusal, events: StreamedBody) -> Response | None:
        """An answer of its own, or the last event of one that has begun."""
        if not events.begun:
            return _refused(refusal, self._id)
        error = {"request_id": self._id, "code": refusal.code, "message": refusal.message}
        await events.write(_event("error", error, refusal.status))
        await events.end()
        return None

    def _link(self, audio: KeptAudio) -> dict[str, object]:
        url = self._request.url.replace(path=f"{PATH}/results/{audio.id}", query="")
        return {
            "id": f"audio_{self._id}",
            "url": str(url),
            "data": "",
            "expires_at": math.floor(audio.expires_at),
        }


class _Speech:
    """One text on its way into the store and, if they are wanted, events."""

    def __init__(
        self,
        request_id: str,
        parameters: TaskParameters,
        spoken: Spoken,
        record: RequestRecord,
        events: StreamedBody | None,
    ) -> None:
        self._id = request_id
        self._parameters = parameters
        self._text, self._manner = spoken.text, spoken.manner
        self._record = record
        self._events = events
        self._sentences = Sentences(request_id, with_words=parameters.with_words)

    async def spoken(self, engine: Engine, store: AudioStore) -> KeptAudio:
        """Speak all of it; raises what the engine does, and Overloaded."""
        order = order_of(self._parameters, self._record.voice).said(self._manner)
        if self._events is not None:
            self._events.bytes_per_s = order.audio.bytes_per_second
        async with store.draft(order.audio.content_type) as draft, open_utterance(engine, order) as utterance:
            utterance.push_text(self._text)
            utterance.end_input()
            async for encoded in utterance:
                await draft.write(encoded.audio)
                await self._tell(encoded)
            for event in self._sentences.at_end(self._text):
                await self._tell_sentence(event)
            return draft.keep()

    async def _tell(self, encoded: Encoded) -> None:
        start, stop = encoded.samples
        for event in self._sentences.before_audio(
            self._text, encoded.text, encoded.words, has_audio=bool(encoded.audio)
        ):
            if isinstance(event, AudioComing):
                await self._tell_sentence(event, encoded.audio)
            else:
                await self._tell_sentence(event)
        self._record.audio((stop - start) / SAMPLE_RATE)

    async def _tell_sentence(
        self, event: SentenceBegun | AudioComing | SentenceEnded, audio: bytes = b""
    ) -> None:
        if self._events is None:
            return
        payload = sentence_payload(event)
        if audio:
            payload["output"]["audio"] = {"data": b64encode(audio).decode("ascii")}
        await self._events.write(_event("result", {**payload, "request_id": self._id}))


def _event(kind: str, data: Mapping[str, object], status: int = 200) -> bytes:
    """One server-sent event; the SDK compares what follows "event:" without stripping it."""
    return f"event:{kind}\nstatus:{status}\ndata:{json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _refused(refusal: Refusal, request_id: str) -> JSONResponse:
    body = {"request_id": request_id, "code": refusal.code, "message": refusal.message}
    headers = {}
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(refusal.retry_after_s))
    return JSONResponse(body, refusal.status, headers)


async def _body(request: Request, most: int) -> Mapping[str, object]:
    """The JSON object in a bounded body; raises Invalid."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise Invalid(f"the request has over {most} bytes, which is all that is allowed")
    return await asyncio.to_thread(_parsed, bytes(body)) if len(body) > _LONG_BODY else _parsed(bytes(body))


def _parsed(body: bytes) -> Mapping[str, object]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise Invalid("the request is not JSON") from None
    if not isinstance(message, dict):
        raise Invalid("the request is not a JSON object")
    return message


def _input(body: Mapping[str, object]) -> Mapping[str, object]:
    given = body.get("input")
    if not isinstance(given, dict):
        raise Invalid("input must be an object")
    return given


def _string(container: Mapping[str, object], name: str) -> str:
    value = container.get(name)
    if not isinstance(value, str) or not value:
        raise Invalid(f"{name} is required")
    return value


def _spoken(given: Mapping[str, object], parameters: TaskParameters) -> Spoken:
    text = _string(given, "text")
    if len(text) > MOST_TEXT:
        raise Invalid(f"input.text: {len(text)} characters; at most {MOST_TEXT} are allowed")
    text = whole_characters(text)
    return read_ssml(text) if parameters.is_ssml(text) else Spoken(text)
