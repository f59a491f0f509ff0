"""The engine: opens a backend, admits streams, and renders their text on worker threads.

    loop thread                   reader thread           worker thread (one for each worker of the backend)
    Stream.push_text -----------> TextReader -> Session   schedule -> Backend.step -> commit
    Stream.__anext__ <- call_soon_threadsafe <----------------------------------------'

The loop reads short text itself; the reader thread reads what is longer, a few segments ahead of the workers.
The lock guards sessions and is not held during a step, so asyncio never waits for tensors. Workers may all
run every stage, or each run one stage; in the second case a session changes its worker with its stage.
Between steps, one worker at a time prepares what a ``PreparingBackend`` has left, if all listeners can wait.
"""

import asyncio
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .backends.base import (
    Backend,
    InterruptibleBackend,
    PreparingBackend,
    ProcessPolicy,
    SeparateProcess,
    SlotRequest,
    SlotTurn,
    Stage,
    Stages,
    StepResult,
    request_in,
)
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
from .scheduler import (
    Admission,
    ComputeCost,
    SchedulerPolicy,
    admit,
    can_pause,
    runs_dry_at,
    schedule,
    step_cost_s,
    urgency,
)
from .segmenter import Segmenter
from .session import Session
from .speech_engine import SpeechEngine
from .stream import Stream
from .stream_request import LIVELINESS, StreamRequest
from .text_reader import TextReader, wants_text
from .voices.languages import OtherLanguage, language_read
from .voices.voices import Voices

logger = logging.getLogger(__name__)

_UNREAD_WARNING_INTERVAL_S = 60.0
_ASSUMED_PREPARATION_S = 2.0  # before one was measured: 42 captures took at most 82 s on an H200
_PREPARATION_CHECK_S = 0.05  # between looks at the leads of listeners, which grow without a wake-up


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
        self._streams: dict[Session, Stream] = {}
        self._untaken: weakref.WeakSet[Session] = weakref.WeakSet()  # rendered, the final chunk not taken
        lock = threading.RLock()
        self._condition = threading.Condition(lock)
        self._unread_text = threading.Condition(lock)
        self._workers_differ = len(set(backend.workers)) > 1
        self._closing = False
        self._preparing_backend: PreparingBackend | None = None  # once the engine is open
        self._is_preparing = False
        self._max_preparation_s = _ASSUMED_PREPARATION_S  # of one step's
        self._unread_characters = 0  # since the last warning
        self._next_unread_warning_at = 0.0  # monotonic s
        self._threads = [
            threading.Thread(
                target=self._run_worker, args=(worker, stages), name=f"vivavoce-{worker}", daemon=True
            )
            for worker, stages in enumerate(backend.workers)
        ]
        self._threads.append(threading.Thread(target=self._run_reader, name="vivavoce-reader", daemon=True))
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
        try:
            if warm_up:
                await engine._warm_up()
        except BaseException:
            await engine.aclose()
            raise
        engine.metrics = metrics or Metrics()
        if warm_up:
            engine._begin_preparations()
        return engine

    @property
    def lexicon(self) -> LexiconFile | None:
        """As ``SpeechEngine.lexicon``."""
        return self._config.lexicon

    @property
    def active_streams(self) -> int:
        """As ``SpeechEngine.active_streams``."""
        return len(self._streams)

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
                len(self._streams),
                slots=backend.slots,
                memory_slots=backend.memory_slots,
                cost=self._cost,
                policy=self._config.scheduler,
                admission=admission,
                untaken_streams=len(self._untaken),
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
        with self._condition:
            if self._closing:
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
                self,
                session,
                segmenter,
                directions,
                loop,
                self._config.max_characters,
                segmenter_in,
                log,
            )
            self._streams[session] = stream
        self.metrics.active_streams.inc()
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
            with self._condition:
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
        with self._condition:
            self._closing = True
            streams = list(self._streams.values())
            self._condition.notify_all()
            self._unread_text.notify()
        for stream in streams:
            stream.cancel()
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

    def _begin_preparations(self) -> None:
        """Let the workers prepare further kinds of steps; before, one would delay the warm-up."""
        if isinstance(self._backend, PreparingBackend):
            with self._condition:
                self._preparing_backend = self._backend
                self._condition.notify_all()

    async def _speak_warm_up_text(self) -> None:
        async with self.stream(trace_id=UNHEARD) as stream:
            stream.push_text(self._backend.warm_up_text)
            stream.end_input()
            async for _ in stream:
                pass

    # Called by streams, on their loop (``StreamHost``)

    @property
    def lock(self) -> threading.Condition:
        """Guards sessions. Held for microseconds, never during a step."""
        return self._condition

    def wake(self) -> None:
        """Tell a worker that a session may have work; the lock is held."""
        if self._workers_differ:  # only some of them may run the session's stage
            self._condition.notify_all()
        else:
            self._condition.notify()

    def wake_reader(self) -> None:
        """Tell the reader thread that a session has text to read; the lock is held."""
        self._unread_text.notify()

    def release(self, session: Session) -> None:
        """Forget a session and close its slot; the commit closes the slot of one in a step. The lock is held.

        The session stops counting towards admission at once, unless it is rendered to its end: then when its
        final chunk is taken, or it is cancelled, which release it again.
        """
        stream = self._streams.pop(session, None)
        if stream is None:
            self._untaken.discard(session)
            return
        stream.log.close(session, self.metrics.on_span)
        if session.is_fully_rendered and session.cancelled_at is None:
            self._untaken.add(session)
        if not session.running:
            self._close_slot(session)
        elif isinstance(self._backend, InterruptibleBackend):
            self._backend.interrupt(session.slot)

    def report_unread(self, characters: int) -> None:
        """Count letters of an ended stream that the voice could not read; warn of them once a minute."""
        self.metrics.unread_characters.inc(characters)
        self._unread_characters += characters
        if time.monotonic() >= self._next_unread_warning_at:
            logger.warning(
                "%d letters were not spoken: the voice cannot read their script", self._unread_characters
            )
            self._next_unread_warning_at = time.monotonic() + _UNREAD_WARNING_INTERVAL_S
            self._unread_characters = 0

    def _close_slot(self, session: Session) -> None:
        self.metrics.active_streams.dec()
        self._backend.close_slot(session.slot)
        if session.cancelled_at is not None:
            self.metrics.cancel_latency.observe(time.monotonic() - session.cancelled_at)

    # The reader thread

    def _run_reader(self) -> None:
        while True:
            with self._condition:
                session = self._next_to_read()
                while session is None:
                    if self._closing:
                        return
                    self._unread_text.wait()
                    session = self._next_to_read()
                reader = self._streams[session].reader
            self._read(session, reader)

    def _next_to_read(self) -> Session | None:
        """The session whose text is needed soonest; the lock is held."""
        return min(filter(wants_text, self._streams), key=urgency, default=None)

    def _read(self, session: Session, reader: TextReader) -> None:
        """Read a slice of a session's text. Boundary: an exception ends only that session."""
        try:
            reader.read_on()
        except Exception as error:
            logger.exception("slot %d: its text was not read", session.slot)
            with self._condition:
                if session in self._streams:
                    self._fail(session, error)

    # Worker threads

    def _run_worker(self, worker: int, stages: Stages) -> None:
        while self._run_next(worker, stages):
            pass

    def _run_next(self, worker: int, stages: Stages) -> bool:
        """Run a step or prepare one, and forget its sessions; False when the engine closes."""
        work = self._next_work(worker, stages)
        if work is None:
            return False
        work()
        return True

    def _next_work(self, worker: int, stages: Stages) -> Callable[[], None] | None:
        """Wait for a step, or for time to prepare one; None when the engine closes."""
        with self._condition:
            while True:
                if (preparing := self._begin_preparation(stages)) is not None:
                    return functools.partial(self._prepare, worker, *preparing)
                if turns := self._next_turns(stages):
                    stage = self._backend.stage(next(iter(turns)).slot)  # the same for all of them
                    return functools.partial(self._run_step, worker, stages, stage, turns)
                if self._closing:
                    return None
                self._condition.wait(_PREPARATION_CHECK_S if self._prepares_next(stages) else None)

    def _prepares_next(self, stages: Stages) -> tuple[PreparingBackend, Stage] | None:
        """The backend and the stage that a worker of these stages prepares next; the lock is held."""
        backend = self._preparing_backend
        if backend is None or self._closing or self._is_preparing:
            return None
        stage = backend.next_preparation
        return None if stage is None or stage not in stages else (backend, stage)

    def _begin_preparation(self, stages: Stages) -> tuple[PreparingBackend, Stage] | None:
        """What to prepare now, if every listener can wait for twice the longest so far; the lock is held."""
        preparing = self._prepares_next(stages)
        if preparing is None or not can_pause(self._streams, time.monotonic() + 2 * self._max_preparation_s):
            return None
        self._is_preparing = True
        return preparing

    def _prepare(self, worker: int, backend: PreparingBackend, stage: Stage) -> None:
        """Prepare one kind of step. Boundary: an exception leaves it unprepared."""
        began = time.monotonic()
        try:
            backend.prepare(worker, stage)
        except Exception:
            logger.exception("a kind of step was not prepared")
        with self._condition:
            self._max_preparation_s = max(self._max_preparation_s, time.monotonic() - began)
            self._is_preparing = False
            self._condition.notify_all()  # the next one may belong to another worker

    def _next_turns(self, stages: Stages) -> dict[Session, SlotTurn]:
        """Schedule a batch and mark its sessions as running; the lock is held."""
        turns = {}
        backend = self._backend
        self._deliver_silence()
        for session in schedule(
            self._streams,
            lambda session: backend.stage(session.slot),
            backend.max_batch_size,
            self._config.scheduler,
            stages,
        ):
            session.running = True
            turns[session] = _next_turn(session)
            if session.inputs:
                self._unread_text.notify()
        return turns

    def _run_step(self, worker: int, stages: Stages, stage: Stage, turns: dict[Session, SlotTurn]) -> None:
        """Run one step and commit its results. Boundary: an exception ends only the sessions of the step."""
        wall, cpu = time.monotonic(), time.thread_time()
        results: Sequence[StepResult | Exception]
        try:
            results = self._backend.step(worker, list(turns.values()))
        except Exception as error:
            logger.exception("a step of %d sessions failed", len(turns))
            results = [error] * len(turns)
        wall, cpu = time.monotonic() - wall, time.thread_time() - cpu
        self.metrics.steps.labels(stage.value).observe(wall)
        with self._condition:
            for session, result in zip(turns, results, strict=True):
                self._commit(session, result, wall, step_cost_s(wall, cpu) / len(turns), stages)
            if self._workers_differ:
                self._condition.notify_all()  # a session's next stage may belong to another worker

    def _commit(
        self,
        session: Session,
        result: StepResult | Exception,
        wall_s: float,
        compute_s: float,
        stages: Stages,
    ) -> None:
        """Deliver a step's result to its stream; the lock is held. Times are in seconds."""
        session.running = False
        stream = self._streams.get(session)
        if stream is None:  # cancelled during the step
            self._close_slot(session)
            return
        if isinstance(result, Exception):
            logger.error("slot %d failed: %s", session.slot, result)
            self._fail(session, result)
            return
        audio_s = result.seconds
        self.metrics.audio_seconds.inc(audio_s)
        if result.repeated:  # says nothing about what other text costs
            self.metrics.repeated_audio_seconds.inc(audio_s)
            self.metrics.filed_audio_seconds.inc(audio_s if result.from_file else 0.0)
        else:
            self._cost.observe(max(compute_s, result.device_s), audio_s, time.monotonic(), stages)
        self._observe_first_audio(session, audio_s)
        stream.deliver(result, wall_s)
        if result.segment_done:
            session.current = None
        self._end_if_rendered(session, stream)

    def _deliver_silence(self) -> None:
        """Deliver the silence that is due between segments; the lock is held."""
        for session in [session for session in self._streams if session.silence_s]:
            if seconds := session.take_silence():
                stream = self._streams[session]
                stream.deliver_silence(seconds)
                self._end_if_rendered(session, stream)

    def _end_if_rendered(self, session: Session, stream: Stream) -> None:
        if session.is_fully_rendered:
            stream.deliver_end()
        if session.is_fully_rendered or session.cancelled_at is not None:
            self.release(session)

    def _fail(self, session: Session, error: Exception) -> None:
        """End a session with an error; the lock is held."""
        self.metrics.failures.inc()
        self._streams[session].deliver_failure(error)
        session.drop_text()
        self.release(session)

    def _observe_first_audio(self, session: Session, audio_s: float) -> None:
        if session.first_audio_at is not None or not audio_s or session.first_segment_at is None:
            return
        session.first_audio_at = time.monotonic()
        self.metrics.ttfa.observe(session.first_audio_at - session.first_segment_at)


def _next_turn(session: Session) -> SlotTurn:
    if session.current is not None:
        return SlotTurn(session.slot, None, runs_dry_at=runs_dry_at(session))
    begun = session.begin_next()
    return SlotTurn(session.slot, begun.segment, begun.pause_s, runs_dry_at(session))


def _join_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
