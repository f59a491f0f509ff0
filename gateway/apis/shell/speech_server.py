"""The state that the dialects of one server share, the names of its models, and the speech of their jobs.

The names that ``model`` and ``voice`` may have; a model is a bundle's default voice:

    the name of a bundle   its default voice, and its voice of two with one name
    any other name         the loaded model: clients send the models of the services that they are made for

LocalAI's clients name a voice in ``model`` and send no ``voice``, or the same name again;
``openai.voice_resolver`` looks for such a voice.

Source: mudler/LocalAI, docs of text-to-audio; wyoming_openai at 099e57cc (compatibility.py).
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest, Overloaded
from ....tts_engine.reading.pronunciation.lexicon_files import NamedLexicons
from ....tts_engine.speech_engine import SpeechEngine
from ...access.access_control import AccessControl, Grant
from ...access.keys import Scope
from ...access.url_guard import UrlGuard
from ...voice_registry import VoiceRegistry
from ...web.request_log import RequestLog, RequestRecord
from .encoding_threads import EncodingThreads
from .speech import EncodedChunk, EncodedStream, SynthesisOptions
from .speech_job import SpeechJob, check_file_length
from .unspoken_languages import LanguageCheck, UnspokenLanguages

OWN_MODEL: Final = "vivavoce"
_OWN_MODELS: Final = re.compile(r"(vivavoce|cosyvoice)([.-].*)?", re.ASCII)
_SHUTDOWN_RETRY_AFTER_S = 5.0  # the usual time of a restart


@dataclass(frozen=True, slots=True)
class SpeechApiPolicy:
    """Settings of the speech APIs."""

    max_text_characters: int = 4_096  # of one request; OpenAI's own limit
    bundles: Mapping[str, str] = field(default_factory=dict)  # id of the default voice by bundle; may change
    refuses_guessed_languages: bool = False  # of texts that their voice does not speak
    exchange_folder: Path | None = None  # of files that clients name


class ModelNames:
    """The names of one server's models.

    voices: the id of the default voice by bundle, which may change.
    """

    def __init__(self, bundles: Mapping[str, str] | None = None) -> None:
        self.voices = {} if bundles is None else bundles

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that are this server's own."""
        return iter(dict.fromkeys((OWN_MODEL, *self.voices)))

    def is_own(self, name: str) -> bool:
        """Whether the name is this server's: its own model or a bundle."""
        return name in self.voices or _OWN_MODELS.fullmatch(name) is not None

    def default_voice(self, name: str | None) -> str | None:
        """The id of the voice that a model's name stands for; None is the server's default."""
        return None if name is None else self.voices.get(name)


class SpeechServer:
    """What the dialects of a server share: engine, admission and the speech of jobs.

    Belongs to an event loop.

    Args:
        voices: that keys may use, and texts may name.
        guard: fetches the recordings that clients name.
        lexicons: None if requests that name one are spoken without it.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        access: AccessControl,
        voices: VoiceRegistry,
        guard: UrlGuard,
        policy: SpeechApiPolicy,
        lexicons: NamedLexicons | None = None,
    ) -> None:
        self.engine = engine
        self.access = access
        self.voices = voices
        self.guard = guard
        self.policy = policy
        self.log = RequestLog(engine.metrics)
        self.models = ModelNames(policy.bundles)
        self.encoding_threads = EncodingThreads()
        self.unspoken_languages = UnspokenLanguages()
        self._lexicons = lexicons
        self._draining = False

    def start_draining(self) -> None:
        """Refuse new work from now on; work under way goes on."""
        self._draining = True

    def open_stream(self, options: SynthesisOptions, grant: Grant) -> EncodedStream:
        """Return an utterance of a key, whose lexicon is ahead of the server's.

        Raises BadRequest for the name of a lexicon that is not in the settings, and UnknownVoice.
        """
        named = self._lexicons.current(options.lexicon_names) if self._lexicons else ()
        options = replace(options, keeps_speech=grant.keeps_speech)
        return EncodedStream(
            *(self.engine, options, self.encoding_threads, (*named, *grant.lexicons()), grant.trace_id),
            self._language_check(options),
            partial(self.voices.resolve, grant=grant),
        )

    def _language_check(self, options: SynthesisOptions) -> Callable[[str], None] | None:
        if not self.policy.refuses_guessed_languages or options.delivery.language:
            return None
        return LanguageCheck(self.engine.voices.get(options.voice)).push

    def authorize(self, headers: Mapping[str, str], scope: Scope = Scope.SPEAK) -> Grant:
        """Return the grant of a request's key.

        Raises KeyRefused, OriginRefused or ScopeMissing, and Overloaded while the server drains.
        """
        if self._draining:
            raise Overloaded(
                "the server is shutting down", reason="shutting_down", retry_after_s=_SHUTDOWN_RETRY_AFTER_S
            )
        grant = self.access.grant(headers)
        grant.require(scope)
        return grant

    def authorize_request(self, headers: Mapping[str, str]) -> Grant:
        """Return the grant and charge one request to its key; raises like ``authorize``, and RateLimited."""
        grant = self.authorize(headers)
        grant.charge_request()
        return grant

    def check_text(self, text: str, field: str = "text") -> str:
        """Return the text; raises BadRequest if it is empty or too long."""
        if not text.strip():
            raise BadRequest(f"{field} is empty; a text is needed")
        max_characters = self.policy.max_text_characters
        if len(text) > max_characters:
            raise BadRequest(f"{field} has {len(text)} characters; at most {max_characters} may be")
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
            async with self.open_stream(options, grant) as stream:
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
