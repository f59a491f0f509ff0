"""DashScope's HTTP API: speech synthesis, as a link or as server-sent events, and voice enrolment.

    POST /api/v1/services/audio/tts/customization      {"model": "voice-enrollment", "input": {"action", ...}}
    POST /api/v1/services/audio/tts/SpeechSynthesizer  {"model", "input": {"text", "voice", ...}}
    GET  /api/v1/services/audio/tts/results/{id}       the audio behind an answer's audio.url
    GET  /api/v1/services/audio/tts/results/{id}.srt   its subtitles; so .vtt and .json, an extension

A recording comes as a URL, fetched through the URL guard, or inside the request as a data URL.

Source: dashscope-sdk-python 2.0.2 (audio/tts_v2/enrollment.py, audio/http_tts/http_speech_synthesizer.py);
Alibaba Cloud Model Studio's CosyVoice pages.
"""

import asyncio
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fastapi import Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from .....adapters.audio.pcm import WAV_HEADER_BYTES, wav_header
from .....adapters.dashscope.connection import MAX_FRAME_CHARACTERS
from .....adapters.dashscope.events import SentenceBegin, SentenceEnd, SentenceSynthesis
from .....adapters.dashscope.sentence_events import SentenceEventBuilder, billed_characters
from .....adapters.ssml.document import SsmlDocument, plain_document
from .....adapters.ssml.input import parse_ssml_in_slices
from .....adapters.subtitles import FORMATS, as_json, cues_of_written, from_json
from .....tts_engine.chunk import SAMPLE_RATE, Word
from .....tts_engine.errors import UnknownVoice
from ....access.access_control import Grant
from ....access.keys import Scope
from ....access.url_guard import UrlGuard
from ....sliced_inputs import run_in_slices
from ....web.client_json import with_bounded_body
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    Responses,
    content_response,
    error_responses,
    json_body,
    json_response,
    operation,
)
from ....web.request_log import RequestRecord
from ...kits.dashscope.errors import (
    DASHSCOPE_ERRORS,
    DashScopeErrorBody,
    DashScopeVoiceNotFound,
    InvalidDashScopeField,
)
from ...kits.dashscope.frames import AudioData, CharacterUsage, dump_json, to_result_payload
from ...kits.dashscope.validation import parse_message
from ...kits.http_api import Endpoint, SpeechHttpApi
from ...kits.operations import (
    AUDIO_CONTENT_TYPES,
    ENROLLMENT_NOTE,
    EVENT_STREAM,
    RATE_LIMITED,
    SPEECH_ERRORS,
    event_stream,
)
from ...kits.request_fields import load_json
from ...kits.speech_response import UNREAD_HEADER, UNREAD_HEADER_SCHEMA, SpeechResponse
from ...kits.streamed_body import StreamedBody, cancel_on_disconnect
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SpeechServer
from .audio_store import AudioStore, StoredAudio
from .enrollment import DashScopeEnrollment
from .models import (
    MissingAudioBody,
    SpeechSynthesizerEvent,
    SpeechSynthesizerInput,
    SpeechSynthesizerOutput,
    SpeechSynthesizerRequest,
    SpeechSynthesizerResponse,
    StoredAudioLink,
    VoiceCustomizationRequest,
    VoiceCustomizationResponse,
    VoiceOutput,
)
from .parameters import SpeechParameters
from .request_mapping import DASHSCOPE_NAMES, make_synthesis_options, voice_of_dashscope_model

PATH: Final = "/api/v1/services/audio/tts"
# A request with a recording inside: the 20 MB that the URL guard allows, in base64.
MAX_ENROLLMENT_BYTES: Final = 28 << 20
_SUBTITLE_TYPES: Final = {"srt": "application/x-subrip", "vtt": "text/vtt", "json": "application/json"}
_THREAD_PARSING_BYTES: Final = 1 << 18  # a larger body would block the event loop, so a thread parses it


def _dashscope_errors(*errors: Mapping[int, str]) -> Responses:
    return error_responses(DashScopeErrorBody, ACCESS_ERRORS, *errors)


_BAD_RANGE: Final = {400: "The Range header is malformed.", 416: "The audio has no such part."}
_NO_AUDIO: Final = "The audio does not exist or has expired."
_SYNTHESIZE: Final = operation(
    "synthesize",
    "Speak a text, for clients of DashScope.",
    {
        200: {
            "model": SpeechSynthesizerResponse,
            "description": "A link to the audio, or events, of which the last has the link.",
            "headers": UNREAD_HEADER_SCHEMA,
            "content": event_stream(SpeechSynthesizerEvent, SpeechSynthesizerResponse),
        }
    },
    _dashscope_errors(
        {400: "A field is invalid, or the body is too long."}, {404: "No such model."}, SPEECH_ERRORS
    ),
    other_parameters=[
        {
            "name": "X-DashScope-SSE",
            "in": "header",
            "description": "'enable' for events with the audio in base64, while it is made.",
            "schema": {"type": "string", "examples": ["enable"]},
        }
    ],
    body=json_body(SpeechSynthesizerRequest),
)
_CUSTOMIZE: Final = operation(
    "customize",
    "Enrol, list, look up, replace and delete voices, for clients of DashScope.",
    json_response(VoiceCustomizationResponse),
    _dashscope_errors(
        {400: "A field is invalid, no such voice, or the recording is unreachable or unusable."},
        {404: "No such model."},
        RATE_LIMITED,
        {503: "The server is shutting down."},
    ),
    description=ENROLLMENT_NOTE,
    body=json_body(VoiceCustomizationRequest),
)
_GET_AUDIO: Final = operation(
    "getAudio",
    "Fetch the audio behind a link of SpeechSynthesizer, or its subtitles.",
    content_response("The audio, or subtitles.", *AUDIO_CONTENT_TYPES, *_SUBTITLE_TYPES.values()),
    content_response("The part that a Range header names.", *AUDIO_CONTENT_TYPES, status=206),
    json_response(MissingAudioBody, 404, _NO_AUDIO),
    {status: {"description": text, "content": {"text/plain": {}}} for status, text in _BAD_RANGE.items()},
    description="Subtitles, an extension, are at the link with '.srt', '.vtt' or '.json' after it.",
    public=True,
)
_HEAD_AUDIO: Final = operation(
    "headAudio",
    "Ask for the length and type of that audio.",
    {200: {"description": "The audio exists."}, 206: {"description": "The part exists."}},
    {404: {"description": _NO_AUDIO}},
    {status: {"description": text} for status, text in _BAD_RANGE.items()},
    public=True,
)


class DashScopeHttpApi(SpeechHttpApi):
    """The routes of DashScope's HTTP API. Belongs to an event loop; ``store`` is closed by its owner."""

    name = "dashscope-http"
    errors = DASHSCOPE_ERRORS
    # Below these, of HTTP and of the WebSocket, only PAI's dialect has paths.
    error_formats = DASHSCOPE_ERRORS.formats("/api/v1", "/api-ws")

    def __init__(self, server: SpeechServer, guard: UrlGuard, store: AudioStore) -> None:
        super().__init__(server)
        self.store = store
        self._enrollment = DashScopeEnrollment(server.voices, guard)

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield f"POST {PATH}/customization", self.answering(Scope.ENROLL, self._customize), _CUSTOMIZE
        yield f"POST {PATH}/SpeechSynthesizer", self.speaking(_DashScopeSpeechResponse), _SYNTHESIZE
        yield f"GET {PATH}/results/{{id}}", self._result, _GET_AUDIO
        yield f"HEAD {PATH}/results/{{id}}", self._result, _HEAD_AUDIO

    def json_response(self, answer: VoiceOutput, request_id: str) -> JSONResponse:
        body = VoiceCustomizationResponse(request_id=request_id, output=answer)
        return super().json_response(body, request_id)

    async def _customize(self, request: Request, grant: Grant) -> VoiceOutput:
        grant.charge_request()
        body = parse_message(VoiceCustomizationRequest, await _read_body(request, MAX_ENROLLMENT_BYTES))
        try:
            return await self._enrollment.perform(body.input, grant)
        except UnknownVoice as error:
            raise DashScopeVoiceNotFound(str(error)) from None

    async def _result(self, id: str) -> Response:
        return _StoredAudioResponse(self.store, id)


class _StoredAudioResponse(Response):
    """A file of the store, or its subtitles; it stays there while it is sent."""

    def __init__(self, store: AudioStore, name: str) -> None:
        super().__init__()
        self._store = store
        self._id, _, self._subtitles_format = name.partition(".")

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Send the file, or that there is none."""
        with self._store.keep(self._id) as audio:
            if audio is not None and self._subtitles_format:
                response = await _subtitles_response(audio, self._subtitles_format)
            else:
                response = _audio_response(audio)
            await response(scope, receive, send)


class _DashScopeSpeechResponse(SpeechResponse):
    """The answer to one SpeechSynthesizer request: JSON, or events while the text is spoken."""

    def __init__(self, api: DashScopeHttpApi, request: Request) -> None:
        headers = {"content-type": EVENT_STREAM, "cache-control": "no-store"}
        super().__init__(api.active_responses, request, api.errors.make_request_id(), headers)
        self._api = api

    async def respond(self) -> Response | None:
        server = self._api.server
        grant = server.authorize_request(self.request.headers)
        wants_events = self.request.headers.get("x-dashscope-sse", "").lower() == "enable"
        events = self.body_stream if wants_events else None
        with server.log.track(self._api.name, grant, self.request_id) as record:
            body = await _read_body(self.request, MAX_FRAME_CHARACTERS)
            request = parse_message(SpeechSynthesizerRequest, body)
            default = voice_of_dashscope_model(server.models, request.model)
            parameters = request.input
            spoken = await _spoken_text(parameters)
            characters = billed_characters(spoken.text)
            record.count_text(len(spoken.text))
            voices = self._api.server.voices
            record.voice = DASHSCOPE_NAMES.resolve_voice(voices, parameters.voice, grant, default)
            speech = _StoredSpeech(self.request_id, parameters, spoken, record, events, self.report_unread)
            rendering = speech.render(server, grant, self._api.store)
            with grant.stream():
                audio = await cancel_on_disconnect(self.request.receive, rendering)
        done = SpeechSynthesizerResponse(
            request_id=self.request_id,
            output=SpeechSynthesizerOutput(audio=self._link(audio)),
            usage=CharacterUsage(characters=characters),
        )
        if events is None:
            unread = self.stream_headers.get(UNREAD_HEADER)
            return JSONResponse(done.model_dump(), headers={UNREAD_HEADER: unread} if unread else None)
        await events.write(_server_sent_event("result", done))
        await events.end()
        return None

    def error_response(self, error: Exception) -> Response:
        return self._api.error_response(error, self.request_id)

    async def end_with_error(self, error: Exception) -> None:
        status = DASHSCOPE_ERRORS.describe(error).status
        body = DASHSCOPE_ERRORS.body(error, self.request_id)
        await self.body_stream.write(_server_sent_event("error", body, status))
        await self.body_stream.end()

    def _link(self, audio: StoredAudio) -> StoredAudioLink:
        url = self.request.url.replace(path=f"{PATH}/results/{audio.id}", query="")
        return StoredAudioLink(
            id=f"audio_{self.request_id}", url=str(url), expires_at=math.floor(audio.expires_at)
        )


class _StoredSpeech:
    """Renders one text into the store and, if ``events`` is given, into server-sent events.

    ``report_unread`` takes the number of letters that the voice cannot read, before the first event.
    """

    def __init__(
        self,
        request_id: str,
        parameters: SpeechParameters,
        spoken: SsmlDocument,
        record: RequestRecord,
        events: StreamedBody | None,
        report_unread: Callable[[int], None],
    ) -> None:
        self._report_unread = report_unread
        self._id = request_id
        self._parameters = parameters
        self._text, self._document = spoken.text, spoken
        self._record = record
        self._events = events
        self._words: list[Word] = []
        self._sentences = SentenceEventBuilder(request_id, include_words=parameters.word_timestamp_enabled)

    async def render(self, server: SpeechServer, grant: Grant, store: AudioStore) -> StoredAudio:
        """Render the whole text and return the file; raise UnknownVoice, BadRequest, RateLimited, Overloaded
        or SynthesisFailed.
        """
        options = make_synthesis_options(self._parameters, self._record.voice)
        if self._events is not None:
            self._events.bytes_per_s = options.audio.bytes_per_second
        async with (
            store.open_writer(grant.key_id, options.audio.content_type) as writer,
            server.open_stream(options, grant) as utterance,
        ):
            grant.charge_characters(billed_characters(self._text))  # here: a refused request is free
            utterance.push_document(self._document)
            utterance.end_input()
            self._report_unread(utterance.unread_characters)
            async for chunk in utterance:
                await writer.write(chunk.audio)
                await self._send_chunk_events(chunk)
            for event in self._sentences.events_at_end(self._text):
                await self._send_sentence_event(event)
            if options.audio.codec == "wav":  # the file's length is known now; the events are sent
                await writer.replace_start(
                    wav_header(options.audio.sample_rate, writer.size - WAV_HEADER_BYTES)
                )
            await writer.write_subtitles(as_json(cues_of_written(self._words)).encode())
            return writer.commit()

    async def _send_chunk_events(self, chunk: EncodedChunk) -> None:
        start, stop = chunk.samples
        self._words += chunk.written_words
        for event in self._sentences.events_before_audio(
            self._text, chunk.text, chunk.written_words, has_audio=bool(chunk.audio)
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
        payload = to_result_payload(event)
        output = payload.output
        if output is not None and audio:
            output = output.model_copy(update={"audio": AudioData(data=b64encode(audio).decode("ascii"))})
        message = SpeechSynthesizerEvent(output=output, usage=payload.usage, request_id=self._id)
        await self._events.write(_server_sent_event("result", message))


def _audio_response(audio: StoredAudio | None) -> Response:
    if audio is None:
        missing = MissingAudioBody(message="this audio does not exist, or its time is over")
        return JSONResponse(missing.model_dump(), 404)
    return FileResponse(audio.path, media_type=audio.content_type)


async def _subtitles_response(audio: StoredAudio, format: str) -> Response:
    if format not in _SUBTITLE_TYPES:
        return _audio_response(None)
    cues = from_json(await asyncio.to_thread(audio.subtitles_path.read_bytes))
    return Response(FORMATS[format](cues), media_type=_SUBTITLE_TYPES[format])


def _server_sent_event(kind: str, message: BaseModel, status: int = 200) -> bytes:
    # Without blanks: the SDK compares what follows "event:" without stripping it.
    return f"event:{kind}\nstatus:{status}\ndata:{dump_json(message)}\n\n".encode()


async def _read_body(request: Request, max_bytes: int) -> object:
    """Return the decoded JSON of a bounded body; raise InvalidDashScopeField."""
    problem = f"the request has over {max_bytes} bytes, which is all that is allowed"
    body = await with_bounded_body(request, max_bytes, InvalidDashScopeField(problem)).body()
    if len(body) > _THREAD_PARSING_BYTES:
        return await asyncio.to_thread(_parse_json, body)
    return _parse_json(body)


def _parse_json(body: bytes) -> object:
    try:
        return load_json(body)
    except (ValueError, RecursionError):  # deep nesting raises the latter
        raise InvalidDashScopeField("the request is not JSON") from None


async def _spoken_text(fields: SpeechSynthesizerInput) -> SsmlDocument:
    if fields.is_ssml(fields.text):
        return await run_in_slices(parse_ssml_in_slices(fields.text))
    return plain_document(fields.text)
