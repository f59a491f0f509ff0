"""The engine: opens a backend, admits streams, and has worker threads render their text.

    loop thread                   reader thread           worker thread (one for each worker of the backend)
    Stream.push_text -----------> TextReader -> Session   schedule -> Backend.step -> commit
    Stream.__anext__ <- call_soon_threadsafe <----------------------------------------'

The loop reads short text itself; the reader thread reads what is longer, a few segments ahead of the workers.
``open_sessions`` has the state that these threads share.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .backends.base import Backend, ProcessPolicy, SeparateProcess, SlotRequest, request_in
from .backends.loading import load_backend
from .backends.voice_kind import AUTO_PRECISION, NOTHING_KEPT, KeptSpeechConfig
from .errors import BadRequest, LanguageNotSpoken, Overloaded, UnknownVoice
from .metrics import Metrics
from .reading.language import DEFAULT_READING_STYLE, ReadingStyle
from .reading.languages.default import DEFAULT_LANGUAGE
from .reading.markups.directions import Directions
from .reading.pronunciation.lexicon import Lexicon
from .reading.pronunciation.lexicon_files import LexiconFile
from .reading.prosody import PlainText
from .records.stream_log import UNHEARD, StreamLog
from .scheduler import Admission, ComputeCost, SchedulerPolicy, admit
from .segmenter import Segmenter
from .session import Session
from .speech_engine import SpeechEngine
from .stream import Stream
from .stream_request import LIVELINESS, StreamRequest
from .threads.open_sessions import OpenSessions
from .threads.reader_thread import ReaderThread
from .threads.workers import Workers
from .voices.languages import OtherLanguage, language_read
from .voices.voices import Voices


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of an engine. max_characters: of text in one stream. reading: of English numbers.

    lexicon: says words in every stream. other_language: for parts of a text. follows_directions: those in
    plain text, see ``reading/markups``. liveliness: of streams that ask for none, see ``Delivery``.
    """

    scheduler: SchedulerPolicy = field(default_factory=SchedulerPolicy)
    max_characters: int = 200_000
    reading: ReadingStyle = DEFAULT_READING_STYLE
    lexicon: LexiconFile | None = None
    other_language: OtherLanguage = OtherLanguage.REFUSE
    follows_directions: bool = True
    liveliness: float = LIVELINESS


class Engine(SpeechEngine):
    """A loaded backend and its open streams.

    Open with ``await Engine.open()``, close with ``await engine.aclose()``, or use ``async with``. A stream
    belongs to the event loop that opened it; the engine belongs to none.
    """

    def __init__(self, backend: Backend, config: EngineConfig, metrics: Metrics) -> None:
        self.metrics = metrics
        self.voices: Voices = backend.voices
        self._backend = backend
        self._config = config
        self._cost = ComputeCost(backend.workers)
        self._sessions = OpenSessions(backend, metrics)
        self._workers = Workers(backend, self._sessions, self._cost, config.scheduler)
        self._threads = (*self._workers.threads, ReaderThread(self._sessions))
        for thread in self._threads:
            thread.start()

    @classmethod
    async def open(
        cls,
        bundle: str = "default",
        *,
        voices: Path | None = None,
        precision: str = AUTO_PRECISION,
        device: str = "auto",
        executor: str = "auto",
        config: EngineConfig | None = None,
        backend: Backend | None = None,
        process: ProcessPolicy | None = None,
        metrics: Metrics | None = None,
        warm_up: bool = True,
        kept_speech: KeptSpeechConfig = NOTHING_KEPT,
    ) -> "Engine":
        """Load a bundle and warm it up.

        bundle: "default" for the packaged voice, or a folder of Piper, Kokoro or CosyVoice.
        voices: folder of a ``VoiceStore``, for CosyVoice.
        precision: of CosyVoice's language model: "fp32", "bf16", "fp16", "int8", "int4", "int4-int8" (int4
            with the flow in int8), "fp32-fp16" (the flow in fp16, on a GPU) or "auto" (that or "fp32").
        device: "auto" (a GPU if torch computes the bundle and can use one), "cpu", "cuda" or "cuda:N"; where
            ONNX Runtime computes, any name of ``models.device_names``.
        executor: of CosyVoice's networks: "torch", "onnxruntime" or "auto" (``models.cosyvoice.executors``).
        backend: used instead of the bundle's backend.
        process: renders in a child process; None renders on threads of this process.
        metrics: used after the warm-up; None makes new ones.
        warm_up: speaks a sentence on every worker first, and prepares further kinds of steps while no stream
            needs the time; without it the first streams wait for what is made when it is first used.
        kept_speech: rendered lines that streams get at once which say the same. Clones' speech is never kept.

        Raises BundleError, BadRequest for a setting, and MissingExtra if the bundle needs one.
        """
        if backend is None:
            load = functools.partial(
                load_backend, bundle, voices, precision, device, process, executor, kept_speech
            )
            backend = await asyncio.get_running_loop().run_in_executor(None, load)
        engine = cls(backend, config or EngineConfig(), Metrics())
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(engine.aclose)
            if warm_up:
                await engine._warm_up()
            on_failure.pop_all()
        engine.metrics = engine._sessions.metrics = metrics or Metrics()
        if warm_up:
            engine._workers.begin_preparations()  # before, one would delay the warm-up
        return engine

    @property
    def lexicon(self) -> LexiconFile | None:
        """As ``SpeechEngine.lexicon``."""
        return self._config.lexicon

    @property
    def active_streams(self) -> int:
        """As ``SpeechEngine.active_streams``."""
        return len(self._sessions.streams)

    @property
    def max_streams(self) -> int:
        """As ``SpeechEngine.max_streams``."""
        return min(self._config.scheduler.max_streams, self._backend.slots)

    @property
    def compute_s_per_audio_s(self) -> float:
        """As ``SpeechEngine.compute_s_per_audio_s``."""
        return self._cost.compute_s_per_audio_s

    @property
    def process_ids(self) -> tuple[int, ...]:
        """As ``SpeechEngine.process_ids``."""
        backend = self._backend
        return (backend.pid,) if isinstance(backend, SeparateProcess) else ()

    def refusal(self, admission: Admission = Admission.NEW) -> Overloaded | None:
        """As ``SpeechEngine.refusal``."""
        backend = self._backend
        if isinstance(backend, SeparateProcess) and (refusal := backend.refusal()) is not None:
            return refusal
        try:
            admit(
                self.active_streams,
                slots=backend.slots,
                memory_slots=backend.memory_slots,
                cost=self._cost,
                policy=self._config.scheduler,
                admission=admission,
                untaken_streams=self._sessions.untaken_count,
            )
        except Overloaded as refusal:
            return refusal
        return None

    def open_stream(self, request: StreamRequest, admission: Admission = Admission.NEW) -> Stream:
        """As ``SpeechEngine.open_stream``."""
        slot_request = self._slot_request(request)
        return self._open_slot_stream(slot_request, request.lexicons, admission, request.parent_span)

    async def open_conversion(
        self, samples: NDArray[np.float32], sample_rate: int, request: StreamRequest
    ) -> Stream:
        """As ``SpeechEngine.open_conversion``."""
        slot_request = self._slot_request(request)
        tokenize = functools.partial(self.voices.tokenize_speech, samples, sample_rate)
        source_speech_ids = await asyncio.get_running_loop().run_in_executor(None, tokenize)
        stream = self._open_slot_stream(replace(slot_request, source_speech_ids=source_speech_ids))
        stream.end_input()
        return stream

    def _slot_request(self, request: StreamRequest) -> SlotRequest:
        """Look up the voice of a request, before the lock is taken because that may read a file."""
        voice = self.voices.get(request.voice)
        return SlotRequest(
            voice.id,
            request.speed,
            request.seed,
            replace(
                request.delivery,
                language=request.delivery.language or voice.language,
                liveliness=request.delivery.liveliness or self._config.liveliness,
            ),
            keeps_speech=request.keeps_speech,
            trace_id=request.trace_id,
            reading=self._config.reading,
            speaker_profile=self.voices.speaker_profile(voice.id),
        )

    def _open_slot_stream(
        self,
        request: SlotRequest,
        lexicons: Sequence[Lexicon] = (),
        admission: Admission = Admission.NEW,
        parent_span: str = "",
    ) -> Stream:
        loop = asyncio.get_running_loop()
        own_lexicons = [self._config.lexicon.current()] if self._config.lexicon else []
        all_lexicons = (*lexicons, *own_lexicons)
        segmenter_in = functools.partial(self._segmenter_in, request, all_lexicons)
        with self._sessions.lock:
            if self._sessions.is_closing:
                raise BadRequest("the engine is closed")
            refusal = self.refusal(admission)
            if refusal is not None:
                self.metrics.refusals.labels(refusal.reason).inc()
                raise refusal
            segmenter = self._segmenter(request, all_lexicons)
            session = Session(self._backend.open_slot(request), time.monotonic(), request.speed)
            log = StreamLog(request, parent_span)
            directions = Directions() if self._config.follows_directions else PlainText()
            stream = Stream(
                self._sessions,
                session,
                segmenter,
                directions,
                loop,
                self._config.max_characters,
                segmenter_in,
                log,
            )
            self._sessions.add(session, stream)
        log.write_opened(request, self._backend)
        return stream

    def language_spoken(self, voice: str | None, language: str) -> str | None:
        """As ``SpeechEngine.language_spoken``."""
        return language_read(self.voices.get(voice), language, self._config.other_language)

    def _segmenter_in(
        self, request: SlotRequest, lexicons: Sequence[Lexicon], language: str | None
    ) -> Segmenter:
        """The segmenter of a part of a stream's text. Raises LanguageNotSpoken."""
        if language is not None:
            with suppress(UnknownVoice):  # one that was removed after the stream was opened
                language = self.language_spoken(request.voice, language)
        try:
            with self._sessions.lock:
                segmenter = self._segmenter(request_in(request, language), lexicons)
        except BadRequest as error:
            raise LanguageNotSpoken(str(error)) from None
        segmenter.language = language
        return segmenter

    def _segmenter(self, request: SlotRequest, lexicons: Sequence[Lexicon]) -> Segmenter:
        segmenter = self._backend.segmenter(request)
        segmenter.use_lexicons(lexicons)
        return segmenter

    async def aclose(self) -> None:
        """Cancel every stream, stop the workers and close the backend. May be called twice."""
        self._sessions.close()
        join = functools.partial(_join_all, self._threads)
        await asyncio.get_running_loop().run_in_executor(None, join)
        self._backend.close()

    async def _warm_up(self) -> None:
        """Speak a sentence on every worker, so that no caller waits for lazy initialisation."""
        await asyncio.get_running_loop().run_in_executor(None, DEFAULT_LANGUAGE.grammar().compile)
        backend = self._backend
        available = min(self._config.scheduler.max_streams, backend.slots, backend.memory_slots)
        concurrent_streams = min(len(backend.workers), available) if len(self.voices) else 0
        await asyncio.gather(*(self._speak_warm_up_text() for _ in range(concurrent_streams)))

    async def _speak_warm_up_text(self) -> None:
        async with self.stream(trace_id=UNHEARD) as stream:
            stream.push_text(self._backend.warm_up_text)
            stream.end_input()
            async for _ in stream:
                pass


def _join_all(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
