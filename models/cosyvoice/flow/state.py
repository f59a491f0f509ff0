"""State of the flow between chunks: its policy, its values, how states grow and how they are batched.

    FlowState   frames, speaker
                encoder    v2: contexts and attention memory; v3: one context
                solver     for each Euler step: contexts and attention memory of both guidance halves

Contexts have one size whatever the length of the utterance; attention memory grows with it. Functions only,
no network.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import cast

import torch
from torch import Tensor

from ...networks.state import State, join_states, map_state, tensors
from ..config import BLOCK_FRAMES, BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS
from .attention_memory import AttentionMemory, SeparateBuffers, release_pages_behind, slot_capacity
from .dit import DitState
from .encoder import EncoderState
from .unet import UnetState


@dataclass(frozen=True, slots=True)
class FlowChunk:
    """The input of one step."""

    ids: Tensor  # (B, T) int64 speech ids; negative ones count as 0
    future: Tensor  # (B, 3) the ids after them, or (B, 0) at the end of the utterance
    prompt_mel: Tensor  # (B, 80, 2 T) float32, mel of the voice's prompt within the chunk, 0 elsewhere
    lengths: tuple[int, ...] | None = None  # ids of each row, in a last chunk of rows that end differently


@dataclass(frozen=True, slots=True)
class FlowState:
    """Memory of the flow between chunks. A step may write into it, so that it must not be used again."""

    frames: Tensor  # (B,) int64 on the host, where steps are planned: mel frames so far
    speaker: Tensor  # (B, 80)
    encoder: EncoderState | Tensor  # v3: (B, 2, C), the context of the lookahead layer
    solver: tuple[UnetState | DitState, ...]  # one for each step; (B, 2, ...): conditioned half, free half

    @property
    def capacity(self) -> int:
        """Frames for which there is room."""
        return slot_capacity(self.solver[0].cache)

    def release_behind(self, frames: int) -> None:
        """Return the memory after the first ``frames`` frames to the system. Raises OSError if it refuses."""
        release_memory_behind(self, frames)


def check_chunk(chunk: FlowChunk, begins: Sequence[int]) -> None:
    """Raise ValueError unless rows with ``begins`` frames so far can take the chunk."""
    length, future = chunk.ids.shape[1], chunk.future.shape[1]
    if future not in (0, LOOKAHEAD_IDS):
        raise ValueError(
            f"future has {future} ids; allowed: {LOOKAHEAD_IDS}, or 0 at the end of the utterance"
        )
    if not length or (future and length % BLOCK_IDS):
        raise ValueError(
            f"a chunk has {length} ids; allowed: a multiple of {BLOCK_IDS}, any number at the end"
        )
    if any(begin % BLOCK_FRAMES for begin in begins):
        raise ValueError(f"rows are at frames {list(begins)}: a last chunk has been rendered already")
    if chunk.prompt_mel.shape[2] != length * FRAMES_PER_SPEECH_ID:
        raise ValueError(
            f"prompt_mel has {chunk.prompt_mel.shape[2]} frames; "
            f"allowed: {length * FRAMES_PER_SPEECH_ID} for {length} ids"
        )


def batch_states(states: Sequence[FlowState]) -> FlowState:
    """States of one row each as one state; contexts are copied, memories stay where they are."""
    encoders = [state.encoder for state in states if isinstance(state.encoder, EncoderState)]
    contexts = [state.encoder for state in states if isinstance(state.encoder, Tensor)]
    return FlowState(
        join_states([state.frames for state in states]),
        join_states([state.speaker for state in states]),
        _batch_encoder_states(encoders) if encoders else join_states(contexts),
        tuple(_batch_solver_states(parts) for parts in zip(*(state.solver for state in states), strict=True)),
    )


def _batch_encoder_states(states: Sequence[EncoderState]) -> EncoderState:
    return EncoderState(
        join_states([state.lookahead_context for state in states]),
        join_states([state.upsample_context for state in states]),
        _separate_buffers([state.id_memory for state in states]),
        _separate_buffers([state.frame_memory for state in states]),
    )


def _batch_solver_states(states: Sequence[UnetState | DitState]) -> UnetState | DitState:
    contexts = join_states([replace(state, cache=torch.empty(1, 0)) for state in states])
    return replace(contexts, cache=_separate_buffers([state.cache for state in states]))


def _separate_buffers(memories: Sequence[AttentionMemory]) -> SeparateBuffers:
    return SeparateBuffers(tuple(memory for memory in memories if isinstance(memory, Tensor)))


def state_row(state: State, row: int) -> State:
    """One row of a batched state, as a state of one row: the reverse of ``batch_states``."""
    if isinstance(state, Tensor):
        return cast(State, state[row : row + 1])
    if isinstance(state, SeparateBuffers):
        return cast(State, state.rows[row])
    if isinstance(state, tuple):
        return cast(State, tuple(state_row(part, row) for part in state))
    names = [field.name for field in fields(state)]  # type: ignore[arg-type]
    return replace(state, **{name: state_row(getattr(state, name), row) for name in names})  # type: ignore[type-var]


def with_capacity(state: FlowState, used: int, capacity: int) -> FlowState:
    """A copy of the memories with room for ``capacity`` frames, of which the first ``used`` are copied."""
    encoder = state.encoder
    if isinstance(encoder, EncoderState):
        encoder = replace(
            encoder,
            id_memory=_resized(
                encoder.id_memory, used // FRAMES_PER_SPEECH_ID, capacity // FRAMES_PER_SPEECH_ID
            ),
            frame_memory=_resized(encoder.frame_memory, used, capacity),
        )
    solver = tuple(replace(part, cache=_resized(part.cache, used, capacity)) for part in state.solver)
    return replace(state, encoder=encoder, solver=solver)


def _resized(cache: AttentionMemory, used: int, capacity: int) -> Tensor:
    assert isinstance(cache, Tensor)
    resized = cache.new_empty(*cache.shape[:-2], capacity, cache.shape[-1])
    copied_slots = min(used, cache.shape[-2])
    resized[..., :copied_slots, :] = cache[..., :copied_slots, :]
    return resized


def release_memory_behind(state: FlowState, frames: int) -> None:
    """Return the memory after the first ``frames`` frames to the system. Raises OSError if it refuses."""
    encoder = state.encoder
    if isinstance(encoder, EncoderState):
        _release(encoder.id_memory, frames // FRAMES_PER_SPEECH_ID)
        _release(encoder.frame_memory, frames)
    for part in state.solver:
        _release(part.cache, frames)


def _release(cache: AttentionMemory, slots: int) -> None:
    assert isinstance(cache, Tensor)
    release_pages_behind(cache, slots)


def without_memories(state: FlowState) -> FlowState:
    """The parts of a state whose size does not depend on its length; memories and frame count are emptied."""
    empty = state.speaker.new_empty(len(state.speaker), 0)
    uncounted = replace(state, frames=empty)
    return with_memories(uncounted, [empty] * len(_memories(state)))


def memory_buffers(state: FlowState) -> list[Tensor]:
    """The buffers of a state whose memories are tensors, in the order of ``with_memories``."""
    return [memory for memory in _memories(state) if isinstance(memory, Tensor)]


def _memories(state: FlowState) -> list[AttentionMemory]:
    encoder = state.encoder
    own = [encoder.id_memory, encoder.frame_memory] if isinstance(encoder, EncoderState) else []
    return [*own, *(part.cache for part in state.solver)]


def with_memories(state: FlowState, memories: Sequence[AttentionMemory]) -> FlowState:
    """The state with other memories: of the v2 encoder at 25 and 50 Hz, then of each solver step."""
    encoder = state.encoder
    count = len(memories) - len(state.solver)
    if isinstance(encoder, EncoderState):
        encoder = replace(encoder, id_memory=memories[0], frame_memory=memories[1])
    solver = zip(state.solver, memories[count:], strict=True)
    return replace(state, encoder=encoder, solver=tuple(replace(part, cache=cache) for part, cache in solver))


def packed_voice(state: FlowState) -> dict[str, Tensor]:
    """The tensors of a voice's state by name, to be kept on file; memories in float16.

    The rounding changes a mel by 4e-5, as ``HALF_PRECISION_POLICY`` does.
    """
    contexts = {f"context.{index}": tensor for index, tensor in _contexts(state)}
    return contexts | {
        f"memory.{index}": buffer.to(torch.float16) for index, buffer in enumerate(memory_buffers(state))
    }


def unpacked_voice(stored: Mapping[str, Tensor], like: FlowState, frames: int) -> FlowState:
    """The state of ``packed_voice``, written into the memories of ``like``, a state for that many frames."""
    buffers = memory_buffers(like)
    for index, buffer in enumerate(buffers):
        buffer.copy_(stored[f"memory.{index}"])
    places = count()
    contexts = map_state(lambda tensor: stored.get(f"context.{next(places)}", tensor), without_memories(like))
    return replace(with_memories(contexts, buffers), frames=torch.full_like(like.frames, frames))


def _contexts(state: FlowState) -> Iterator[tuple[int, Tensor]]:
    """The tensors of a state that are neither memories nor counts, and their places among all."""
    return ((index, part) for index, part in enumerate(tensors(without_memories(state))) if part.numel())
