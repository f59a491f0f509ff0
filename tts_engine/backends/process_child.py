"""The far side of ``ProcessBackend``: the process in which a voice is rendered.

    orders   main thread   |open, close| -> worker's queue      one pipe for all
    steps    worker thread |step| -> answer                     one pipe a worker

The end of the orders, which is also what the parent's death looks like, ends the process at once. Its signals
are the parent's affair: a supervisor that stops both lets the parent finish what is being said.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ..errors import BadRequest, BundleError, SynthesisFailed, UnknownVoice, VivavoceError
from ..voices.voices import Voice
from .base import Backend, SlotRequest, SlotTurn, Stage, Stages, StepResult

logger = logging.getLogger(__name__)


class SlotRenderer(Protocol):
    """What of a ``Backend`` needs tensors, once a slot is open."""

    @property
    def workers(self) -> Sequence[Stages]:
        """As of a backend."""

    @property
    def slots(self) -> int:
        """As of a backend."""

    @property
    def memory_slots(self) -> int:
        """As of a backend."""

    def max_batch_size(self, stage: Stage) -> int:
        """As of a backend."""

    def stage(self, slot: int) -> Stage:
        """As of a backend."""

    def close_slot(self, slot: int) -> None:
        """As of a backend."""

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """As of a backend."""


@dataclass(frozen=True, slots=True)
class HostedBackend:
    """What is rendered with. first_stage: of a slot that was just opened.

    open: takes a slot for an order, which is what the parent's ``Front`` made of a request. voices, warm_up_text:
    of a backend whose voices never change; others have theirs beside the gateway.
    """

    renderer: SlotRenderer
    open_slot: Callable[[Any], int]
    first_stage: Stage
    voices: tuple[Voice, ...] = ()
    warm_up_text: str = ""


def host_backend(load: Callable[[], Backend]) -> HostedBackend:
    """A whole backend whose voices never change."""
    backend = load()
    slot = backend.open_slot(SlotRequest(backend.voices.default.id, speed=1.0, seed=0))
    stage = backend.stage(slot)
    backend.close_slot(slot)
    return HostedBackend(backend, backend.open_slot, stage, tuple(backend.voices), backend.warm_up_text)


# What goes through the pipes


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """An exception as it crosses: some of our own do not survive pickling, others' may not even be known."""

    error_type: type[VivavoceError]
    message: str

    @classmethod
    def from_exception(cls, error: Exception, otherwise: type[VivavoceError]) -> "ErrorMessage":
        """Ours as they are, where they are made of a message; others as ``otherwise``."""
        plain = type(error) in (BadRequest, BundleError, SynthesisFailed, UnknownVoice)
        text = str(error) or type(error).__name__
        return cls(type(error), text) if plain else cls(otherwise, text)  # type: ignore[arg-type]  # it is ours

    def to_exception(self) -> VivavoceError:
        """The exception again."""
        return self.error_type(self.message)


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """What the parent has to know of what was loaded; see ``HostedBackend``."""

    workers: tuple[Stages, ...]
    slots: int
    memory_slots: int
    max_batch_sizes: Mapping[Stage, int]
    first_stage: Stage
    voices: tuple[Voice, ...]
    warm_up_text: str


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A step, and the slots that are opened with it; their numbers are the parent's."""

    worker: int
    turns: tuple[SlotTurn, ...]
    opened: tuple[tuple[int, object], ...]


@dataclass(frozen=True, slots=True)
class CloseMessage:
    """A slot is given back."""

    slot: int


@dataclass(frozen=True, slots=True)
class StepReply:
    """What a step made of each turn, the stage of its slot now, and for how many sessions there is room."""

    results: tuple[StepResult | ErrorMessage, ...]
    stages: tuple[Stage, ...]
    memory_slots: int


def child_main(load: bytes, niceness: int, requests: Connection, replies: Sequence[Connection]) -> None:
    """Load what ``load`` unpickles to, a function that returns ``HostedBackend``, tell of it, and serve orders.

    niceness: added to the parent's. Boundary: whatever a voice raises as it loads is told and ends this.
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
    gc.collect()
    gc.freeze()
    first_reply_pipe.send(ready)
    _StepServer(hosted_backend, replies).serve(requests)


def _lower_priority(niceness: int) -> None:
    """Of this thread and all that it will start; on Linux each has its own, also those of libraries."""
    level = os.nice(niceness)
    if sys.platform == "linux":
        for task in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), level)


def _ready_message(hosted_backend: HostedBackend, *, max_workers: int) -> ReadyMessage:
    renderer = hosted_backend.renderer
    if len(renderer.workers) > max_workers:
        raise BundleError(f"the voice has {len(renderer.workers)} workers; at most {max_workers} may be")
    batches = {stage: renderer.max_batch_size(stage) for stage in Stage}
    return ReadyMessage(
        tuple(renderer.workers),
        renderer.slots,
        renderer.memory_slots,
        batches,
        hosted_backend.first_stage,
        hosted_backend.voices,
        hosted_backend.warm_up_text,
    )


class _StepServer:
    """Slots by the parent's numbers, and a thread for each worker."""

    def __init__(self, hosted_backend: HostedBackend, replies: Sequence[Connection]) -> None:
        self._renderer, self._first_stage = hosted_backend.renderer, hosted_backend.first_stage
        self._open_slot = hosted_backend.open_slot
        self._replies = replies
        self._slots: dict[int, int] = {}
        self._open_errors: dict[int, ErrorMessage] = {}
        self._turns: list[queue.SimpleQueue[tuple[SlotTurn, ...]]] = []
        for worker in range(len(hosted_backend.renderer.workers)):
            self._turns.append(queue.SimpleQueue())
            threading.Thread(target=self._work, args=(worker,), name=f"step-{worker}", daemon=True).start()

    def serve(self, requests: Connection) -> None:
        """Until no order can come any more."""
        while True:
            try:
                incoming: StepMessage | CloseMessage = requests.recv()
            except (EOFError, OSError):
                os._exit(0)  # whatever is being rendered is for nobody
            if isinstance(incoming, CloseMessage):
                self._close(incoming.slot)
                continue
            for slot, prepared_request in incoming.opened:
                self._open(slot, prepared_request)
            self._turns[incoming.worker].put(incoming.turns)

    def _open(self, slot: int, incoming: object) -> None:
        """Boundary: a slot that cannot be opened ends its own session."""
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
                self._replies[worker].send(self._reply(worker, self._turns[worker].get()))
        except OSError:
            os._exit(0)  # nobody listens
        finally:
            os._exit(1)  # a fault of ours: the parent shall notice rather than wait

    def _reply(self, worker: int, turns: Sequence[SlotTurn]) -> StepReply:
        taken = [turn for turn in turns if turn.slot in self._slots]
        results = dict(zip((turn.slot for turn in taken), self._step(worker, taken), strict=True))
        results |= {
            turn.slot: self._open_errors[turn.slot] for turn in turns if turn.slot in self._open_errors
        }
        stages = (
            self._renderer.stage(self._slots[turn.slot]) if turn.slot in self._slots else self._first_stage
            for turn in turns
        )
        return StepReply(
            tuple(results[turn.slot] for turn in turns), tuple(stages), self._renderer.memory_slots
        )

    def _step(self, worker: int, turns: Sequence[SlotTurn]) -> list[StepResult | ErrorMessage]:
        """Boundary: what a backend raises ends only the sessions of the step."""
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
