"""Runs the flow for the sentences of a step: as it is, or recorded on a device. What each remembers is here.

    EagerFlowRunner       a sentence keeps its own state, which grows; any chunks, on any device
                    its voice's memory is lent to it, with room behind, or is copied where another has it
    GraphFlowRunner    a sentence has pages of one pool; steps are replayed (``flow_graphs``)

One thread; a seat may be let go of on any.
"""

import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from torch import Tensor

from ...models.cosyvoice.devices import free_bytes, to_device
from ...models.cosyvoice.flow.attention_memory import CacheForm, slot_capacity
from ...models.cosyvoice.flow.encoder import FRAMES_PER_SPEECH_ID
from ...models.cosyvoice.flow.flow import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    FRAMES_PER_S,
    Flow,
    FlowChunk,
    FlowState,
    release_memory_behind,
    state_bytes_per_s,
)
from ...models.cosyvoice.flow.flow_graphs import FlowGraphs, PagedVoice, SequenceHandle

VoiceT = TypeVar("VoiceT")
SequenceT = TypeVar("SequenceT")


class FlowRunner(Protocol[VoiceT, SequenceT]):
    """Steps of a flow for sentences that sit each in a seat."""

    @property
    def memory_ids(self) -> int:
        """Speech ids that there is memory for."""

    def prepare_voice(self, voice: FlowState) -> VoiceT:
        """A voice that has heard its recording, for many sentences."""

    def prepared_voice_ids(self, voice: VoiceT) -> int:
        """Speech ids of memory that a voice takes, beside what sentences are reckoned with."""

    def copied_voice_ids(self, voice_ids: int) -> int:
        """Speech ids of memory that a sentence takes for a voice of so many."""

    def open_sentence(self, voice: VoiceT) -> SequenceT:
        """The beginning of a sentence."""

    def batch_key(self, sequence: SequenceT) -> Hashable:
        """Different for seats that cannot share a step."""

    def step(self, chunk: FlowChunk, sequences: Sequence[SequenceT]) -> Tensor:
        """The mel of a chunk, a row a seat; a step that failed may be tried again. Ids are on the host."""

    def free(self, sequence: SequenceT) -> None:
        """Free what a sentence remembers, whoever still refers to its seat; there is no next step of it."""


class OwnSequence:
    """A sentence's own state. leave: called when its memory is left for a larger one."""

    def __init__(self, state: FlowState) -> None:
        self.state = state
        self.return_memory: Callable[[], object] | None = None

    def replace_state(self, state: FlowState) -> None:
        """After a step."""
        if self.return_memory and _capacity_of(state) != _capacity_of(self.state):
            self.return_memory()
        self.state = state

    def free(self) -> None:
        """No step follows."""
        if self.return_memory:
            self.return_memory()
        del self.state


class PreparedVoice:
    """A voice's state. can_lend_memory: whether there is room behind it, and nobody's sentence in that.

    ids: speech ids that its memory has come to; 0 while it is lent, when they are the sentence's.
    """

    def __init__(self, state: FlowState, *, can_lend_memory: bool) -> None:
        self.state, self.can_lend_memory = state, can_lend_memory
        self.resident_ids = int(state.frames) // FRAMES_PER_SPEECH_ID

    def lend_memory(self) -> OwnSequence:
        """A sentence's state, which is written to behind the voice's frames, until its seat is gone."""
        sequence = OwnSequence(self.state)
        self.can_lend_memory, self.resident_ids = False, 0
        sequence.return_memory = weakref.finalize(sequence, self._reclaim_memory)
        return sequence

    def _reclaim_memory(self) -> None:
        """Keep the pages of one more block: the first chunk of the next sentence is waited for."""
        kept_frames = int(self.state.frames) + BLOCK_FRAMES
        release_memory_behind(self.state, kept_frames)
        self.can_lend_memory, self.resident_ids = True, kept_frames // FRAMES_PER_SPEECH_ID


class EagerFlowRunner:
    """Steps as the flow has them. memory_share: of what is free now, for sentences."""

    def __init__(self, flow: Flow, memory_share: float) -> None:
        self._flow = flow
        self._bytes_per_id = _bytes_per_id(flow)
        self.memory_ids = _ids_that_fit(flow, memory_share)

    def prepare_voice(self, voice: FlowState) -> PreparedVoice:
        """With room behind it, where room costs nothing and a sentence leaves the voice as it was."""
        if sys.platform != "linux" or self._flow.device.type != "cpu" or self._flow.policy.window_frames:
            return PreparedVoice(voice, can_lend_memory=False)
        return PreparedVoice(self._with_reserve(voice), can_lend_memory=True)

    def prepared_voice_ids(self, voice: PreparedVoice) -> int:
        """None while it is lent."""
        return voice.resident_ids

    def copied_voice_ids(self, voice_ids: int) -> int:
        """All of them, of the voice that it was lent too."""
        return voice_ids

    def open_sentence(self, voice: PreparedVoice) -> OwnSequence:
        """The voice's own memory, or a copy."""
        return voice.lend_memory() if voice.can_lend_memory else OwnSequence(self._with_reserve(voice.state))

    def batch_key(self, sequence: OwnSequence) -> Hashable:
        """Memories that are not read as they are stay by themselves."""
        return None if self._flow.can_step_together else id(sequence)

    def step(self, chunk: FlowChunk, sequences: Sequence[OwnSequence]) -> Tensor:
        """One row as a batch of its own, several where they lie; raises MemoryError."""
        self._require_free_memory(len(sequences) * chunk.ids.shape[1])
        ids, future = (to_device(part, self._flow.device) for part in (chunk.ids, chunk.future))
        chunk = replace(chunk, ids=ids, future=future)
        if len(sequences) == 1:
            mel, state = self._flow.step(chunk, sequences[0].state)
            states = [state]
        else:
            mel, states = self._flow.step_together(chunk, [sequence.state for sequence in sequences])
        for sequence, state in zip(sequences, states, strict=True):
            sequence.replace_state(state)
        return mel

    def free(self, sequence: OwnSequence) -> None:
        """Its state is nobody's, or the voice's again."""
        sequence.free()

    def _require_free_memory(self, ids: int) -> None:
        if self._flow.device.type != "cpu":
            return
        # A system that has promised more than it has would end the process, with everybody's sentences.
        required, free = int(ids * self._bytes_per_id), free_bytes(self._flow.device)
        if required > free:
            raise MemoryError(f"out of memory: {required:,} bytes wanted, {free:,} free")

    def _with_reserve(self, voice: FlowState) -> FlowState:
        self._require_free_memory(int(voice.frames) // FRAMES_PER_SPEECH_ID)
        return self._flow.copy_for_utterance(voice, int(voice.frames) + self._flow.policy.reserve_frames)


class GraphFlowRunner:
    """Steps on pages. memory_share: of what is free now, for all pages, where so many can be used.

    rows: in a step at most. sentences: at once. max_hop: ids.
    """

    def __init__(
        self, flow: Flow, memory_share: float, *, rows: int, sentences: int, max_prompt_ids: int, max_hop: int
    ) -> None:
        most_ids = max_prompt_ids + flow.policy.reserve_frames // FRAMES_PER_SPEECH_ID
        max_useful_pages = sentences * -(-most_ids // BLOCK_IDS)
        pages = max(1, min(max_useful_pages, _ids_that_fit(flow, memory_share) // BLOCK_IDS))
        self._graphs = FlowGraphs(flow, rows=rows, slots=sentences, pages=pages)
        self.memory_ids = pages * BLOCK_IDS
        if flow.device.type == "cuda":
            self._graphs.record(-(-max_hop // BLOCK_IDS))

    def prepare_voice(self, voice: FlowState) -> PagedVoice:
        """Copied to pages; raises MemoryError."""
        return self._graphs.store_voice(voice)

    def prepared_voice_ids(self, voice: PagedVoice) -> int:
        """Its pages, which sentences share."""
        return len(voice.pages) * BLOCK_IDS

    def copied_voice_ids(self, voice_ids: int) -> int:
        """None: it reads the voice's."""
        return 0

    def open_sentence(self, voice: PagedVoice) -> SequenceHandle:
        """A row of contexts; raises MemoryError."""
        return self._graphs.open_sequence(voice)

    def batch_key(self, sequence: SequenceHandle) -> Hashable:
        """All may share a step."""
        return None

    def step(self, chunk: FlowChunk, sequences: Sequence[SequenceHandle]) -> Tensor:
        """Replayed; raises MemoryError where pages have run out."""
        return self._graphs.step(chunk, sequences)

    def free(self, sequence: SequenceHandle) -> None:
        """Its pages are nobody's."""
        self._graphs.release_pages(sequence)


def _capacity_of(state: FlowState) -> int:
    return slot_capacity(state.solver[0].cache)


def supports_graphs(flow: Flow) -> bool:
    """Whether it is on a device where that is worth it, and remembers what pages are of."""
    return flow.device.type != "cpu" and flow.policy.cache_form is CacheForm.KEYS_VALUES


def _ids_that_fit(flow: Flow, share: float) -> int:
    return int(share * free_bytes(flow.device) / _bytes_per_id(flow))


def _bytes_per_id(flow: Flow) -> float:
    return state_bytes_per_s(flow.config, flow.policy) * FRAMES_PER_SPEECH_ID / FRAMES_PER_S
