"""The engine: opens a voice, admits streams, and renders their text on worker threads.

    loop thread                                 worker thread (one a backend worker)
    Stream.push_text -> Segmenter -> Session    schedule -> Backend.step -> commit
    Stream.__anext__ <- call_soon_threadsafe <--------------------------------'

One hop in, one hop out. The lock guards sessions only, never a step; asyncio never waits for tensors. Workers
may be alike, or each have stages of its own; then a session goes from one to the other with its next step.
"""

import asyncio
import functools
import importlib.util
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .backends.base import Backend, Delivery, SlotRequest, SlotTurn, Stages, StepResult
from .chunk import SAMPLE_RATE
from .errors import BadRequest, MissingExtra, Overloaded
from .metrics import Metrics
from .scheduler import ComputeCost, SchedulerPolicy, admit, schedule
from .session import Session
from .stream import Stream
from .voices.voices import Voices

if TYPE_CHECKING:
    from .backends.process import ProcessPolicy
    from .cosyvoice.policy import CosyVoicePolicy

logger = logging.getLogger(__name__)

_MIN_SPEED, _MAX_SPEED = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine behaves. max_characters: text that one stream takes."""

    scheduler: SchedulerPolicy = field(default_factory=SchedulerPolicy)
    max_characters: int = 200_000


class Engine:
    """A voice, ready to speak for many listeners at once.

    Open with ``await Engine.open()``, close with ``await engine.aclose()`` (or use ``async with``). Streams
    belong to the event loop that opened them; the engine itself to none.
    """

    def __init__(self, backend: Backend, config: EngineConfig, metrics: Metrics) -> None:
        self.metrics = metrics
        self.voices: Voices = backend.voices
        self._backend = backend
        self._config = config
        self._cost = ComputeCost(backend.workers)
        self._streams: dict[Session, Stream] = {}
        self._condition = threading.Condition()
        self._workers_differ = len(set(backend.workers)) > 1
        self._closing = False
        self._threads = [
            threading.Thread(
                target=self._run_worker, args=(worker, stages), name=f"vivavoce-{worker}", daemon=True
            )
            for worker, stages in enumerate(backend.workers)
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    async def open(
        cls,
        bundle: str = "default",
        *,
        voices: Path | None = None,
        precision: str = "fp32",
        device: str = "auto",
        config: EngineConfig | None = None,
        backend: Backend | None = None,
        process: "ProcessPolicy | None" = None,
        metrics: Metrics | None = None,
    ) -> "Engine":
        """Load a bundle and warm it up; raises BundleError, BadRequest, and MissingExtra where it needs one.

        ``bundle``: "default", the packaged voice, or the folder of a CosyVoice 2 or 3 checkpoint.
        ``voices``: the folder of a ``VoiceStore``. ``precision``: of CosyVoice's language model, "fp32",
        "bf16", "fp16" or "int8". ``device``: of CosyVoice, "auto" (a graphics card if torch can use one),
        "cpu", "cuda" or "cuda:N". ``backend`` takes the place of the bundle's own.
        ``process``: render in a process of its own; without it, on threads of this one.
        """
        if backend is None:
            load = functools.partial(_load_backend, bundle, voices, precision, device, process)
            backend = await asyncio.get_running_loop().run_in_executor(None, load)
        engine = cls(backend, config or EngineConfig(), Metrics())
        try:
            await engine._warm_up()
        except BaseException:
            await engine.aclose()
            raise
        engine.metrics = metrics or Metrics()
        return engine

    async def __aenter__(self) -> "Engine":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def active_streams(self) -> int:
        """Streams open now; one that was cancelled is not, also while the step under way holds its slot."""
        return len(self._streams)

    def refusal(self) -> Overloaded | None:
        """Why one more stream would be refused now; None when it would not."""
        backend = self._backend
        try:
            admit(
                len(self._streams),
                slots=backend.slots,
                memory_slots=backend.memory_slots,
                cost=self._cost,
                policy=self._config.scheduler,
            )
        except Overloaded as refusal:
            return refusal
        return None

    def stream(
        self,
        *,
        voice: str | None = None,
        speed: float = 1.0,
        seed: int = 0,
        delivery: Delivery | None = None,
    ) -> Stream:
        """Open an utterance stream on the running loop.

        Raises UnknownVoice, BadRequest (speed outside 0.5 to 2.0, a seed below 0, a delivery that the voice
        cannot give) or Overloaded, all at once.
        """
        return self._open_stream(self._request(voice, speed, seed, delivery or Delivery()))

    async def convert(
        self,
        samples: NDArray[np.float32],
        sample_rate: int,
        *,
        voice: str | None = None,
        speed: float = 1.0,
        seed: int = 0,
    ) -> Stream:
        """Say again in a voice what is said in a recording of (N,) mono samples; raises as ``stream``.

        The stream takes no text; use it like any other.
        """
        request = self._request(voice, speed, seed, Delivery())
        tokenize = functools.partial(self.voices.tokenize_speech, samples, sample_rate)
        source_speech_ids = await asyncio.get_running_loop().run_in_executor(None, tokenize)
        stream = self._open_stream(replace(request, source_speech_ids=source_speech_ids))
        stream.end_input()
        return stream

    def _request(self, voice: str | None, speed: float, seed: int, delivery: Delivery) -> SlotRequest:
        """What is asked for, looked up before the lock is taken: voices may be on file."""
        if not _MIN_SPEED <= speed <= _MAX_SPEED:
            raise BadRequest(f"speed {speed} is outside {_MIN_SPEED} to {_MAX_SPEED}")
        if seed < 0:
            raise BadRequest(f"seed {seed} is below 0")
        found_voice = self.voices.get(voice)
        delivery = replace(delivery, language=delivery.language or found_voice.language)
        return SlotRequest(
            found_voice.id, speed, seed, delivery, speaker_profile=self.voices.speaker_profile(found_voice.id)
        )

    def _open_stream(self, request: SlotRequest) -> Stream:
        loop = asyncio.get_running_loop()
        with self._condition:
            if self._closing:
                raise BadRequest("the engine is closed")
            refusal = self.refusal()
            if refusal is not None:
                self.metrics.refusals.labels(refusal.reason).inc()
                raise refusal
            segmenter = self._backend.segmenter(request)
            session = Session(self._backend.open_slot(request), opened_at=time.monotonic())
            stream = Stream(self, session, segmenter, loop, self._config.max_characters)
            self._streams[session] = stream
        self.metrics.active_streams.inc()
        return stream

    async def aclose(self) -> None:
        """Cancel every stream, stop the workers, free the voice. May be called twice."""
        with self._condition:
            self._closing = True
            streams = list(self._streams.values())
            self._condition.notify_all()
        for stream in streams:
            stream.cancel()
        join = functools.partial(_join_all, self._threads)
        await asyncio.get_running_loop().run_in_executor(None, join)
        self._backend.close()

    async def _warm_up(self) -> None:
        """Speak a sentence to nobody on every worker, so that the first caller does not pay for laziness."""
        backend = self._backend
        available = min(self._config.scheduler.max_streams, backend.slots, backend.memory_slots)
        concurrent_streams = min(len(backend.workers), available) if len(self.voices) else 0
        await asyncio.gather(*(self._speak_warm_up_text() for _ in range(concurrent_streams)))

    async def _speak_warm_up_text(self) -> None:
        async with self.stream() as stream:
            stream.push_text(self._backend.warm_up_text)
            stream.end_input()
            async for _ in stream:
                pass

    # What streams call, on their loop

    @property
    def lock(self) -> threading.Condition:
        """Guards sessions; held for microseconds, never during a step."""
        return self._condition

    def wake(self) -> None:
        """Tell a worker that there may be something to do; the lock is held."""
        if self._workers_differ:  # it may be for any of them
            self._condition.notify_all()
        else:
            self._condition.notify()

    def release(self, session: Session) -> None:
        """Let a session go, and its slot unless it is being stepped (then the commit does); the lock is held.

        Whoever comes next may have its place at once.
        """
        if self._streams.pop(session, None) is not None and not session.running:
            self._close_slot(session)

    def _close_slot(self, session: Session) -> None:
        self.metrics.active_streams.dec()
        self._backend.close_slot(session.slot)
        if session.cancelled_at is not None:
            self.metrics.cancel_latency.observe(time.monotonic() - session.cancelled_at)

    # Worker threads

    def _run_worker(self, worker: int, stages: Stages) -> None:
        while True:
            with self._condition:
                turns = self._next_turns(stages)
                while not turns:
                    if self._closing:
                        return
                    self._condition.wait()
                    turns = self._next_turns(stages)
            self._run_step(worker, stages, turns)

    def _next_turns(self, stages: Stages) -> dict[Session, SlotTurn]:
        """Schedule a batch and mark it running; the lock is held."""
        turns = {}
        backend = self._backend
        for session in schedule(
            self._streams,
            lambda session: backend.stage(session.slot),
            backend.max_batch_size,
            self._config.scheduler,
            stages,
        ):
            session.running = True
            turns[session] = _next_turn(session)
        return turns

    def _run_step(self, worker: int, stages: Stages, turns: dict[Session, SlotTurn]) -> None:
        """Run one step and commit it. Boundary: what a backend raises ends only the sessions of the step."""
        wall, cpu = time.monotonic(), time.thread_time()
        results: Sequence[StepResult | Exception]
        try:
            results = self._backend.step(worker, list(turns.values()))
        except Exception as error:
            logger.exception("a step of %d sessions failed", len(turns))
            results = [error] * len(turns)
        wall, cpu = time.monotonic() - wall, time.thread_time() - cpu
        with self._condition:
            for session, result in zip(turns, results, strict=True):
                self._commit(session, result, wall, cpu / len(turns), stages)
            if self._workers_differ:
                self._condition.notify_all()  # what comes next for a session may be another's to do

    def _commit(
        self, session: Session, result: StepResult | Exception, wall_s: float, cpu_s: float, stages: Stages
    ) -> None:
        """Hand a step's result to its stream; the lock is held."""
        session.running = False
        stream = self._streams.get(session)
        if stream is None:  # cancelled meanwhile
            self._close_slot(session)
            return
        if isinstance(result, Exception):
            self.metrics.failures.inc()
            logger.error("slot %d failed: %s", session.slot, result)
            stream.deliver_failure(result)
            self.release(session)
            return
        audio_s = len(result.samples) / SAMPLE_RATE
        self._cost.observe(max(cpu_s, result.device_s), audio_s, stages)
        self.metrics.audio_seconds.inc(audio_s)
        self._observe_first_audio(session, audio_s)
        stream.deliver(result, wall_s)
        if result.segment_done:
            session.current = None
        if session.is_fully_rendered:
            stream.deliver_end()
        if session.is_fully_rendered or session.cancelled_at is not None:
            self.release(session)

    def _observe_first_audio(self, session: Session, audio_s: float) -> None:
        if session.first_audio_at is not None or not audio_s or session.first_segment_at is None:
            return
        session.first_audio_at = time.monotonic()
        self.metrics.ttfa.observe(session.first_audio_at - session.first_segment_at)


def _next_turn(session: Session) -> SlotTurn:
    if session.current is not None:
        return SlotTurn(session.slot, None)
    session.current = session.pending.popleft()
    return SlotTurn(session.slot, session.current.segment, session.current.pause_s)


def _join_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _load_backend(
    bundle: str, voices: Path | None, precision: str, device: str, process: "ProcessPolicy | None"
) -> Backend:
    if bundle == "default":
        if precision != "fp32":
            raise BadRequest(f"precision is {precision!r}; only a CosyVoice bundle has others than fp32")
        if device not in ("auto", "cpu"):
            raise BadRequest(f"device is {device!r}; only a CosyVoice bundle computes on others than cpu")
        return _load_hibari() if process is None else _load_hibari_in_process(process)
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"the bundle {bundle!r}", "cosyvoice")
    from .cosyvoice.policy import policy_for

    policy = policy_for(precision, device)
    if process is None:
        from .cosyvoice.backend import CosyVoiceBackend

        return CosyVoiceBackend.load(Path(bundle), policy, voices)
    return _load_cosyvoice_in_process(Path(bundle), policy, voices, process)


def _load_hibari() -> Backend:
    from .backends.hibari import HibariBackend

    return HibariBackend.load()


def _load_hibari_in_process(process: "ProcessPolicy") -> Backend:
    from .backends.process import ProcessBackend

    return ProcessBackend.start_backend(_load_hibari, process)


def _load_cosyvoice_in_process(
    bundle: Path, policy: "CosyVoicePolicy", voices: Path | None, process: "ProcessPolicy"
) -> Backend:
    from .backends.process import ProcessBackend
    from .cosyvoice.backend import load_hosted_renderer
    from .cosyvoice.front_end import CosyVoiceFrontEnd

    front = functools.partial(CosyVoiceFrontEnd.load, bundle, policy, voices)
    return ProcessBackend.start(functools.partial(load_hosted_renderer, bundle, policy), front, process)
