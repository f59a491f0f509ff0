"""Runs the flow for the sentences of a step: as it is, or recorded on a device. What each remembers is here.

    PlainFlow       a sentence keeps its own state, which grows; any chunks, on any device
                    its voice's memory is lent to it, with room behind, or is copied where another has it
    RecordedFlow    a sentence has pages of one pool; steps are replayed (``flow_graphs``)

One thread; a seat may be let go of on any.
"""

import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from torch import Tensor

from ...models.cosyvoice.attention_memory import Keep, room_of
from ...models.cosyvoice.devices import free_bytes, on_device
from ...models.cosyvoice.flow import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    FRAMES_PER_S,
    Flow,
    FlowChunk,
    FlowState,
    release,
    state_bytes_per_s,
)
from ...models.cosyvoice.flow_encoder import RATIO
from ...models.cosyvoice.flow_graphs import FlowGraphs, PagedVoice, Seat

VoiceT = TypeVar("VoiceT")
SeatT = TypeVar("SeatT")


class FlowRunner(Protocol[VoiceT, SeatT]):
    """Steps of a flow for sentences that sit each in a seat."""

    @property
    def memory_ids(self) -> int:
        """Speech ids that there is memory for."""

    def keep(self, voice: FlowState) -> VoiceT:
        """A voice that has heard its recording, for many sentences."""

    def kept_ids(self, voice: VoiceT) -> int:
        """Speech ids of memory that a voice takes, beside what sentences are reckoned with."""

    def copied_ids(self, voice_ids: int) -> int:
        """Speech ids of memory that a sentence takes for a voice of so many."""

    def open(self, voice: VoiceT) -> SeatT:
        """The beginning of a sentence."""

    def alone(self, seat: SeatT) -> Hashable:
        """Different for seats that cannot share a step."""

    def step(self, chunk: FlowChunk, seats: Sequence[SeatT]) -> Tensor:
        """The mel of a chunk, a row a seat; a step that failed may be tried again. Ids are on the host."""

    def vacate(self, seat: SeatT) -> None:
        """Free what a sentence remembers, whoever still refers to its seat; there is no next step of it."""


class OwnSeat:
    """A sentence's own state. leave: called when its memory is left for a larger one."""

    def __init__(self, state: FlowState) -> None:
        self.state = state
        self.leave: Callable[[], object] | None = None

    def go_on(self, state: FlowState) -> None:
        """After a step."""
        if self.leave and _room(state) != _room(self.state):
            self.leave()
        self.state = state

    def vacate(self) -> None:
        """No step follows."""
        if self.leave:
            self.leave()
        del self.state


class KeptVoice:
    """A voice's state. can_be_lent: whether there is room behind it, and nobody's sentence in that.

    ids: speech ids that its memory has come to; 0 while it is lent, when they are the sentence's.
    """

    def __init__(self, state: FlowState, *, can_be_lent: bool) -> None:
        self.state, self.can_be_lent = state, can_be_lent
        self.ids = int(state.frames) // RATIO

    def lend(self) -> OwnSeat:
        """A sentence's state, which is written to behind the voice's frames, until its seat is gone."""
        seat = OwnSeat(self.state)
        self.can_be_lent, self.ids = False, 0
        seat.leave = weakref.finalize(seat, self._take_back)
        return seat

    def _take_back(self) -> None:
        """Keep the pages of one more block: the first chunk of the next sentence is waited for."""
        kept = int(self.state.frames) + BLOCK_FRAMES
        release(self.state, kept)
        self.can_be_lent, self.ids = True, kept // RATIO


class PlainFlow:
    """Steps as the flow has them. memory_share: of what is free now, for sentences."""

    def __init__(self, flow: Flow, memory_share: float) -> None:
        self._flow = flow
        self._bytes_per_id = _bytes_per_id(flow)
        self.memory_ids = _ids_that_fit(flow, memory_share)

    def keep(self, voice: FlowState) -> KeptVoice:
        """With room behind it, where room costs nothing and a sentence leaves the voice as it was."""
        if sys.platform != "linux" or self._flow.device.type != "cpu" or self._flow.policy.window_frames:
            return KeptVoice(voice, can_be_lent=False)
        return KeptVoice(self._with_room(voice), can_be_lent=True)

    def kept_ids(self, voice: KeptVoice) -> int:
        """None while it is lent."""
        return voice.ids

    def copied_ids(self, voice_ids: int) -> int:
        """All of them, of the voice that it was lent too."""
        return voice_ids

    def open(self, voice: KeptVoice) -> OwnSeat:
        """The voice's own memory, or a copy."""
        return voice.lend() if voice.can_be_lent else OwnSeat(self._with_room(voice.state))

    def alone(self, seat: OwnSeat) -> Hashable:
        """Memories that are not read as they are stay by themselves."""
        return None if self._flow.steps_together else id(seat)

    def step(self, chunk: FlowChunk, seats: Sequence[OwnSeat]) -> Tensor:
        """One row as a batch of its own, several where they lie; raises MemoryError."""
        self._require(len(seats) * chunk.ids.shape[1])
        ids, future = (on_device(part, self._flow.device) for part in (chunk.ids, chunk.future))
        chunk = replace(chunk, ids=ids, future=future)
        if len(seats) == 1:
            mel, state = self._flow.step(chunk, seats[0].state)
            states = [state]
        else:
            mel, states = self._flow.step_together(chunk, [seat.state for seat in seats])
        for seat, state in zip(seats, states, strict=True):
            seat.go_on(state)
        return mel

    def vacate(self, seat: OwnSeat) -> None:
        """Its state is nobody's, or the voice's again."""
        seat.vacate()

    def _require(self, ids: int) -> None:
        if self._flow.device.type != "cpu":
            return
        # A system that has promised more than it has would end the process, with everybody's sentences.
        wanted, free = int(ids * self._bytes_per_id), free_bytes(self._flow.device)
        if wanted > free:
            raise MemoryError(f"out of memory: {wanted:,} bytes wanted, {free:,} free")

    def _with_room(self, voice: FlowState) -> FlowState:
        self._require(int(voice.frames) // RATIO)
        return self._flow.open(voice, int(voice.frames) + self._flow.policy.reserve_frames)


class RecordedFlow:
    """Steps on pages. memory_share: of what is free now, for all pages, where so many can be used.

    rows: in a step at most. sentences: at once. longest_hop: ids.
    """

    def __init__(
        self, flow: Flow, memory_share: float, *, rows: int, sentences: int, prompt_ids: int, longest_hop: int
    ) -> None:
        most_ids = prompt_ids + flow.policy.reserve_frames // RATIO
        useful = sentences * -(-most_ids // BLOCK_IDS)
        pages = max(1, min(useful, _ids_that_fit(flow, memory_share) // BLOCK_IDS))
        self._graphs = FlowGraphs(flow, rows=rows, slots=sentences, pages=pages)
        self.memory_ids = pages * BLOCK_IDS
        if flow.device.type == "cuda":
            self._graphs.record(-(-longest_hop // BLOCK_IDS))

    def keep(self, voice: FlowState) -> PagedVoice:
        """Copied to pages; raises MemoryError."""
        return self._graphs.keep(voice)

    def kept_ids(self, voice: PagedVoice) -> int:
        """Its pages, which sentences share."""
        return len(voice.pages) * BLOCK_IDS

    def copied_ids(self, voice_ids: int) -> int:
        """None: it reads the voice's."""
        return 0

    def open(self, voice: PagedVoice) -> Seat:
        """A row of contexts; raises MemoryError."""
        return self._graphs.open(voice)

    def alone(self, seat: Seat) -> Hashable:
        """All may share a step."""
        return None

    def step(self, chunk: FlowChunk, seats: Sequence[Seat]) -> Tensor:
        """Replayed; raises MemoryError where pages have run out."""
        return self._graphs.step(chunk, seats)

    def vacate(self, seat: Seat) -> None:
        """Its pages are nobody's."""
        self._graphs.vacate(seat)


def _room(state: FlowState) -> int:
    return room_of(state.solver[0].kept)


def can_be_recorded(flow: Flow) -> bool:
    """Whether it is on a device where that is worth it, and remembers what pages are of."""
    return flow.device.type != "cpu" and flow.policy.keep is Keep.KEYS_VALUES


def _ids_that_fit(flow: Flow, share: float) -> int:
    return int(share * free_bytes(flow.device) / _bytes_per_id(flow))


def _bytes_per_id(flow: Flow) -> float:
    return state_bytes_per_s(flow.config, flow.policy) * RATIO / FRAMES_PER_S
