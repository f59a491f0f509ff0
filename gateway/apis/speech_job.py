"""Speech jobs: what a dialect with plain requests makes of one, and the HTTP response that speaks it.

    request -> the dialect's read_job -> SpeechJob -> speak_job -> pieces of audio, or one complete file

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

from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import BadRequest
from ..access.access_control import Grant
from ..voice_registry import NewVoice, VoiceRegistry
from ..web.request_log import RequestRecord
from ..web.streamed_body import cancel_on_disconnect
from .speech import EncodedChunk, EncodedStream, SynthesisOptions
from .speech_response import ActiveResponses, SpeechResponse
from .speech_server import SpeechServer

MAX_FILE_S: Final = 1_200  # of one complete file, held in memory: 58 MB at 24 kHz
_NO_STORE: Final[Mapping[str, str]] = {"cache-control": "no-store", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class ReferenceRecording:
    """A recording that a request brings."""

    data: bytes  # a sound file
    voice: NewVoice


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """A request for speech in terms of the engine."""

    text: str
    options: SynthesisOptions
    recording: ReferenceRecording | None = None  # speaks instead of the options' voice
    content_type: str | None = None  # None: the one of the encoding
    is_whole: bool = False  # whether the answer is one complete file


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
        """Speak a job; ``write`` gets the pieces that have audio, ``on_open`` the stream before the first.

        Raises as ``EncodedStream`` and ``VoiceRegistry.temporary`` do.
        """
        async with self._open_voice(job, grant) as voice:
            record.voice = voice
            options = replace(job.options, voice=voice)
            async with self.server.open_stream(options, grant) as stream:
                grant.charge_characters(len(job.text))  # here: a refused request is free
                stream.push_text(job.text)
                stream.end_input()
                on_open(stream)
                async for chunk in stream:
                    if chunk.audio:  # else the encoder withholds it
                        await write(chunk)
                    record.count_audio((chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE)

    async def speak_file(
        self,
        job: SpeechJob,
        grant: Grant,
        record: RequestRecord,
        on_open: Callable[[EncodedStream], None] = lambda stream: None,
    ) -> bytes:
        """Return all audio of a job; raises as ``speak``, and BadRequest if it is too long to be held."""
        parts: list[bytes] = []

        async def collect(chunk: EncodedChunk) -> None:
            if chunk.samples[1] > MAX_FILE_S * SAMPLE_RATE:
                raise BadRequest(f"the speech is longer than {MAX_FILE_S} s, the most in one file")
            parts.append(chunk.audio)

        await self.speak(job, grant, record, write=collect, on_open=on_open)
        return b"".join(parts)

    @asynccontextmanager
    async def _open_voice(self, job: SpeechJob, grant: Grant) -> AsyncIterator[str]:
        if job.recording is None:
            yield job.options.voice or self.voices.resolve(None, grant)
            return
        async with self.voices.temporary(job.recording.data, job.recording.voice, grant) as voice:
            yield voice


class SpeechJobResponse(SpeechResponse):
    """The response of a dialect whose answer is audio.

    A derived class implements ``read_job`` and ``error_response``, and overrides ``complete``, ``begin``,
    ``write`` and ``end`` where the audio is not sent as it is.
    """

    def __init__(self, host: JobServer, active: ActiveResponses, request: Request, api: str) -> None:
        """Make a response; api: the dialect's name in the log and the metrics."""
        request_id = uuid4().hex
        super().__init__(active, request, request_id, {"x-request-id": request_id, **_NO_STORE})
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

    async def write(self, chunk: EncodedChunk) -> None:
        """Send a piece of a stream."""
        await self.body_stream.write(chunk.audio)

    async def end(self) -> None:
        """Complete a stream."""
        await self.body_stream.end()

    async def respond(self) -> Response | None:
        server = self.host.server
        grant = server.authorize_request(self.request.headers)
        job = await self.read_job(grant)
        with server.log.track(self._api, grant, self.request_id) as record, grant.stream():
            record.count_text(len(job.text))
            return await cancel_on_disconnect(self.request.receive, self._speak(job, grant, record))

    async def _speak(self, job: SpeechJob, grant: Grant, record: RequestRecord) -> Response | None:
        if job.is_whole:
            audio = await self.host.speak_file(job, grant, record, self._report_unread)
            return await self.complete(job, audio, grant)
        self.begin(job)
        await self.host.speak(job, grant, record, write=self.write, on_open=self._report_unread)
        await self.end()
        return None

    def _report_unread(self, stream: EncodedStream) -> None:
        self.report_unread(stream.unread_characters)


def _content_type(job: SpeechJob) -> str:
    return job.content_type or job.options.audio.content_type
