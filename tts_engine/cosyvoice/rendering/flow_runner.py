"""Runs the flow for the sentences of a step and keeps their state.

    EagerFlowRunner    each sentence has a state that grows; any chunk length, any device. A sentence writes
                       behind its voice's own state, or behind a copy while another sentence uses that
    GraphFlowRunner    each sentence has pages of one pool; steps are replayed CUDA graphs (``flow_graphs``),
                       in which sentences at different Euler steps share one

A runner belongs to one thread, but a sequence may be garbage-collected on any thread.
"""

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeGuard, TypeVar

from torch import Tensor

from ....models.cosyvoice.config import BLOCK_IDS, FRAMES_PER_S, FRAMES_PER_SPEECH_ID
from ....models.cosyvoice.flow.flow import Flow, state_bytes_per_s
from ....models.cosyvoice.flow.flow_graphs import FlowGraphs, PagedVoice, SequenceHandle
from ....models.cosyvoice.flow.policy import CacheForm
from ....models.cosyvoice.flow.state import FlowChunk, FlowState
from ....models.cosyvoice.flow.streaming_flow import StreamingFlow
from ....models.devices.planned_captures import PlannedCapture
from ....models.devices.torch_devices import free_bytes, to_device
from .voice_memory import OwnSequence as OwnSequence
from .voice_memory import PreparedVoice as PreparedVoice

# In one step of the engine. A new sentence waits for so many at most; each step costs the host a turn.
_EULER_STEPS = 2
VoiceT = TypeVar("VoiceT")
SequenceT = TypeVar("SequenceT")


class FlowRunner(Protocol[VoiceT, SequenceT]):
    """Steps of the flow. A sequence is the runner's state of one sentence."""

    @property
    def memory_ids(self) -> int:
        """Speech ids for which there is memory."""

    def prepare_voice(self, voice: FlowState) -> VoiceT:
        """Keep a voice's prefilled state for many sentences. Raises MemoryError."""

    def prepared_voice_ids(self, voice: VoiceT) -> int:
        """Speech ids of memory that a prepared voice takes on top of its sentences."""

    def copied_voice_ids(self, voice_ids: int) -> int:
        """Speech ids of memory that each sentence takes for a voice of ``voice_ids`` ids."""

    def open_sentence(self, voice: VoiceT) -> SequenceT:
        """A new sequence behind the voice. Raises MemoryError."""

    def batch_key(self, sequence: SequenceT) -> Hashable:
        """Equal for sequences that can share a step."""

    def step(self, chunk: FlowChunk, sequences: Sequence[SequenceT]) -> Tensor:
        """The mel of a chunk, one row for each sequence. The chunk's ids are on the host.

        Raises MemoryError. A step that raised has changed nothing and can be repeated.
        """

    def free(self, sequence: SequenceT) -> None:
        """Free a sequence's memory, even while references to it exist; it takes no further step."""


class EagerFlowRunner:
    """Runs the flow's own steps. memory_share: of the memory free now, for sentences."""

    def __init__(self, flow: StreamingFlow, memory_share: float) -> None:
        self._flow = flow
        self._bytes_per_id = _bytes_per_id(flow)
        self.memory_ids = _ids_that_fit(flow, memory_share)

    def prepare_voice(self, voice: FlowState) -> PreparedVoice:
        """Reserve room behind the state, if unused pages cost nothing and no voice frame is overwritten."""
        if sys.platform != "linux" or self._flow.device.type != "cpu" or self._flow.policy.window_frames:
            return PreparedVoice(voice, can_lend_memory=False)
        return PreparedVoice(self._with_reserve(voice), can_lend_memory=True)

    def prepared_voice_ids(self, voice: PreparedVoice) -> int:
        """0 while the memory is lent."""
        return voice.resident_ids

    def copied_voice_ids(self, voice_ids: int) -> int:
        """All of them; a sentence that uses the voice's own memory counts it too."""
        return voice_ids

    def open_sentence(self, voice: PreparedVoice) -> OwnSequence:
        """A sequence in the voice's own memory, or in a copy. Raises MemoryError."""
        return voice.lend_memory() if voice.can_lend_memory else OwnSequence(self._with_reserve(voice.state))

    def batch_key(self, sequence: OwnSequence) -> Hashable:
        """One key for all, unless the flow has to copy states to batch them."""
        return None if self._flow.can_step_together else id(sequence)

    def step(self, chunk: FlowChunk, sequences: Sequence[OwnSequence]) -> Tensor:
        """Run one sequence as a batch of one, or several in place. Raises MemoryError."""
        self._require_free_memory(len(sequences) * chunk.ids.shape[1])
        ids, future = (to_device(part, self._flow.device) for part in (chunk.ids, chunk.future))
        chunk = replace(chunk, ids=ids, future=future)
        if len(sequences) == 1:
            mel, state = self._flow.step(chunk, sequences[0].state)
            states = [state]
        else:
            assert isinstance(self._flow, Flow)  # the others do not share a key of batches
            mel, states = self._flow.step_together(chunk, [sequence.state for sequence in sequences])
        for sequence, state in zip(sequences, states, strict=True):
            sequence.replace_state(state)
        return mel

    def free(self, sequence: OwnSequence) -> None:
        """Free the state, or return it to the voice."""
        sequence.free()

    def _require_free_memory(self, ids: int) -> None:
        if self._flow.device.type != "cpu":
            return
        # Linux overcommits: without this check the OOM killer would end the process and all its sessions.
        required, free = int(ids * self._bytes_per_id), free_bytes(self._flow.device)
        if required > free:
            raise MemoryError(f"out of memory: {required:,} bytes needed, {free:,} free")

    def _with_reserve(self, voice: FlowState) -> FlowState:
        self._require_free_memory(int(voice.frames) // FRAMES_PER_SPEECH_ID)
        return self._flow.copy_for_utterance(voice, int(voice.frames) + self._flow.policy.reserve_frames)


class GraphFlowRunner:
    """Replays recorded steps on pages of one pool.

    memory_share: of the memory free now, for pages; fewer if not as many can be used. rows: most sequences in
    a step. sentences: most sequences at once. max_prompt_ids, max_hop: speech ids. reserved_bytes: of the
    memory free now, that are for others.
    """

    def __init__(
        self,
        flow: Flow,
        memory_share: float,
        *,
        rows: int,
        sentences: int,
        max_prompt_ids: int,
        max_hop: int,
        reserved_bytes: int = 0,
    ) -> None:
        max_sentence_ids = max_prompt_ids + flow.policy.reserve_frames // FRAMES_PER_SPEECH_ID
        max_useful_pages = sentences * -(-max_sentence_ids // BLOCK_IDS)
        pages = max(1, min(max_useful_pages, _ids_that_fit(flow, memory_share, reserved_bytes) // BLOCK_IDS))
        self._graphs = FlowGraphs(flow, rows=rows, slots=sentences, pages=pages)
        self.memory_ids = pages * BLOCK_IDS
        self._max_blocks = -(-max_hop // BLOCK_IDS)

    def defer_captures(self, plan_later: Callable[[PlannedCapture], None]) -> list[PlannedCapture]:
        """As ``FlowGraphs``, of chunks up to the longest hop."""
        return self._graphs.defer_captures(self._max_blocks, plan_later)

    def prepare_voice(self, voice: FlowState) -> PagedVoice:
        """Copy the state to pages. Raises MemoryError."""
        return self._graphs.store_voice(voice)

    def prepared_voice_ids(self, voice: PagedVoice) -> int:
        """The ids of its pages, which its sentences share."""
        return len(voice.pages) * BLOCK_IDS

    def copied_voice_ids(self, voice_ids: int) -> int:
        """0: a sentence reads the voice's pages."""
        return 0

    def open_sentence(self, voice: PagedVoice) -> SequenceHandle:
        """Reserve a row for the sequence's contexts. Raises MemoryError."""
        return self._graphs.open_sequence(voice)

    def batch_key(self, sequence: SequenceHandle) -> Hashable:
        """All sequences may share a step."""
        return None

    def step(self, chunk: FlowChunk, sequences: Sequence[SequenceHandle]) -> Tensor:
        """Replay the recorded steps of a chunk. Raises MemoryError if no page is left."""
        return self._graphs.step(chunk, sequences)

    def begin(self, chunk: FlowChunk, sequences: Sequence[SequenceHandle]) -> None:
        """Run the encoder for sequences without a chunk. Raises as ``step``."""
        self._graphs.begin(chunk, sequences)

    def advance(self, sequences: Mapping[int, SequenceHandle]) -> dict[int, Tensor]:
        """A few Euler steps of begun chunks of as many blocks; the mels of the finished, (80, T or more)."""
        finished: dict[int, Tensor] = {}
        for _ in range(_EULER_STEPS):
            left = {row: sequence for row, sequence in sequences.items() if sequence.chunk is not None}
            if not left:
                break
            mels = zip(left, self._graphs.advance([*left.values()]), strict=True)
            finished |= {row: mel for row, mel in mels if mel is not None}
        return finished

    def free(self, sequence: SequenceHandle) -> None:
        """Release the sequence's pages."""
        self._graphs.release_pages(sequence)


def supports_graphs(flow: StreamingFlow) -> TypeGuard[Flow]:
    """Whether the flow can run on pages: on a device other than the CPU, with cached keys and values."""
    has_pages = isinstance(flow, Flow) and flow.policy.cache_form is CacheForm.KEYS_VALUES
    return has_pages and flow.device.type != "cpu"


def _ids_that_fit(flow: StreamingFlow, share: float, reserved_bytes: int = 0) -> int:
    return int(share * max(0, free_bytes(flow.device) - reserved_bytes) / _bytes_per_id(flow))


def _bytes_per_id(flow: StreamingFlow) -> float:
    return state_bytes_per_s(flow.config, flow.policy) * FRAMES_PER_SPEECH_ID / FRAMES_PER_S
