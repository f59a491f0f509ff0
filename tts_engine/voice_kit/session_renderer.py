"""Steps the sessions of one bundle through its networks, many sessions at once.

    step    DECODE   a few speech ids for each session whose next chunk needs more of them
            RENDER   samples for each session whose next chunk has all its ids

A step does a small amount of work for each session, so that a cancelled session frees its slot soon. Long
inputs are prefilled alone and in parts, so that sessions which need only their next id wait for one part:

    row 0       p p p p . . p p p p . . d . . d .       p  a part of a long input
    row 1       . . . . d d . . . . d d . d d . d       d  a decode step of all rows that have no long input

One worker runs both kinds of step, or workers run one kind each; a session is in one step at a time, and the
workers share no tensor:

    worker 0    decode a b c |decode a b c |decode   c |
    worker 1        render d     |  render a b    |

A family of networks subclasses ``SessionRenderer`` and has a class of sessions, host state without tensors.
"""

import heapq
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..backends.base import ALL_STAGES, SlotTurn, Stage, Stages, StepResult
from ..segmenter import Segment
from .fault_isolation import FaultIsolation
from .policy import DecodingPolicy

logger = logging.getLogger(__name__)

Samples = NDArray[np.float32]


class SteppedSession(Protocol):
    """One utterance on the host: its sentences, counters and random numbers."""

    @property
    def is_chunk_ready(self) -> bool:
        """Whether the speech ids of the next chunk are complete."""

    def begin(self, segment: Segment, pause_s: float) -> None:
        """Queue a segment with a pause in seconds after it."""

    def empty_result(self) -> StepResult:
        """The result of a step that rendered nothing."""

    def render_result(self, samples: Any) -> StepResult:
        """The result of a step that rendered the next chunk to these samples."""


SessionT = TypeVar("SessionT", bound=SteppedSession)


class SessionRenderer(ABC, Generic[SessionT]):
    """The sessions of one bundle, in slots and rows. Implements ``SlotRenderer``.

    A slot is one session; a row is a session's place in the language model's memory, taken with its first
    step. open_stream: makes the device stream of a worker. render_workers: RENDER steps that may run at the
    same time.
    """

    # Ids that one call of ``_decode_rows`` decodes for a row.
    ids_per_call = 1

    def __init__(
        self,
        policy: DecodingPolicy,
        open_stream: Callable[[], AbstractContextManager[object]],
        render_workers: int = 1,
    ) -> None:
        self.slots = policy.slots
        one_stage_each = (frozenset({Stage.DECODE}), *[frozenset({Stage.RENDER})] * render_workers)
        self.workers: Sequence[Stages] = one_stage_each if policy.overlap else (ALL_STAGES,)
        self._device_streams = [open_stream() for _ in self.workers]
        self._decoding_policy = policy
        self._sessions: dict[int, SessionT] = {}
        self._rows: dict[int, int] = {}  # row by slot, for slots that have been stepped
        self._free_rows = list(range(row_count(policy, render_workers)))
        self._last_slot = 0
        self._max_slots_now = policy.slots  # lowered when memory runs out, until no session is open
        self._device_is_lost = False

    @property
    def open_slots(self) -> int:
        """Number of open slots."""
        return len(self._sessions)

    @property
    def memory_slots(self) -> int:
        """Sessions that memory has room for now, the open ones included; none on a device that failed."""
        return 0 if self._device_is_lost else min(self.slots, self._max_slots_now)

    def open_session(self, session: SessionT) -> int:
        """Open a slot. Its row is taken with its first step, after cancelled sessions have left theirs."""
        self._last_slot += 1
        self._sessions[self._last_slot] = session
        return self._last_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot and discard its state."""
        del self._sessions[slot]
        if slot in self._rows:
            row = self._rows.pop(slot)
            self._clear_row(row)
            heapq.heappush(self._free_rows, row)
        if not self._sessions:
            self._max_slots_now = self.slots

    def max_batch_size(self, stage: Stage) -> int:
        """The policy's number of rows for that stage."""
        policy = self._decoding_policy
        return policy.max_decode_rows if stage is Stage.DECODE else policy.max_render_rows

    def stage(self, slot: int) -> Stage:
        """RENDER if the speech ids of the next chunk are complete, else DECODE."""
        return Stage.RENDER if self._sessions[slot].is_chunk_ready else Stage.DECODE

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Run one step for every turn's session; all of them are in the same stage."""
        with self._device_streams[worker]:
            stage = self.stage(turns[0].slot)
            turns_by_row = {self._row_of(turn.slot): turn for turn in turns}
            sessions = {row: self._sessions[turn.slot] for row, turn in turns_by_row.items()}
            isolation = FaultIsolation(
                {row: turn.slot for row, turn in turns_by_row.items()},  # slot numbers only grow
                free_memory=lambda row: self._free_render_memory(sessions[row]),
            )
            isolation.run_each(turns_by_row, lambda row, turn: _begin(sessions[row], turn))
            rendered: dict[int, StepResult] = {}
            if stage is Stage.RENDER:
                rendered = self._render(turns_by_row, sessions, isolation)
            else:
                self._decode(sessions, isolation)
            results = isolation.run_each(
                sessions, lambda row, session: rendered.get(row) or session.empty_result()
            )
            self._note_faults(isolation)
            return [isolation.failed.get(row) or results[row] for row in turns_by_row]

    def _decode(self, sessions: Mapping[int, SessionT], isolation: FaultIsolation) -> None:
        """Prefill one part of one long input, then decode a few ids for every session without one."""
        needs_prefill = isolation.run_each(sessions, self._begin_decoding)
        first = [row for row, needed in needs_prefill.items() if needed][:1]
        isolation.run_each({row: sessions[row] for row in first}, self._prefill_part)
        for _ in range(0, self._decoding_policy.ids_per_decode_step, self.ids_per_call):
            turns = isolation.run_each(sessions, self._decode_turn)
            asking = {row: turn for row, turn in turns.items() if turn is not None}
            if not asking:
                return
            decoded = isolation.run_batch(asking, self._decode_rows)
            isolation.run_each(decoded, lambda row, made: self._take_decoded(row, sessions[row], made))

    def _render(
        self, turns: Mapping[int, SlotTurn], sessions: Mapping[int, SessionT], isolation: FaultIsolation
    ) -> dict[int, StepResult]:
        """Render one chunk for every session."""
        inputs = isolation.run_each(turns, lambda row, turn: self._begin_rendering(sessions[row], turn))
        samples = self._render_rows(inputs, isolation)
        return isolation.run_each(samples, lambda row, made: sessions[row].render_result(made))

    def _row_of(self, slot: int) -> int:
        if slot not in self._rows:
            # The lowest free row: rows in use stay adjacent, and a step reads them in place.
            self._rows[slot] = heapq.heappop(self._free_rows)
        return self._rows[slot]

    def _note_faults(self, isolation: FaultIsolation) -> None:
        if isolation.out_of_memory:
            self._max_slots_now = max(1, len(self._rows) - len(isolation.failed))
        if isolation.device_is_lost and not self._device_is_lost:
            self._device_is_lost = True
            logger.error("the device failed; no stream is admitted until the server is started again")

    @abstractmethod
    def _begin_decoding(self, row: int, session: SessionT) -> bool:
        """Prepare a session for a DECODE step; whether its next input is long, and to be prefilled alone."""

    @abstractmethod
    def _prefill_part(self, row: int, session: SessionT) -> None:
        """Feed the next part of a session's long input."""

    @abstractmethod
    def _decode_turn(self, row: int, session: SessionT) -> Any:
        """A session's part in a call of ``_decode_rows``; None if it needs no id now, or a prefill first."""

    @abstractmethod
    def _decode_rows(self, turns: Mapping[int, Any]) -> Mapping[int, Any]:
        """Decode the next id of each row; if this raises, no session has changed."""

    @abstractmethod
    def _take_decoded(self, row: int, session: SessionT, decoded: Any) -> None:
        """Give a session what ``_decode_rows`` returned for its row."""

    @abstractmethod
    def _begin_rendering(self, session: SessionT, turn: SlotTurn) -> Any:
        """The input of a session's next chunk."""

    @abstractmethod
    def _render_rows(self, inputs: Mapping[int, Any], isolation: FaultIsolation) -> Mapping[int, Samples]:
        """The samples of each chunk; sessions that fail are left out, and recorded in ``isolation``."""

    @abstractmethod
    def _clear_row(self, row: int) -> None:
        """Empty the memory of a row whose session is closed. May be called during a step of other rows."""

    @abstractmethod
    def _free_render_memory(self, session: SessionT) -> None:
        """Free the memory in which a session renders, because memory ran out."""


def row_count(policy: DecodingPolicy, render_workers: int = 1) -> int:
    """Rows of the language model's memory.

    A cancelled session keeps its row until its RENDER step ends, while a new one decodes in its slot.
    """
    return policy.slots + (render_workers * policy.max_render_rows if policy.overlap else 0)


def _begin(session: SteppedSession, turn: SlotTurn) -> None:
    if turn.segment is not None:
        session.begin(turn.segment, turn.pause_s)
