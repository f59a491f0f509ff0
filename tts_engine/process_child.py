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

from .backend import Backend, Rendered, SlotRequest, Stage, Stages, Turn
from .errors import BadRequest, BundleError, SynthesisFailed, UnknownVoice, VivavoceError
from .voices import Voice

logger = logging.getLogger(__name__)


class Renderer(Protocol):
    """What of a ``Backend`` needs tensors, once a slot is open."""

    @property
    def workers(self) -> Sequence[Stages]:
        """As of a backend."""

    @property
    def slots(self) -> int:
        """As of a backend."""

    @property
    def room(self) -> int:
        """As of a backend."""

    def batch(self, stage: Stage) -> int:
        """As of a backend."""

    def stage(self, slot: int) -> Stage:
        """As of a backend."""

    def close_slot(self, slot: int) -> None:
        """As of a backend."""

    def step(self, worker: int, turns: Sequence[Turn]) -> Sequence[Rendered | Exception]:
        """As of a backend."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """What is rendered with. first_stage: of a slot that was just opened.

    open: takes a slot for an order, which is what the parent's ``Front`` made of a request. voices, warm_up:
    of a backend whose voices never change; others have theirs beside the gateway.
    """

    renderer: Renderer
    open: Callable[[Any], int]
    first_stage: Stage
    voices: tuple[Voice, ...] = ()
    warm_up: str = ""


def hosted(load: Callable[[], Backend]) -> Hosted:
    """A whole backend whose voices never change."""
    backend = load()
    slot = backend.open_slot(SlotRequest(backend.voices.default.id, speed=1.0, seed=0))
    stage = backend.stage(slot)
    backend.close_slot(slot)
    return Hosted(backend, backend.open_slot, stage, tuple(backend.voices), backend.warm_up)


# What goes through the pipes


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception as it crosses: some of our own do not survive pickling, others' may not even be known."""

    kind: type[VivavoceError]
    message: str

    @classmethod
    def of(cls, error: Exception, otherwise: type[VivavoceError]) -> "Fault":
        """Ours as they are, where they are made of a message; others as ``otherwise``."""
        plain = type(error) in (BadRequest, BundleError, SynthesisFailed, UnknownVoice)
        said = str(error) or type(error).__name__
        return cls(type(error), said) if plain else cls(otherwise, said)  # type: ignore[arg-type]  # it is ours

    def error(self) -> VivavoceError:
        """The exception again."""
        return self.kind(self.message)


@dataclass(frozen=True, slots=True)
class Ready:
    """What the parent has to know of what was loaded; see ``Hosted``."""

    workers: tuple[Stages, ...]
    slots: int
    room: int
    batches: Mapping[Stage, int]
    first_stage: Stage
    voices: tuple[Voice, ...]
    warm_up: str


@dataclass(frozen=True, slots=True)
class StepOrder:
    """A step, and the slots that are opened with it; their numbers are the parent's."""

    worker: int
    turns: tuple[Turn, ...]
    opened: tuple[tuple[int, object], ...]


@dataclass(frozen=True, slots=True)
class CloseOrder:
    """A slot is given back."""

    slot: int


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """What a step made of each turn, the stage of its slot now, and for how many sessions there is room."""

    results: tuple[Rendered | Fault, ...]
    stages: tuple[Stage, ...]
    room: int


def run(load: bytes, niceness: int, orders: Connection, answers: Sequence[Connection]) -> None:
    """Load what ``load`` unpickles to, a function that returns ``Hosted``, tell of it, and serve orders.

    niceness: added to the parent's. Boundary: whatever a voice raises as it loads is told and ends this.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _lower_priority(niceness)
    told = answers[0]
    try:
        what: Hosted = pickle.loads(load)()
        ready = _ready(what, most_workers=len(answers))
    except Exception as error:
        logger.debug("the voice cannot be loaded", exc_info=True)
        told.send(Fault.of(error, BundleError))
        return
    for unneeded in answers[len(ready.workers) :]:
        unneeded.close()
    gc.collect()
    gc.freeze()
    told.send(ready)
    _Server(what, answers).serve(orders)


def _lower_priority(niceness: int) -> None:
    """Of this thread and all that it will start; on Linux each has its own, also those of libraries."""
    level = os.nice(niceness)
    if sys.platform == "linux":
        for task in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), level)


def _ready(what: Hosted, *, most_workers: int) -> Ready:
    renderer = what.renderer
    if len(renderer.workers) > most_workers:
        raise BundleError(f"the voice has {len(renderer.workers)} workers; at most {most_workers} may be")
    batches = {stage: renderer.batch(stage) for stage in Stage}
    return Ready(
        tuple(renderer.workers),
        renderer.slots,
        renderer.room,
        batches,
        what.first_stage,
        what.voices,
        what.warm_up,
    )


class _Server:
    """Slots by the parent's numbers, and a thread for each worker."""

    def __init__(self, what: Hosted, answers: Sequence[Connection]) -> None:
        self._renderer, self._first_stage = what.renderer, what.first_stage
        self._open_slot = what.open
        self._answers = answers
        self._slots: dict[int, int] = {}
        self._refused: dict[int, Fault] = {}
        self._turns: list[queue.SimpleQueue[tuple[Turn, ...]]] = []
        for worker in range(len(what.renderer.workers)):
            self._turns.append(queue.SimpleQueue())
            threading.Thread(target=self._work, args=(worker,), name=f"step-{worker}", daemon=True).start()

    def serve(self, orders: Connection) -> None:
        """Until no order can come any more."""
        while True:
            try:
                order: StepOrder | CloseOrder = orders.recv()
            except (EOFError, OSError):
                os._exit(0)  # whatever is being rendered is for nobody
            if isinstance(order, CloseOrder):
                self._close(order.slot)
                continue
            for slot, asked in order.opened:
                self._open(slot, asked)
            self._turns[order.worker].put(order.turns)

    def _open(self, slot: int, order: object) -> None:
        """Boundary: a slot that cannot be opened ends its own session."""
        try:
            self._slots[slot] = self._open_slot(order)
        except Exception as error:
            self._refused[slot] = Fault.of(error, SynthesisFailed)

    def _close(self, slot: int) -> None:
        if self._refused.pop(slot, None) is None:
            self._renderer.close_slot(self._slots.pop(slot))

    def _work(self, worker: int) -> None:
        try:
            while True:
                self._answers[worker].send(self._answer(worker, self._turns[worker].get()))
        except OSError:
            os._exit(0)  # nobody listens
        finally:
            os._exit(1)  # a fault of ours: the parent shall notice rather than wait

    def _answer(self, worker: int, turns: Sequence[Turn]) -> StepAnswer:
        taken = [turn for turn in turns if turn.slot in self._slots]
        results = dict(zip((turn.slot for turn in taken), self._step(worker, taken), strict=True))
        results |= {turn.slot: self._refused[turn.slot] for turn in turns if turn.slot in self._refused}
        stages = (
            self._renderer.stage(self._slots[turn.slot]) if turn.slot in self._slots else self._first_stage
            for turn in turns
        )
        return StepAnswer(tuple(results[turn.slot] for turn in turns), tuple(stages), self._renderer.room)

    def _step(self, worker: int, turns: Sequence[Turn]) -> list[Rendered | Fault]:
        """Boundary: what a backend raises ends only the sessions of the step."""
        if not turns:
            return []
        inner = [replace(turn, slot=self._slots[turn.slot]) for turn in turns]
        cpu = time.thread_time()
        try:
            results = list(self._renderer.step(worker, inner))
        except Exception as error:
            logger.exception("a step of %d sessions failed", len(turns))
            results = [error] * len(turns)
        cpu = (time.thread_time() - cpu) / len(turns)
        return [
            Fault.of(result, SynthesisFailed)
            if isinstance(result, Exception)
            else replace(result, device_s=max(result.device_s, cpu))
            for result in results
        ]
