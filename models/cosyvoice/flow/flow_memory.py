"""The memory of all sessions of the recorded steps of the flow: pages, and rows of contexts.

    pages       encoder at 25 Hz | at 50 Hz | solver: Euler step 0 | 1 | ...        (pages, ...) each
    contexts    encoder, a row for each session | solver, a row for each session and Euler step

A page holds one block of a session in all of these pools, at the same number. The solver's pools are one, so
that rows at different Euler steps share a step.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic

import torch
from torch import Tensor

from ...networks.state import State, map_state, tensors
from ..config import BLOCK_FRAMES, MEL_BANDS
from .attention_memory import PagedBuffers
from .attention_plan import PagePlacement
from .dit import DitState
from .encoder import EncoderState
from .flow import Flow
from .state import FlowState, memory_buffers, without_memories
from .unet import UnetState


class FlowMemoryPool:
    """The tensors of all sessions: memories as pages, contexts as rows."""

    def __init__(self, flow: Flow, slots: int, pages: int) -> None:
        zeros = torch.zeros(1, MEL_BANDS, device=flow.device)
        one = flow.state_with_capacity(zeros, BLOCK_FRAMES, flow.policy)
        contexts = without_memories(one)
        self.pages, self.solver_steps = pages, flow.config.solver_steps
        self._encoder_contexts = _RowPool((contexts.speaker, contexts.encoder), slots, 1)
        solver = replace(contexts.solver[0], cache=zeros.new_empty(1, 2, 0))
        self._solver_contexts = _RowPool(solver, slots * self.solver_steps, 2)
        buffers = memory_buffers(one)
        encoder, solver_buffer = buffers[: -self.solver_steps], buffers[-1]
        # Zeros, because masked slots are multiplied by 0, which NaN would survive.
        self._encoder_pages = [buffer.new_zeros(pages, *buffer.shape[1:]) for buffer in encoder]
        self._solver_pages = solver_buffer.new_zeros(self.solver_steps, pages, *solver_buffer.shape[1:])

    def write(self, pages: Sequence[int], voice: FlowState, first: int) -> None:
        """Copy the memories of a voice, from block ``first`` on, into pages."""
        pools = [*self._encoder_pages, *self._solver_pages]
        for pool, memory in zip(pools, memory_buffers(voice), strict=True):
            size = pool.shape[-2]
            for place, page in enumerate(pages, first):
                slot = place * size % memory.shape[-2]  # a ring, if there is a window
                pool[page] = memory[0, ..., slot : slot + size, :]

    def begin_row(self, slot: int, contexts: FlowState) -> None:
        """Copy the contexts of a voice into a row."""
        self._encoder_contexts.write(slice(slot, slot + 1), (contexts.speaker, contexts.encoder))
        first = slot * self.solver_steps
        for row, state in enumerate(contexts.solver, first):
            self._solver_contexts.write(slice(row, row + 1), _without_memory(state))

    def read_encoder(self, slots: Tensor) -> tuple[Tensor, EncoderState | Tensor]:
        """Speakers and encoder states of rows: copies of the contexts, the pages themselves."""
        speaker, encoder = self._encoder_contexts.read(slots)
        if isinstance(encoder, EncoderState):
            ids, frames = (PagedBuffers(pool) for pool in self._encoder_pages)
            encoder = replace(encoder, id_memory=ids, frame_memory=frames)
        return speaker, encoder

    def write_encoder(self, slots: Tensor, speaker: Tensor, encoder: EncoderState | Tensor) -> None:
        """Copy the contexts of encoder states into rows."""
        if isinstance(encoder, EncoderState):
            empty = speaker[:, :0]
            encoder = replace(encoder, id_memory=empty, frame_memory=empty)
        self._encoder_contexts.write(slots, (speaker, encoder))

    def read_solver(self, slots: Tensor, steps: Tensor) -> UnetState | DitState:
        """States of rows before their Euler steps; ``solver_pages`` numbers the pages."""
        state = self._solver_contexts.read(slots * self.solver_steps + steps)
        return replace(state, cache=PagedBuffers(self._solver_pages.flatten(0, 1)))

    def write_solver(self, slots: Tensor, steps: Tensor, state: UnetState | DitState) -> None:
        """Copy the contexts of rows after their Euler steps."""
        self._solver_contexts.write(slots * self.solver_steps + steps, _without_memory(state))

    def solver_pages(self, places: PagePlacement, steps: Tensor) -> PagePlacement:
        """Places in the pages of the Euler steps of rows."""
        first = steps[:, None] * self.pages
        return replace(
            places, page_table=places.page_table + first, written_pages=places.written_pages + first
        )


def _without_memory(state: UnetState | DitState) -> UnetState | DitState:
    contexts = next(tensors(state))
    return replace(state, cache=contexts.new_empty(len(contexts), 2, 0))


class _RowPool(Generic[State]):
    """States as rows of one tensor, zeros at first. A step reads all that a row has in one copy."""

    def __init__(self, form: State, rows: int, leading: int) -> None:
        """form: a state of one row. leading: axes of each of its tensors that stay as they are."""
        self._form, self._leading = form, leading
        one = self._join(form)
        self._rows = one.new_zeros(rows, *one.shape[1:])

    def read(self, rows: Tensor) -> State:
        """Copies of rows. rows: (B,) int64."""
        read, begin = self._rows.index_select(0, rows), 0

        def view(part: Tensor) -> Tensor:
            nonlocal begin
            shape = part.shape[self._leading :]
            columns = read[..., begin : begin + shape.numel()]
            begin += shape.numel()
            return columns.view(*columns.shape[:-1], *shape)

        return map_state(view, self._form)

    def write(self, rows: Tensor | slice, state: State) -> None:
        """Copy states into rows. rows: (B,) int64, or those of a slice."""
        if isinstance(rows, slice):
            self._rows[rows] = self._join(state)
        else:
            self._rows.index_copy_(0, rows, self._join(state))

    def _join(self, state: State) -> Tensor:
        return torch.cat([part.flatten(self._leading) for part in tensors(state)], -1)
