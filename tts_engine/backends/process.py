"""A backend that renders in a child process, so that rendering never holds the parent's interpreter lock.

    parent                                          child (``process_child``)
    front end: voices, segmenters, requests         renderer: weights, slots
    step:       |StepMessage|  ------ pipe ------>  open slots, step
                waits without the GIL  <----------  StepReply: samples, each slot's next stage
    close_slot: |CloseMessage| ------ pipe ------>  close

Only ``step`` waits for the child. A slot is opened in the child with its first step, and the scheduler's
questions are answered from the child's last reply. Steps are counted, and a reply with another number ends
the child: samples reach no session but their own. A child that dies fails the sessions it had begun, and a
thread starts another at once; until that has loaded, slots are refused.
"""

import itertools
import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from ..errors import BundleError, Overloaded, SynthesisFailed, VivavoceError
from ..segmenter import Segmenter
from ..voices.voices import Voices
from .base import Backend, ProcessPolicy, SlotRequest, SlotTurn, Stage, StepResult
from .hosted_backend import BackendFrontEnd, BackendParts, HostedBackend, StaticFrontEnd, host_backend
from .process_child import ErrorMessage, PrepareMessage, StepMessage
from .process_handle import VoiceProcess, process_died

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = 2.0  # the packaged voice loads in 1 to 2 s
_RESTART_RETRY_S = 1.0  # after a start that failed


@dataclass(slots=True)
class _SlotState:
    """A slot in the parent. child: the process in which it is open; None before its first step."""

    prepared_request: object
    stage: Stage
    child: VoiceProcess | None = None


class ProcessBackend:
    """A ``Backend`` over a child process."""

    def __init__(self, parts: BackendParts, policy: ProcessPolicy | None = None) -> None:
        """Start a child that loads the renderer, and make the front end in this process.

        Raises BundleError if the child cannot load, or ``load_renderer`` cannot be pickled.
        """
        self._pickled_load, self._policy = _pickled(parts.load_renderer), policy or ProcessPolicy()
        self._start_times: deque[float] = deque(maxlen=self._policy.max_starts + 1)
        self._restarted = threading.Condition()
        self._closed = threading.Event()
        self._send_lock = threading.Lock()  # messages are sent in the order in which they are made
        self._slots: dict[int, _SlotState] = {}
        self._last_slot = 0
        self._step_numbers = itertools.count(1)
        self._child = self._start_child()
        ready = self._child.ready
        self.workers, self.slots = ready.workers, ready.slots
        self._max_batch_sizes, self._first_stage = ready.max_batch_sizes, ready.first_stage
        with ExitStack() as undo:
            undo.callback(self._child.end)
            self._front_end: BackendFrontEnd = (
                parts.make_front_end()
                if parts.make_front_end
                else StaticFrontEnd(
                    Voices(ready.voices), ready.warm_up_text, varies_pauses=ready.varies_pauses
                )
            )
            undo.pop_all()
        self._supervisor = threading.Thread(target=self._supervise, name="vivavoce-supervisor", daemon=True)
        self._supervisor.start()
        self.voices, self.warm_up_text = self._front_end.voices, self._front_end.warm_up_text

    @classmethod
    def start_backend(
        cls, load: Callable[[], Backend], policy: ProcessPolicy | None = None
    ) -> "ProcessBackend":
        """Start a child with a whole backend whose voices never change. Raises BundleError."""
        return cls(BackendParts(partial(host_backend, load)), policy)

    @property
    def pid(self) -> int:
        """Process id of the current child, which may have ended."""
        return self._child.pid

    @property
    def open_slots(self) -> int:
        """Number of open slots."""
        return len(self._slots)

    @property
    def memory_slots(self) -> int:
        """As the renderer reported after its last step."""
        return self._child.memory_slots

    @property
    def next_preparation(self) -> Stage | None:
        """As the renderer reported after its last step."""
        child = self._child
        return None if child.next_preparation is None or child.has_ended() else child.next_preparation

    def prepare(self, worker: int, stage: Stage) -> None:
        """Prepare a kind of step in the child. Raises SynthesisFailed if it dies."""
        self._child.step(
            worker, lambda: PrepareMessage(next(self._step_numbers), worker, stage), self._send_lock
        )

    def max_batch_size(self, stage: Stage) -> int:
        """As the renderer reported when it had loaded."""
        return self._max_batch_sizes[stage]

    def stage(self, slot: int) -> Stage:
        """As the renderer reported after the slot's last step."""
        return self._slots[slot].stage

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """The front end's segmenter. Raises BadRequest."""
        return self._front_end.segmenter(request)

    def refusal(self) -> Overloaded | None:
        """As ``SeparateProcess``: the child has died, and another has not loaded yet."""
        if not self._child.has_ended():
            return None
        policy, wait_s = self._policy, self._start_wait_s()
        if not wait_s:
            message = "the voice's process died and is being started again"
            return Overloaded(message, reason="process", retry_after_s=_RETRY_AFTER_S)
        return Overloaded(
            f"the voice's process died {policy.max_starts + 1} times in {policy.start_window_s:g} s",
            reason="process",
            retry_after_s=wait_s,
        )

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot. Raises BadRequest, and Overloaded as ``refusal`` has it."""
        prepared_request = self._front_end.prepare_request(request)
        if (refusal := self.refusal()) is not None:
            raise refusal
        self._last_slot += 1
        self._slots[self._last_slot] = _SlotState(prepared_request, self._first_stage)
        return self._last_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot, also in the child if it is open there."""
        slot_state = self._slots.pop(slot)
        if slot_state.child is not None:
            slot_state.child.close_slot(slot, self._send_lock)

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Run a step in the child; sessions that were open in a child that died fail."""
        begun_in = [self._slots[turn.slot].child for turn in turns]
        if all(child is not None and child.has_ended() for child in begun_in):
            return [process_died()] * len(turns)
        child = self._wait_for_child()
        here = [turn for turn in turns if self._slots[turn.slot].child in (None, child)]
        results = dict(
            zip((turn.slot for turn in here), self._step_in_child(child, worker, here), strict=True)
        )
        return [results.get(turn.slot) or process_died() for turn in turns]

    def close(self) -> None:
        """End the child and close every slot."""
        self._closed.set()
        self._child.end()
        self._starting.kill()  # if it has not loaded yet
        self._supervisor.join()
        self._child.end()  # if it had loaded meanwhile
        self._slots.clear()
        self._front_end.close()

    def _step_in_child(
        self, child: VoiceProcess, worker: int, turns: Sequence[SlotTurn]
    ) -> list[StepResult | Exception]:
        if not turns:
            return []
        try:
            reply = child.step(worker, lambda: self._step_message(child, worker, turns), self._send_lock)
        except SynthesisFailed as error:
            return [error] * len(turns)
        for turn, stage in zip(turns, reply.stages, strict=True):
            self._slots[turn.slot].stage = stage
        return [
            result.to_exception() if isinstance(result, ErrorMessage) else result for result in reply.results
        ]

    def _step_message(self, child: VoiceProcess, worker: int, turns: Sequence[SlotTurn]) -> StepMessage:
        opened = []
        for turn in turns:
            slot_state = self._slots[turn.slot]
            if slot_state.child is None:
                opened.append((turn.slot, slot_state.prepared_request))
                slot_state.child, slot_state.prepared_request = child, None
        return StepMessage(next(self._step_numbers), worker, tuple(turns), tuple(opened))

    def _wait_for_child(self) -> VoiceProcess:
        """The child, or the one that replaces a dead one soon; a dead one after ``max_restart_wait_s``."""
        if self._child.has_ended():
            with self._restarted:
                self._restarted.wait_for(
                    lambda: not self._child.has_ended() or self._closed.is_set(),
                    self._policy.max_restart_wait_s,
                )
        return self._child

    def _supervise(self) -> None:
        """Start another child whenever one dies, until the backend is closed or the program ends."""
        while self._child.wait_for_death():
            child = self._start_again()
            if child is None:
                return
            logger.warning("the voice's process was started again, as process %d", child.pid)
            with self._restarted:
                self._child = child
                self._restarted.notify_all()

    def _start_again(self) -> VoiceProcess | None:
        """Start another child as soon as it may be; None if the backend is closed meanwhile."""
        while not self._closed.wait(self._start_wait_s()):
            try:
                return self._start_child()
            except (VivavoceError, OSError) as error:
                logger.error("the voice's process was not started again: %s", error)
            self._closed.wait(_RESTART_RETRY_S)
        return None

    def _start_child(self) -> VoiceProcess:
        self._start_times.append(time.monotonic())
        child = self._starting = VoiceProcess(self._pickled_load, self._policy.niceness)
        if self._closed.is_set():
            child.kill()
        child.wait_ready()
        return child

    def _start_wait_s(self) -> float:
        """Seconds until the child may be started again, if it was too often within the window."""
        policy, starts = self._policy, tuple(self._start_times)
        if len(starts) <= policy.max_starts:
            return 0.0
        return max(0.0, starts[0] + policy.start_window_s - time.monotonic())


def _pickled(load: Callable[[], HostedBackend]) -> bytes:
    try:
        return pickle.dumps(load)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BundleError(f"the voice cannot be loaded in a process of its own: {error}") from None
