"""Speech jobs: what a dialect makes of a request that is spoken as a whole.

A recording in a job becomes a voice for as long as the job lasts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from ....adapters.ssml.document import SsmlDocument
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest
from ...access.access_control import Grant
from ...voice_registry import NewVoice, VoiceRegistry
from ...web.request_log import RequestRecord
from .speech import EncodedChunk, EncodedStream, SynthesisOptions
from .speech_server import SpeechServer

MAX_FILE_S: Final = 1_200  # of one complete file, held in memory: 58 MB at 24 kHz


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


def check_file_length(samples: int) -> None:
    """Raise BadRequest if so many samples of speech are too long to be held in memory."""
    if samples > MAX_FILE_S * SAMPLE_RATE:
        raise BadRequest(f"the speech is longer than {MAX_FILE_S} s, the most in one file; stream it instead")
