"""The HTTP endpoints of a dialect: those that speak, those that answer JSON, lists, and their common end.

    speaking(ResponseClass)      a response of speech
    answering(scope, handler)    JSON for a key with a scope
    listing(handler)             JSON for a key that may speak; without a key where lists are public

    request -> the dialect's read_job -> SpeechJob -> begin, write ... write, end     a stream
                                                   -> complete                        one complete file

Errors of all are answered in the terms of the dialect's ``ErrorTable``.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from ....tts_engine.errors import VivavoceError
from ...access.access_control import Grant
from ...access.keys import Scope
from ...voice_registry import ListedVoice
from ...web.request_log import RequestRecord
from ...web.unmatched import ErrorFormat
from ..shell.speech import EncodedChunk, EncodedStream
from ..shell.speech_job import SpeechJob
from ..shell.speech_server import SpeechServer
from ..shell.unspoken_languages import UnspokenLanguage
from .error_table import ErrorTable
from .service_names import ServiceNames
from .speech_response import ActiveResponses, SpeechResponse
from .streamed_body import cancel_on_disconnect

Endpoint = Callable[..., Awaitable[Response]]
JsonHandler = Callable[[Request, Grant], Awaitable[Any]]  # returns a model, or what JSON is made of
ListHandler = Callable[[Request, Grant | None], Any]


_STREAM_HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would hold back what is streamed
}


class SpeechHttpApi(ABC):
    """The endpoints of a dialect on one server. Belongs to its event loop."""

    name: ClassVar[str]  # in the log and the metrics
    errors: ClassVar[ErrorTable[Any]]
    id_header: ClassVar[str] = "x-request-id"  # of answers that speak
    error_formats: ClassVar[tuple[ErrorFormat, ...]] = ()  # of paths near its routes that are no routes

    def __init__(self, server: SpeechServer) -> None:
        self.server = server
        self.active_responses = ActiveResponses()

    @abstractmethod
    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        """Return "METHOD PATH" of each route, what answers it, and its ``operation``."""

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        for route, endpoint, described in self.endpoints():
            method, path = route.split()
            router.add_api_route(path, endpoint, methods=[method], **described)
        return router

    def error_response(self, error: Exception, request_id: str) -> Response:
        """Return the answer to an error before the first byte."""
        return self.errors.response(error, request_id)

    def json_response(self, answer: Any, request_id: str) -> JSONResponse:
        """Return the answer with what a handler returned."""
        return JSONResponse(answer.model_dump() if isinstance(answer, BaseModel) else answer)

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for those under way."""
        self.server.start_draining()
        await self.active_responses.wait_finished(within_s)

    def speaking(self, make_response: Callable[[Any, Request], SpeechResponse]) -> Endpoint:
        """Return an endpoint whose response is made of this object and the request."""

        async def speak(request: Request) -> Response:
            return make_response(self, request)

        return speak

    def answering(self, scope: Scope, handler: JsonHandler) -> Endpoint:
        """Return an endpoint that answers JSON to a key of that scope, not while the server drains."""

        async def answer(request: Request) -> Any:
            return await handler(request, self.server.authorize(request.headers, scope))

        return self.endpoint(answer)

    def listing(self, handler: ListHandler) -> Endpoint:
        """Return an endpoint of a list; the handler gets no grant if none is needed."""

        async def answer(request: Request) -> Any:
            grant = self.server.access.list_grant(request.headers)
            if grant is not None:
                grant.require(Scope.SPEAK)
            return handler(request, grant)

        return self.endpoint(answer)

    def usable_voices(self, grant: Grant | None) -> tuple[ListedVoice, ...]:
        """The voices of a list."""
        voices = self.server.voices
        return voices.bundle_voices() if grant is None else voices.usable_voices(grant)

    def endpoint(self, answer: Callable[[Request], Awaitable[Any]]) -> Endpoint:
        """Return an endpoint that answers JSON, and errors in the dialect's terms."""

        async def endpoint(request: Request) -> Response:
            request_id = self.errors.make_request_id()
            try:
                return self.json_response(await answer(request), request_id)
            except VivavoceError as error:
                return self.error_response(error, request_id)

        return endpoint


class SpeechJobResponse(SpeechResponse):
    """The response to one request for speech.

    A derived class implements ``read_job``, and overrides ``complete``, ``begin``, ``write`` and ``end``
    where the audio is not sent as it is.
    """

    utterance: EncodedStream  # set before the first ``write``

    def __init__(self, api: SpeechHttpApi, request: Request) -> None:
        request_id = api.errors.make_request_id()
        headers = {api.id_header: request_id, **_STREAM_HEADERS}
        super().__init__(api.active_responses, request, request_id, headers)
        self.api = api
        self.server = api.server

    def error_response(self, error: Exception) -> Response:
        return self.api.error_response(error, self.request_id)

    @abstractmethod
    async def read_job(self, grant: Grant) -> SpeechJob:
        """Read the request; raises VivavoceError."""

    async def complete(self, job: SpeechJob, audio: bytes, grant: Grant) -> Response:
        """Return the response with a complete file."""
        return Response(audio, headers=self.stream_headers, media_type=_content_type(job))

    def begin(self, job: SpeechJob) -> None:
        """Set the headers and the size of a second of a stream."""
        self.stream_headers["content-type"] = _content_type(job)
        self.body_stream.bytes_per_s = job.options.audio.bytes_per_second
        self._header = job.header

    async def write(self, chunk: EncodedChunk) -> None:
        """Send a piece of a stream; it may have no audio."""
        if chunk.audio:
            header, self._header = self._header, b""
            await self.body_stream.write(header + chunk.audio)

    async def end(self) -> Response | None:
        """Complete a stream; return a response if nothing of it has been sent."""
        await self.body_stream.end()
        return None

    def resolve(self, names: ServiceNames, voice: str, model: str | None, grant: Grant) -> str:
        """Return the engine's voice id; raises UnknownVoice."""
        return names.resolve(self.server.voices, self.server.models, voice, model, grant)

    async def respond(self) -> Response | None:
        server = self.server
        grant = server.authorize_request(self.request.headers)
        with server.log.track(self.api.name, grant, self.request_id) as record:
            job = await self.read_job(grant)
            record.count_text(len(job.text))  # the time to first byte starts here
            with grant.stream():
                return await cancel_on_disconnect(self.request.receive, self._speak(job, grant, record))

    async def _speak(self, job: SpeechJob, grant: Grant, record: RequestRecord) -> Response | None:
        self.report_language(self._find_unspoken(job, grant))
        if job.is_whole:
            audio = await self.server.speak_file(job, grant, record, self._use)
            return await self.complete(job, audio, grant)
        self.begin(job)
        await self.server.speak(job, grant, record, write=self.write, on_open=self._use)
        return await self.end()

    def _find_unspoken(self, job: SpeechJob, grant: Grant) -> UnspokenLanguage | None:
        if job.document is not None or job.recording is not None or job.options.delivery.language:
            return None
        voices = self.server.voices
        voice_id = job.options.voice or voices.resolve(None, grant)
        return self.server.unspoken_languages.find(job.text, voice_id, voices)

    def _use(self, utterance: EncodedStream) -> None:
        self.utterance = utterance
        self.report_unread(utterance.unread_characters)


def _content_type(job: SpeechJob) -> str:
    return job.content_type or job.options.audio.content_type
