"""A backend whose steps run in a process of their own: rendering never holds the gateway's interpreter.

    gateway                                  child (``process_child``)
    Front: voices, segmenters, orders        Renderer: weights, slots
    step: |order| ---------- pipe ---------> open, step
          waits, no interpreter held <------ samples, the slot's next stage
    close |slot|  ---------- pipe ---------> close

Nothing but ``step`` waits for the child: slots are opened there with their first step, and what the scheduler
asks under its lock is answered from what the child told last. A child that dies fails the sessions it had
begun; the next one to speak starts a fresh child.
"""

import logging
import multiprocessing
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import util
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Protocol

from . import process_child
from .backend import Backend, Rendered, SlotRequest, Stage, Turn
from .errors import BundleError, Overloaded, SynthesisFailed
from .process_child import CloseOrder, Fault, Hosted, Ready, StepAnswer, StepOrder
from .text import Segmenter
from .voices import Voices

logger = logging.getLogger(__name__)

_MOST_WORKERS = 8  # pipes made before it is known how many are needed
_END_WITHIN_S = 5.0  # a child that reads the end of its orders ends at once, unless its machine stands still


@dataclass(frozen=True, slots=True)
class ProcessPolicy:
    """How the process is run.

    niceness: above this one's own; a raised one lets what sends audio go first on a busy core. most_starts:
    within ``starts_within_s`` seconds; a voice that dies more often is not started again until they are over.
    """

    niceness: int = 0
    most_starts: int = 3
    starts_within_s: float = 60.0


class Front(Protocol):
    """What of a backend needs no tensors and stays beside the gateway."""

    @property
    def voices(self) -> Voices:
        """As of a backend."""

    @property
    def warm_up(self) -> str:
        """As of a backend."""

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """As of a backend."""

    def order(self, request: SlotRequest) -> object:
        """What the renderer opens a slot with; it is pickled. Raises BadRequest."""

    def close(self) -> None:
        """Let go of the voices."""


class CopiedFront:
    """The front of a voice whose voices never change; a request is its own order."""

    def __init__(self, voices: Voices, warm_up: str) -> None:
        self.voices, self.warm_up = voices, warm_up

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """Clauses and sentences."""
        return Segmenter()

    def order(self, request: SlotRequest) -> SlotRequest:
        """The request."""
        return request

    def close(self) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class _Seat:
    """A slot here. child: in which it is open; None before its first step."""

    order: object
    stage: Stage
    child: "_Child | None" = None


class ProcessBackend:
    """A ``Backend`` over a child process. Built by ``start`` or ``start_whole``."""

    def __init__(self, load: bytes, front: Callable[[Ready], Front], policy: ProcessPolicy) -> None:
        self._load, self._policy = load, policy
        self._starts: deque[float] = deque(maxlen=policy.most_starts + 1)
        self._starting = threading.Lock()
        self._telling = threading.Lock()  # makes the order of orders that in which they are sent
        self._seats: dict[int, _Seat] = {}
        self._last_slot = 0
        self._child = self._started()
        ready = self._child.ready
        self.workers, self.slots = ready.workers, ready.slots
        self._batches, self._first_stage = ready.batches, ready.first_stage
        with ExitStack() as undo:
            undo.callback(self._child.end)
            self._front = front(ready)
            undo.pop_all()
        self.voices, self.warm_up = self._front.voices, self._front.warm_up

    @classmethod
    def start(
        cls, load: Callable[[], Hosted], front: Callable[[], Front], policy: ProcessPolicy | None = None
    ) -> "ProcessBackend":
        """Start a child that renders what ``load``, which is pickled, makes there; ``front`` is made here.

        Raises BundleError, also for what cannot be pickled.
        """
        return cls(_pickled(load), lambda ready: front(), policy or ProcessPolicy())

    @classmethod
    def start_whole(
        cls, load: Callable[[], Backend], policy: ProcessPolicy | None = None
    ) -> "ProcessBackend":
        """As ``start``, of a whole backend whose voices never change."""
        whole = _pickled(_Whole(load))
        return cls(
            whole, lambda ready: CopiedFront(Voices(ready.voices), ready.warm_up), policy or ProcessPolicy()
        )

    @property
    def pid(self) -> int:
        """Of the child, also when it has ended."""
        return self._child.pid

    @property
    def open_slots(self) -> int:
        """Slots that are taken."""
        return len(self._seats)

    @property
    def room(self) -> int:
        """As the renderer said after its last step."""
        return self._child.room

    def batch(self, stage: Stage) -> int:
        """As the renderer says."""
        return self._batches[stage]

    def stage(self, slot: int) -> Stage:
        """As the renderer said after the slot's last step."""
        return self._seats[slot].stage

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """As the front says."""
        return self._front.segmenter(request)

    def open_slot(self, request: SlotRequest) -> int:
        """Take a slot; raises BadRequest, and Overloaded while a voice that died may not be started."""
        order = self._front.order(request)
        if self._child.has_ended():
            self._check_starts()
        self._last_slot += 1
        self._seats[self._last_slot] = _Seat(order, self._first_stage)
        return self._last_slot

    def close_slot(self, slot: int) -> None:
        """Give a slot back, also in the child if it knows of it."""
        seat = self._seats.pop(slot)
        if seat.child is not None:
            seat.child.close_slot(slot, self._telling)

    def step(self, worker: int, turns: Sequence[Turn]) -> Sequence[Rendered | Exception]:
        """Have a step rendered; sessions that a dead child had begun fail."""
        begun_in = [self._seats[turn.slot].child for turn in turns]
        if all(child is not None and child.has_ended() for child in begun_in):
            return [_lost()] * len(turns)
        child = self._living()
        here = [turn for turn in turns if self._seats[turn.slot].child in (None, child)]
        results = dict(zip((turn.slot for turn in here), self._stepped(child, worker, here), strict=True))
        return [results.get(turn.slot) or _lost() for turn in turns]

    def close(self) -> None:
        """End the child, and forget every slot."""
        self._child.end()
        self._seats.clear()
        self._front.close()

    def _stepped(self, child: "_Child", worker: int, turns: Sequence[Turn]) -> list[Rendered | Exception]:
        if not turns:
            return []
        try:
            answer = child.step(worker, lambda: self._order(child, worker, turns), self._telling)
        except SynthesisFailed as error:
            return [error] * len(turns)
        for turn, stage in zip(turns, answer.stages, strict=True):
            self._seats[turn.slot].stage = stage
        return [result.error() if isinstance(result, Fault) else result for result in answer.results]

    def _order(self, child: "_Child", worker: int, turns: Sequence[Turn]) -> StepOrder:
        opened = []
        for turn in turns:
            seat = self._seats[turn.slot]
            if seat.child is None:
                opened.append((turn.slot, seat.order))
                seat.child, seat.order = child, None
        return StepOrder(worker, tuple(turns), tuple(opened))

    def _living(self) -> "_Child":
        with self._starting:
            if self._child.has_ended():
                self._check_starts()
                self._child = self._started()
                logger.warning("the voice's process was started again, as process %d", self._child.pid)
            return self._child

    def _started(self) -> "_Child":
        self._starts.append(time.monotonic())
        return _Child(self._load, self._policy.niceness)

    def _check_starts(self) -> None:
        """Raise Overloaded if the voice was started again too often."""
        policy = self._policy
        if len(self._starts) <= policy.most_starts:
            return
        wait_s = self._starts[0] + policy.starts_within_s - time.monotonic()
        if wait_s > 0:
            raise Overloaded(
                f"the voice's process died {policy.most_starts + 1} times in {policy.starts_within_s:g} s",
                reason="process",
                retry_after_s=wait_s,
            )


@dataclass(frozen=True, slots=True)
class _Whole:
    """Makes a whole backend, there."""

    load: Callable[[], Backend]

    def __call__(self) -> Hosted:
        return process_child.hosted(self.load)


class _Child:
    """One process and its pipes. Steps wait for it; the last that leaves it when it has died buries it.

    Attributes:
        ready: what it said when it had loaded.
        room: as it said last.
    """

    def __init__(self, load: bytes, niceness: int) -> None:
        context = multiprocessing.get_context("spawn")
        theirs_orders, orders = context.Pipe(duplex=False)
        pairs = [context.Pipe(duplex=False) for _ in range(_MOST_WORKERS)]
        answers, theirs = [ours for ours, _ in pairs], [far for _, far in pairs]
        process = context.Process(
            target=process_child.run,
            args=(load, niceness, theirs_orders, theirs),
            name="vivavoce-voice",
            daemon=True,
        )
        self._process, self._orders, self._answers = process, orders, answers
        self._lock = threading.Lock()
        self._steps = 0
        self._has_ended = False
        try:
            process.start()
        finally:
            for far in (theirs_orders, *theirs):
                far.close()
        assert process.pid is not None
        self.pid = process.pid
        # Also where nobody closes the engine: multiprocessing's own clean-up would wait for the child.
        self._bury = util.Finalize(self, _bury, args=(process, orders, answers), exitpriority=1)
        self.ready = self._first_word()
        self.room = self.ready.room

    def has_ended(self) -> bool:
        """Whether no step can be had of it any more."""
        with self._lock:
            if not self._has_ended and not self._steps and not self._process.is_alive():
                self._mourn()
            return self._has_ended

    def step(self, worker: int, order: Callable[[], StepOrder], telling: threading.Lock) -> StepAnswer:
        """Send an order and wait for its answer; raises SynthesisFailed if the process has died.

        telling: held while the order is made and sent, so that orders arrive as they were made.
        """
        with self._told():
            with telling:
                self._orders.send(order())
            answer: StepAnswer = self._answers[worker].recv()
            self.room = answer.room
            return answer

    def close_slot(self, slot: int, telling: threading.Lock) -> None:
        """Send word that a slot is given back; a process that has died needs none."""
        with suppress(SynthesisFailed), self._told(), telling:
            self._orders.send(CloseOrder(slot))

    def end(self) -> None:
        """End it; no step is running."""
        with self._lock:
            self._has_ended = True
            self._bury()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Its pipes are open inside; raises SynthesisFailed if it has died."""
        with self._lock:
            if self._has_ended:
                raise _lost()
            self._steps += 1
        died = False
        try:
            yield
        except (EOFError, OSError):
            died = True
            raise _lost() from None
        finally:
            self._leave(died)

    def _leave(self, died: bool) -> None:
        with self._lock:
            self._steps -= 1
            self._has_ended = self._has_ended or died
            if self._has_ended and not self._steps:
                self._mourn()

    def _mourn(self) -> None:
        self._has_ended = True
        logger.error("the voice's process %d died: %s", self.pid, self._bury())

    def _first_word(self) -> Ready:
        try:
            word: Ready | Fault = self._answers[0].recv()
        except (EOFError, OSError):
            raise BundleError(f"the voice's process died as it started: {self._bury()}") from None
        if isinstance(word, Fault):
            self.end()
            raise word.error()
        for unneeded in self._answers[len(word.workers) :]:
            unneeded.close()
        return word


def _bury(process: SpawnProcess, orders: Connection, answers: Sequence[Connection]) -> str:
    """End a process, which may be dead, and free what is held of it; answers how it ended."""
    orders.close()
    process.join(_END_WITHIN_S)
    if process.is_alive():
        process.kill()
        process.join()
    for connection in answers:
        connection.close()
    code = process.exitcode
    process.close()
    return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"


def _pickled(load: Callable[[], Hosted]) -> bytes:
    try:
        return pickle.dumps(load)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BundleError(f"the voice cannot be loaded in a process of its own: {error}") from None


def _lost() -> SynthesisFailed:
    return SynthesisFailed("the voice's process died")
