"""The child process of ``ProcessBackend``: it owns the renderer and serves its parent's messages.

    requests   main thread     open, close; a step goes to its worker's queue    one pipe for all
    replies    worker thread   step -> reply                                     one pipe for each worker

The process exits at once when the request pipe closes, which also happens when the parent dies. It ignores
SIGINT and SIGTERM: a supervisor that signals both processes must let the parent finish its streams first.
"""

import gc
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from ..errors import BadRequest, BundleError, SynthesisFailed, UnknownVoice, VivavoceError
from ..voices.voices import Voice
from .base import PreparingBackend, SlotRenderer, SlotTurn, Stage, Stages, StepResult
from .hosted_backend import HostedBackend

logger = logging.getLogger(__name__)


# Messages


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """An exception in a pipe: some cannot be pickled, and the parent may lack the class of others."""

    error_type: type[VivavoceError]
    message: str

    @classmethod
    def from_exception(cls, error: Exception, otherwise: type[VivavoceError]) -> "ErrorMessage":
        """The error itself if its class takes one message, else an ``otherwise`` with its message."""
        is_plain = type(error) in (BadRequest, BundleError, SynthesisFailed, UnknownVoice)
        text = str(error) or type(error).__name__
        return cls(type(error) if is_plain else otherwise, text)  # type: ignore[arg-type]  # checked above

    def to_exception(self) -> VivavoceError:
        """The exception that the message describes."""
        return self.error_type(self.message)


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """The first reply: what was loaded. Fields are as in ``Backend`` and ``HostedBackend``."""

    workers: tuple[Stages, ...]
    slots: int
    memory_slots: int
    next_preparation: Stage | None  # as of ``PreparingBackend``
    max_batch_sizes: Mapping[Stage, int]
    first_stage: Stage
    voices: tuple[Voice, ...]
    warm_up_text: str
    varies_pauses: bool


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A step, and the slots to open before it, with the parent's numbers and prepared requests."""

    number: int  # of the step, in its reply too
    worker: int
    turns: tuple[SlotTurn, ...]
    opened: tuple[tuple[int, object], ...]


@dataclass(frozen=True, slots=True)
class PrepareMessage:
    """A preparation, as of ``PreparingBackend``; its reply is that of a step without turns."""

    number: int  # among the steps
    worker: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class CloseMessage:
    """A slot is closed."""

    slot: int


@dataclass(frozen=True, slots=True)
class StepReply:
    """The result of each turn, the next stage of its slot, and what the renderer reports after the step."""

    number: int
    results: tuple[StepResult | ErrorMessage, ...]
    stages: tuple[Stage, ...]
    memory_slots: int
    next_preparation: Stage | None


def child_main(load: bytes, niceness: int, requests: Connection, replies: Sequence[Connection]) -> None:
    """The main function of the child: load, report, and serve messages until the request pipe closes.

    load: a pickled function that returns a ``HostedBackend``. niceness: added to the parent's. Boundary: an
    exception while loading is sent to the parent and ends the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _lower_priority(niceness)
    first_reply_pipe = replies[0]
    try:
        hosted_backend: HostedBackend = pickle.loads(load)()
        ready = _ready_message(hosted_backend, max_workers=len(replies))
    except Exception as error:
        logger.debug("the voice cannot be loaded", exc_info=True)
        first_reply_pipe.send(ErrorMessage.from_exception(error, BundleError))
        return
    for unused in replies[len(ready.workers) :]:
        unused.close()
    # What was loaded stays until the process ends; later collections need not scan it.
    gc.collect()
    gc.freeze()
    gc.collect()  # of nothing: else the next full one waits for a quarter as many objects as are frozen
    first_reply_pipe.send(ready)
    _StepServer(hosted_backend, replies).serve(requests)


def _lower_priority(niceness: int) -> None:
    """Raise the niceness of all threads: on Linux each has its own, and libraries have started some."""
    level = os.nice(niceness)
    if sys.platform == "linux":
        for task in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), level)


def _ready_message(hosted_backend: HostedBackend, *, max_workers: int) -> ReadyMessage:
    renderer = hosted_backend.renderer
    if len(renderer.workers) > max_workers:
        raise BundleError(f"the voice has {len(renderer.workers)} workers; at most {max_workers} are allowed")
    batches = {stage: renderer.max_batch_size(stage) for stage in Stage}
    return ReadyMessage(
        tuple(renderer.workers),
        renderer.slots,
        renderer.memory_slots,
        _next_preparation(renderer),
        batches,
        hosted_backend.first_stage,
        hosted_backend.voices,
        hosted_backend.warm_up_text,
        hosted_backend.varies_pauses,
    )


def _next_preparation(renderer: SlotRenderer) -> Stage | None:
    return renderer.next_preparation if isinstance(renderer, PreparingBackend) else None


class _StepServer:
    """The slots, by the parent's numbers, and a thread for each worker."""

    def __init__(self, hosted_backend: HostedBackend, replies: Sequence[Connection]) -> None:
        self._renderer, self._first_stage = hosted_backend.renderer, hosted_backend.first_stage
        self._open_slot = hosted_backend.open_slot
        self._replies = replies
        self._slots: dict[int, int] = {}
        self._open_errors: dict[int, ErrorMessage] = {}
        self._steps: list[queue.SimpleQueue[StepMessage | PrepareMessage]] = []
        for worker in range(len(hosted_backend.renderer.workers)):
            self._steps.append(queue.SimpleQueue())
            threading.Thread(target=self._work, args=(worker,), name=f"step-{worker}", daemon=True).start()

    def serve(self, requests: Connection) -> None:
        """Handle messages until the pipe closes."""
        while True:
            try:
                incoming: StepMessage | PrepareMessage | CloseMessage = requests.recv()
            except (EOFError, OSError):
                os._exit(0)  # without waiting for steps, whose results have no reader
            if isinstance(incoming, CloseMessage):
                self._close(incoming.slot)
                continue
            if isinstance(incoming, StepMessage):
                for slot, prepared_request in incoming.opened:
                    self._open(slot, prepared_request)
            self._steps[incoming.worker].put(incoming)

    def _open(self, slot: int, incoming: object) -> None:
        """Open a slot. Boundary: an exception ends that session only."""
        try:
            self._slots[slot] = self._open_slot(incoming)
        except Exception as error:
            self._open_errors[slot] = ErrorMessage.from_exception(error, SynthesisFailed)

    def _close(self, slot: int) -> None:
        if self._open_errors.pop(slot, None) is None:
            self._renderer.close_slot(self._slots.pop(slot))

    def _work(self, worker: int) -> None:
        try:
            while True:
                work = self._steps[worker].get()
                reply = self._prepare(work) if isinstance(work, PrepareMessage) else self._reply(work)
                self._replies[worker].send(reply)
        except OSError:
            os._exit(0)  # the parent has closed the pipe
        finally:
            os._exit(1)  # a bug here: exit, so that the parent does not wait for a reply

    def _reply(self, step: StepMessage) -> StepReply:
        turns = step.turns
        taken = [turn for turn in turns if turn.slot in self._slots]
        results = dict(zip((turn.slot for turn in taken), self._step(step.worker, taken), strict=True))
        results |= {
            turn.slot: self._open_errors[turn.slot] for turn in turns if turn.slot in self._open_errors
        }
        stages = (
            self._renderer.stage(self._slots[turn.slot]) if turn.slot in self._slots else self._first_stage
            for turn in turns
        )
        return StepReply(
            step.number,
            tuple(results[turn.slot] for turn in turns),
            tuple(stages),
            self._renderer.memory_slots,
            _next_preparation(self._renderer),
        )

    def _prepare(self, message: PrepareMessage) -> StepReply:
        """Prepare a kind of step. Boundary: an exception leaves it unprepared."""
        renderer = self._renderer
        try:
            if isinstance(renderer, PreparingBackend):
                renderer.prepare(message.worker, message.stage)
        except Exception:
            logger.exception("a kind of step was not prepared")
        return StepReply(message.number, (), (), renderer.memory_slots, _next_preparation(renderer))

    def _step(self, worker: int, turns: Sequence[SlotTurn]) -> list[StepResult | ErrorMessage]:
        """Run a step. Boundary: an exception ends only the sessions of the step."""
        if not turns:
            return []
        own_turns = [replace(turn, slot=self._slots[turn.slot]) for turn in turns]
        cpu = time.thread_time()
        try:
            results = list(self._renderer.step(worker, own_turns))
        except Exception as error:
            logger.exception("a step of %d sessions failed", len(turns))
            results = [error] * len(turns)
        cpu = (time.thread_time() - cpu) / len(turns)
        return [
            ErrorMessage.from_exception(result, SynthesisFailed)
            if isinstance(result, Exception)
            else replace(result, device_s=max(result.device_s, cpu))
            for result in results
        ]
