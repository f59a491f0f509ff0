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

from ....adapters.dashscope.connection import (
    MAX_FRAME_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    replace_lone_surrogates,
)
from ....adapters.dashscope.encoding import sentence_payload
from ....adapters.dashscope.events import DashScopeErrorCode, SentenceBegin, SentenceEnd, SentenceSynthesis
from ....adapters.dashscope.parameters import (
    InvalidDashScopeField,
    TaskParameters,
    billed_characters,
    parse_parameter_fields,
)
from ....adapters.dashscope.sentence_events import SentenceEventBuilder
from ....adapters.ssml import SsmlText, parse_ssml
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.engine import Engine
from ....tts_engine.errors import Overloaded, UnknownVoice, VivavoceError
from ...access.access_control import AccessControl, Grant
from ...access.keys import Scope as KeyScope
from ...access.url_guard import UrlGuard
from ...web.request_log import RequestLog, RequestRecord
from ...web.streamed_body import StreamedBody, cancel_on_disconnect
from ..speech import EncodedChunk, open_encoded_stream
from .audio_store import AudioStore, StoredAudio
from .enrollment import DashScopeEnrollment, DashScopeVoiceRegistry
from .errors import DashScopeErrorResponse, to_dashscope_error
from .request_mapping import check_dashscope_model, make_synthesis_options, resolve_dashscope_voice

logger = logging.getLogger(__name__)

PATH: Final = "/api/v1/services/audio/tts"
MAX_ENROLLMENT_BYTES: Final = (
    28 << 20
)  # bytes of a request with a recording inside: the guard's 20 MB in base64
_THREAD_PARSING_BYTES: Final = 1 << 18  # bytes; more are parsed on a thread
_API: Final = "dashscope-http"


class DashScopeHttpApi:
    """The routes, and the speech that their links lead to; belongs to an event loop."""

    def __init__(
        self,
        engine: Engine,
        access: AccessControl,
        voices: DashScopeVoiceRegistry,
        log: RequestLog,
        guard: UrlGuard,
        store: AudioStore,
    ) -> None:
        self.engine = engine
        self.access = access
        self.voices = voices
        self.log = log
        self.store = store
        self.active_responses: set[_DashScopeSpeechResponse] = set()
        self._enrollment = DashScopeEnrollment(voices, guard)
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
        if self.active_responses:
            await asyncio.wait({answer.finished for answer in self.active_responses}, timeout=within_s)

    def authorize_request(self, request: Request, scope: KeyScope) -> Grant:
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
            grant = self.authorize_request(request, KeyScope.ENROLL)
            fields = _input_object(await _read_body(request, MAX_ENROLLMENT_BYTES))
            output = await self._enrollment.perform(fields, grant)
        except UnknownVoice as error:
            return _json_error(
                DashScopeErrorResponse(DashScopeErrorCode.VOICE_NOT_FOUND, str(error), 400), request_id
            )
        except VivavoceError as error:
            return _json_error(to_dashscope_error(error), request_id)
        return JSONResponse({"request_id": request_id, "output": output, "usage": {"count": 1}})

    async def _synthesize(self, request: Request) -> Response:
        return _DashScopeSpeechResponse(self, request)

    async def _result(self, id: str) -> Response:
        audio = self.store.get(id)
        if audio is None:
            missing = {"code": "NoSuchKey", "message": "this audio does not exist, or its time is over"}
            return JSONResponse(missing, 404)
        return FileResponse(audio.path, media_type=audio.content_type)


class _DashScopeSpeechResponse(Response):
    """One request for speech, from its body to its last byte."""

    def __init__(self, server: DashScopeHttpApi, request: Request) -> None:
        super().__init__()
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._server = server
        self._request = request
        self._id = str(uuid4())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Boundary: whatever is raised ends this answer and no more."""
        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        events = StreamedBody(scope, send, headers)
        self._server.active_responses.add(self)
        try:
            answer = await self._respond(receive, events)
        except (ClientDisconnect, TimeoutError):
            logger.debug("request %s: its client left or takes nothing", self._id)
            return
        except VivavoceError as error:
            answer = await self._error_response(to_dashscope_error(error), events)
        except Exception as error:
            logger.exception("request %s failed", self._id)
            answer = await self._error_response(to_dashscope_error(error), events)
        finally:
            self._server.active_responses.discard(self)
            self.finished.set_result(None)
        if answer is not None:
            await answer(scope, receive, send)

    async def _respond(self, receive: Receive, events: StreamedBody) -> Response | None:
        """Speak, and return the answer, or None where it went as events."""
        server = self._server
        grant = server.authorize_request(self._request, KeyScope.SPEAK)
        body = await _read_body(self._request, MAX_FRAME_CHARACTERS)
        fields = _input_object(body)
        check_dashscope_model(_required_string(body, "model"))
        parameters = parse_parameter_fields(fields, codec="wav", sample_rate=SAMPLE_RATE)
        spoken = _spoken_text(fields, parameters)
        characters = billed_characters(spoken.text)
        with server.log.track(_API, grant, self._id) as record, grant.stream():
            grant.charge_characters(characters)
            record.count_text(len(spoken.text))
            record.voice = resolve_dashscope_voice(server.voices, parameters.voice, grant)
            wants_events = self._request.headers.get("x-dashscope-sse", "").lower() == "enable"
            speech = _StoredSpeech(self._id, parameters, spoken, record, events if wants_events else None)
            audio = await cancel_on_disconnect(receive, speech.render(server.engine, server.store))
        output = {"finish_reason": "stop", "audio": self._link(audio)}
        done = {"request_id": self._id, "output": output, "usage": {"characters": characters}}
        if not wants_events:
            return JSONResponse(done)
        await events.write(_server_sent_event("result", done))
        await events.end()
        return None

    async def _error_response(
        self, error_response: DashScopeErrorResponse, events: StreamedBody
    ) -> Response | None:
        """An answer of its own, or the last event of one that has begun."""
        if not events.started:
            return _json_error(error_response, self._id)
        error = {"request_id": self._id, "code": error_response.code, "message": error_response.message}
        await events.write(_server_sent_event("error", error, error_response.status))
        await events.end()
        return None

    def _link(self, audio: StoredAudio) -> dict[str, object]:
        url = self._request.url.replace(path=f"{PATH}/results/{audio.id}", query="")
        return {
            "id": f"audio_{self._id}",
            "url": str(url),
            "data": "",
            "expires_at": math.floor(audio.expires_at),
        }


class _StoredSpeech:
    """One text on its way into the store and, if they are wanted, events."""

    def __init__(
        self,
        request_id: str,
        parameters: TaskParameters,
        render: SsmlText,
        record: RequestRecord,
        events: StreamedBody | None,
    ) -> None:
        self._id = request_id
        self._parameters = parameters
        self._text, self._prosody = render.text, render.prosody
        self._record = record
        self._events = events
        self._sentences = SentenceEventBuilder(request_id, include_words=parameters.include_words)

    async def render(self, engine: Engine, store: AudioStore) -> StoredAudio:
        """Speak all of it; raises what the engine does, and Overloaded."""
        options = make_synthesis_options(self._parameters, self._record.voice).with_prosody(self._prosody)
        if self._events is not None:
            self._events.bytes_per_s = options.audio.bytes_per_second
        async with (
            store.open_writer(options.audio.content_type) as writer,
            open_encoded_stream(engine, options) as utterance,
        ):
            utterance.push_text(self._text)
            utterance.end_input()
            async for chunk in utterance:
                await writer.write(chunk.audio)
                await self._send_chunk_events(chunk)
            for event in self._sentences.events_at_end(self._text):
                await self._send_sentence_event(event)
            return writer.commit()

    async def _send_chunk_events(self, chunk: EncodedChunk) -> None:
        start, stop = chunk.samples
        for event in self._sentences.events_before_audio(
            self._text, chunk.text, chunk.words, has_audio=bool(chunk.audio)
        ):
            if isinstance(event, SentenceSynthesis):
                await self._send_sentence_event(event, chunk.audio)
            else:
                await self._send_sentence_event(event)
        self._record.count_audio((stop - start) / SAMPLE_RATE)

    async def _send_sentence_event(
        self, event: SentenceBegin | SentenceSynthesis | SentenceEnd, audio: bytes = b""
    ) -> None:
        if self._events is None:
            return
        payload = sentence_payload(event)
        if audio:
            payload["output"]["audio"] = {"data": b64encode(audio).decode("ascii")}
        await self._events.write(_server_sent_event("result", {**payload, "request_id": self._id}))


def _server_sent_event(kind: str, data: Mapping[str, object], status: int = 200) -> bytes:
    """One server-sent event; the SDK compares what follows "event:" without stripping it."""
    return f"event:{kind}\nstatus:{status}\ndata:{json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _json_error(error_response: DashScopeErrorResponse, request_id: str) -> JSONResponse:
    body = {"request_id": request_id, "code": error_response.code, "message": error_response.message}
    headers = {}
    if error_response.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(error_response.retry_after_s))
    return JSONResponse(body, error_response.status, headers)


async def _read_body(request: Request, max_body_bytes: int) -> Mapping[str, object]:
    """The JSON object in a bounded body; raises Invalid."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_body_bytes:
            raise InvalidDashScopeField(
                f"the request has over {max_body_bytes} bytes, which is all that is allowed"
            )
    return (
        await asyncio.to_thread(_parse_object, bytes(body))
        if len(body) > _THREAD_PARSING_BYTES
        else _parse_object(bytes(body))
    )


def _parse_object(body: bytes) -> Mapping[str, object]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidDashScopeField("the request is not JSON") from None
    if not isinstance(message, dict):
        raise InvalidDashScopeField("the request is not a JSON object")
    return message


def _input_object(body: Mapping[str, object]) -> Mapping[str, object]:
    fields = body.get("input")
    if not isinstance(fields, dict):
        raise InvalidDashScopeField("input must be an object")
    return fields


def _required_string(container: Mapping[str, object], name: str) -> str:
    value = container.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidDashScopeField(f"{name} is required")
    return value


def _spoken_text(fields: Mapping[str, object], parameters: TaskParameters) -> SsmlText:
    text = _required_string(fields, "text")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise InvalidDashScopeField(
            f"input.text: {len(text)} characters; at most {MAX_TEXT_CHARACTERS} are allowed"
        )
    text = replace_lone_surrogates(text)
    return parse_ssml(text) if parameters.is_ssml(text) else SsmlText(text)
