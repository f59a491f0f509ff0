"""The worker threads of an engine: each schedules a batch of sessions, runs a step of the backend, commits.

Workers may all run every stage, or each run one stage; in the second case a session changes its worker with
its stage.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence

from ..backends.base import Backend, PreparingBackend, SlotTurn, Stage, Stages, StepResult
from ..scheduler import ComputeCost, SchedulerPolicy, runs_dry_at, schedule, step_cost_s
from ..session import Session
from .open_sessions import OpenSessions
from .step_preparations import CHECK_S, StepPreparations

logger = logging.getLogger(__name__)


class Workers:
    """One thread for each worker of the backend. cost: what their steps have cost."""

    def __init__(
        self, backend: Backend, sessions: OpenSessions, cost: ComputeCost, policy: SchedulerPolicy
    ) -> None:
        self._backend = backend
        self._sessions = sessions
        self._cost = cost
        self._policy = policy
        self._preparations = StepPreparations(sessions)
        self.threads = tuple(
            threading.Thread(target=self._run, args=(worker, stages), name=f"vivavoce-{worker}", daemon=True)
            for worker, stages in enumerate(backend.workers)
        )

    @property
    def are_preparing(self) -> bool:
        """Whether a kind of step is prepared now."""
        return self._preparations.is_running

    def begin_preparations(self) -> None:
        """Prepare further kinds of steps from now on, while no listener needs the time."""
        if isinstance(self._backend, PreparingBackend):
            with self._sessions.lock:
                self._preparations.start(self._backend)

    def _run(self, worker: int, stages: Stages) -> None:
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
        sessions, preparations = self._sessions, self._preparations
        with sessions.lock:
            while True:
                if (preparing := preparations.begin(stages)) is not None:
                    return functools.partial(preparations.run, worker, *preparing)
                if turns := self._next_turns(stages):
                    stage = self._backend.stage(next(iter(turns)).slot)  # the same for all of them
                    return functools.partial(self._run_step, worker, stages, stage, turns)
                if sessions.is_closing:
                    return None
                sessions.lock.wait(CHECK_S if preparations.next_of(stages) else None)

    def _next_turns(self, stages: Stages) -> dict[Session, SlotTurn]:
        """Schedule a batch and mark its sessions as running; the lock is held."""
        turns = {}
        backend = self._backend
        self._deliver_silence()
        for session in schedule(
            self._sessions.streams,
            lambda session: backend.stage(session.slot),
            backend.max_batch_size,
            self._policy,
            stages,
        ):
            session.running = True
            turns[session] = _next_turn(session)
            if session.inputs:
                self._sessions.wake_reader()
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
        self._sessions.metrics.steps.labels(stage.value).observe(wall)
        with self._sessions.lock:
            for session, result in zip(turns, results, strict=True):
                self._commit(session, result, wall, step_cost_s(wall, cpu) / len(turns), stages)
            self._sessions.wake_next_stages()

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
        stream = self._sessions.streams.get(session)
        if stream is None:  # cancelled during the step
            self._sessions.close_slot(session)
            return
        if isinstance(result, Exception):
            logger.error("slot %d failed: %s", session.slot, result)
            self._sessions.fail(session, result)
            return
        self._count(session, result, compute_s, stages)
        stream.deliver(result, wall_s)
        if result.segment_done:
            session.current = None
        self._sessions.end_if_rendered(session)

    def _count(self, session: Session, result: StepResult, compute_s: float, stages: Stages) -> None:
        metrics, audio_s = self._sessions.metrics, result.seconds
        metrics.audio_seconds.inc(audio_s)
        if result.repeated:  # says nothing about what other text costs
            metrics.repeated_audio_seconds.inc(audio_s)
            metrics.filed_audio_seconds.inc(audio_s if result.from_file else 0.0)
        else:
            self._cost.observe(max(compute_s, result.device_s), audio_s, time.monotonic(), stages)
        if session.first_audio_at is None and audio_s and session.first_segment_at is not None:
            session.first_audio_at = time.monotonic()
            metrics.ttfa.observe(session.first_audio_at - session.first_segment_at)

    def _deliver_silence(self) -> None:
        """Deliver the silence that is due between segments; the lock is held."""
        streams = self._sessions.streams
        for session in [session for session in streams if session.silence_s]:
            if seconds := session.take_silence():
                streams[session].deliver_silence(seconds)
                self._sessions.end_if_rendered(session)


def _next_turn(session: Session) -> SlotTurn:
    if session.current is not None:
        return SlotTurn(session.slot, None, runs_dry_at=runs_dry_at(session))
    begun = session.begin_next()
    return SlotTurn(session.slot, begun.segment, begun.pause_s, runs_dry_at(session))
