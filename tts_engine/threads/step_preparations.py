"""The kinds of steps that a ``PreparingBackend`` has left to prepare, such as captures of a card's launches.

Between steps, one worker at a time prepares one of them, if all listeners can wait.
"""

import logging
import time

from ..backends.base import PreparingBackend, Stage, Stages
from ..scheduler import can_pause
from .open_sessions import OpenSessions

logger = logging.getLogger(__name__)

_ASSUMED_S = 2.0  # before one was measured: 42 captures took at most 82 s on an H200
CHECK_S = 0.05  # between looks at the leads of listeners, which grow without a wake-up


class StepPreparations:
    """What is left to prepare. The lock of the sessions is held, but during ``run``."""

    def __init__(self, sessions: OpenSessions) -> None:
        self._sessions = sessions
        self._backend: PreparingBackend | None = None
        self.is_running = False
        self._max_s = _ASSUMED_S  # of one

    def start(self, backend: PreparingBackend) -> None:
        """Let the workers prepare the backend's steps."""
        self._backend = backend
        self._sessions.wake_all_workers()

    def next_of(self, stages: Stages) -> tuple[PreparingBackend, Stage] | None:
        """The backend and the stage that a worker of these stages prepares next."""
        if self._backend is None or self._sessions.is_closing or self.is_running:
            return None
        stage = self._backend.next_preparation
        return None if stage is None or stage not in stages else (self._backend, stage)

    def begin(self, stages: Stages) -> tuple[PreparingBackend, Stage] | None:
        """What to ``run`` now, if every listener can wait for twice the longest so far."""
        preparing = self.next_of(stages)
        if preparing is None or not can_pause(self._sessions.streams, time.monotonic() + 2 * self._max_s):
            return None
        self.is_running = True
        return preparing

    def run(self, worker: int, backend: PreparingBackend, stage: Stage) -> None:
        """Prepare one kind of step. Boundary: an exception leaves it unprepared."""
        began = time.monotonic()
        try:
            backend.prepare(worker, stage)
        except Exception:
            logger.exception("a kind of step was not prepared")
        with self._sessions.lock:
            self._max_s = max(self._max_s, time.monotonic() - began)
            self.is_running = False
            self._sessions.wake_all_workers()  # the next one may belong to another worker
