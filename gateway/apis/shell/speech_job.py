"""Speech jobs: what a dialect makes of an HTTP request, and the response that speaks it.

    request -> the dialect's read_job -> SpeechJob -> begin, write ... write, end     a stream
                                                   -> complete                        one complete file

A recording in a job becomes a voice for as long as the job lasts.
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from fastapi import Request
from fastapi.responses import Response

from ....adapters.ssml.document import SsmlDocument
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest
from ...access.access_control import Grant
from ...voice_registry import NewVoice, VoiceRegistry
from ...web.request_log import RequestRecord
from ...web.streamed_body import cancel_on_disconnect
from .speech import EncodedChunk, EncodedStream, SynthesisOptions
from .speech_response import ActiveResponses, SpeechResponse
from .speech_server import SpeechServer

MAX_FILE_S: Final = 1_200  # of one complete file, held in memory: 58 MB at 24 kHz
STREAM_HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would hold back what is streamed
}


@dataclass(frozen=True, slots=True)
class ReferenceRecording:
    """A recording that a request brings or names."""

    read: Callable[[], Awaitable[bytes]]  # returns a sound file; raises VivavoceError
    voice: NewVoice

    @classmethod
    def uploaded(cls, data: bytes, voice: NewVoice) -> "ReferenceRecording":
        """Return the recording of a file that came with the request."""

        async def read() -> bytes:
            return data

        return cls(read, voice)


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """A request for speech in terms of the engine."""

    text: str
    options: SynthesisOptions
    recording: ReferenceRecording | None = None  # speaks instead of the options' voice
    content_type: str | None = None  # None: the one of the encoding
    is_whole: bool = False  # whether the answer is one complete file
    document: SsmlDocument | None = None  # of the text, if the request says that it is SSML
    header: bytes = b""  # of a stream, before the first audio


@dataclass(frozen=True, slots=True)
class JobServer:
    """What jobs need of a server."""

    server: SpeechServer
    voices: VoiceRegistry
    max_text_characters: int

    def check_text(self, text: str, field: str = "text") -> str:
        """Return the text; raises BadRequest if it is empty or too long."""
        if not text.strip():
            raise BadRequest(f"{field} is empty; a text is needed")
        if len(text) > self.max_text_characters:
            raise BadRequest(f"{field} has {len(text)} characters; at most {self.max_text_characters} may be")
        return text

    async def speak(
        self,
        job: SpeechJob,
        grant: Grant,
        record: RequestRecord,
        *,
        write: Callable[[EncodedChunk], Awaitable[None]],
        on_open: Callable[[EncodedStream], None] = lambda stream: None,
    ) -> None:
        """Speak a job; ``write`` gets its pieces, ``on_open`` the stream before the first.

        A piece may have no audio, while the encoder withholds it. Raises as ``EncodedStream`` and
        ``VoiceRegistry.temporary`` do.
        """
        counted = 0  # samples
        async with self._open_stream(job, grant, record) as stream:
            on_open(stream)
            async for chunk in stream:
                await write(chunk)
                if chunk.audio:
                    record.count_audio((chunk.samples[1] - counted) / SAMPLE_RATE)
                    counted = chunk.samples[1]

    async def speak_file(
        self,
        job: SpeechJob,
        grant: Grant,
        record: RequestRecord,
        on_open: Callable[[EncodedStream], None] = lambda stream: None,
    ) -> bytes:
        """Return all audio of a job; raises as ``speak``, and BadRequest if it is too long to be held."""
        parts: list[bytes] = []
        samples = 0
        async with self._open_stream(job, grant, record) as stream:
            on_open(stream)
            async for chunk in stream:
                parts.append(chunk.audio)
                samples = chunk.samples[1]
                check_file_length(samples)
        record.count_audio(samples / SAMPLE_RATE)
        return b"".join(parts)

    @asynccontextmanager
    async def _open_stream(
        self, job: SpeechJob, grant: Grant, record: RequestRecord
    ) -> AsyncIterator[EncodedStream]:
        async with self._open_voice(job, grant) as record.voice:
            options = replace(job.options, voice=record.voice)
            async with self.server.open_stream(options, grant) as stream:
                grant.charge_characters(len(job.text))  # here: a refused request is free
                if job.document is None:
                    stream.push_text(job.text)
                else:
                    stream.push_document(job.document)
                stream.end_input()
                yield stream

    @asynccontextmanager
    async def _open_voice(self, job: SpeechJob, grant: Grant) -> AsyncIterator[str]:
        if job.recording is None:
            yield job.options.voice or self.voices.resolve(None, grant)
            return
        recording = await job.recording.read()
        async with self.voices.temporary(recording, job.recording.voice, grant) as voice:
            yield voice


class SpeechJobResponse(SpeechResponse):
    """The response to one request for speech.

    A derived class implements ``read_job`` and ``error_response``, and overrides ``complete``, ``begin``,
    ``write`` and ``end`` where the audio is not sent as it is.

    Args:
        api: the dialect's name in the log and the metrics.
        request_id: None for a random one.
        id_header: the header of the answer that has the id.
    """

    utterance: EncodedStream  # set before the first ``write``

    def __init__(
        self,
        host: JobServer,
        active: ActiveResponses,
        request: Request,
        api: str,
        *,
        request_id: str | None = None,
        id_header: str = "x-request-id",
    ) -> None:
        request_id = request_id or uuid4().hex
        super().__init__(active, request, request_id, {id_header: request_id, **STREAM_HEADERS})
        self.host = host
        self._api = api

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

    async def respond(self) -> Response | None:
        server = self.host.server
        grant = server.authorize_request(self.request.headers)
        with server.log.track(self._api, grant, self.request_id) as record:
            job = await self.read_job(grant)
            record.count_text(len(job.text))  # the time to first byte starts here
            with grant.stream():
                return await cancel_on_disconnect(self.request.receive, self._speak(job, grant, record))

    async def _speak(self, job: SpeechJob, grant: Grant, record: RequestRecord) -> Response | None:
        if job.is_whole:
            audio = await self.host.speak_file(job, grant, record, self._use)
            return await self.complete(job, audio, grant)
        self.begin(job)
        await self.host.speak(job, grant, record, write=self.write, on_open=self._use)
        return await self.end()

    def _use(self, utterance: EncodedStream) -> None:
        self.utterance = utterance
        self.report_unread(utterance.unread_characters)


def check_file_length(samples: int) -> None:
    """Raise BadRequest if so many samples of speech are too long to be held in memory."""
    if samples > MAX_FILE_S * SAMPLE_RATE:
        raise BadRequest(f"the speech is longer than {MAX_FILE_S} s, the most in one file; stream it instead")


def _content_type(job: SpeechJob) -> str:
    return job.content_type or job.options.audio.content_type
