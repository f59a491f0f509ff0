"""Recorded steps of the flow: the memories of all sessions in one pool of pages, whole steps replayed.

Attention memory grows with a session, but a recorded step can only use the memory it was recorded with. So
all memory is one pool, cut into pages of one block (1 s of speech), and a session is a list of pages:

    page       |0|1|2|3|4|5|6|7|8|           page 0: scratch, for rows that only pad
    voice       . 1 2 . . . . . .            shared by all sessions of the voice, never copied
    session a   . 1 2 . 5 6 . . .            oldest page first; chunks are written to the last ones
    session b   . 1 2 . . . 7 . .

A step is the encoder and all Euler steps. One is recorded for each number of rows, blocks in a chunk and
pages attended to, rows and pages rounded up to buckets; padding rows write to the scratch page. Kernels read
the pages that a row has, so with them there is one bucket for all usual lengths; the attention of version 2's
encoder, in torch, reads the whole bucket. A last chunk is told by data: its length, and a lookahead of -1.
Contexts of convolutions have one row for each session. The pages of a session are freed when its handle is
deleted.

The mel is that of ``Flow.step`` except for rounding: the same frames are attended to, under a mask instead of
row by row.

Source: pages and block tables as in nano-vllm@bb823b3e06 engine/block_manager.py and vLLM (arXiv:2309.06180).
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...networks.cuda_graphs import CapturedSteps, GraphMemoryPool, StagingBuffer, StepGraph, bucket, buckets
from ...networks.state import map_state, tensors
from ..config import BLOCK_FRAMES, BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, MEL_BANDS
from .attention_memory import PagedBuffers
from .attention_plan import PagePlacement, make_paged_plan
from .flow import Flow, FlowPlans
from .page_allocator import PageAllocator
from .policy import CacheForm
from .state import (
    FlowChunk,
    FlowState,
    check_chunk,
    memory_buffers,
    with_memories,
    without_memories,
)

_SCRATCH_PAGE = 0
_NO_FUTURE = -1
_MIN_PAGES = 16  # smallest bucket of pages attended to
# Largest bucket of pages, each 1 s of speech, that is recorded in advance; a longer sentence records its own.
_MAX_RECORDED_PAGES = 128


@dataclass(eq=False)
class SequenceHandle:
    """The memory of one session."""

    slot: int  # row of the contexts
    pages: list[int]  # from block ``first_block`` on
    frames: int  # mel frames so far
    first_block: int = 0  # above 0 once a bounded window has passed the first pages


@dataclass(eq=False)
class PagedVoice:
    """The memory of a voice's prompt; fields as in ``SequenceHandle``."""

    pages: list[int]
    frames: int
    first_block: int
    contexts: FlowState  # (1, ...), without memories


@dataclass(frozen=True, slots=True)
class _FlowGraphKey:
    """The shapes that a step is recorded for."""

    rows: int
    blocks: int  # in the chunk
    pages: int  # attended to


@dataclass(frozen=True, slots=True)
class _FlowInputs:
    """Inputs of a recorded step."""

    ids: Tensor  # (B, T) int64
    future: Tensor  # (B, 3) int64, -1 in a last chunk
    slots: Tensor  # (B,) int64
    places: PagePlacement  # in frames


class FlowGraphs:
    """Runs the flow for many sessions on pages of one memory pool.

    Create one for up to ``rows`` rows in a step, ``slots`` sessions and ``pages`` pages of 1 s each. Raises
    ValueError unless the flow's policy keeps keys and values.
    """

    def __init__(self, flow: Flow, *, rows: int, slots: int, pages: int) -> None:
        if flow.policy.cache_form is not CacheForm.KEYS_VALUES:
            raise ValueError(f"cache_form is {flow.policy.cache_form}; pages hold keys and values only")
        self._flow, self._rows, self.pages = flow, rows, pages
        self._min_pages = _MAX_RECORDED_PAGES if flow.has_fused_kernels else _MIN_PAGES
        self._memory = _FlowMemoryPool(flow, slots + 1, pages + 1)
        self._pages = PageAllocator(pages + 1, "pages")
        self._slots = PageAllocator(slots + 1, "rows of contexts")
        self._steps: CapturedSteps[_FlowGraphKey, _RecordedFlowStep] = CapturedSteps(
            flow.device, lambda key, pool: _RecordedFlowStep(flow, self._memory, key, pool)
        )

    @property
    def recorded_count(self) -> int:
        """Number of recorded steps."""
        return len(self._steps.keys)

    @torch.inference_mode()
    def record(self, max_blocks: int) -> None:
        """Record the steps of chunks of up to ``max_blocks`` blocks, so that no session waits for that."""
        for rows in buckets(self._rows):
            for blocks in range(1, max_blocks + 1):
                for pages in buckets(min(self.pages, _MAX_RECORDED_PAGES), self._min_pages):
                    self._steps.get(_FlowGraphKey(rows, blocks, pages))

    @torch.inference_mode()
    def store_voice(self, voice: FlowState) -> PagedVoice:
        """Copy the state of ``Flow.prefill`` into pages. Raises MemoryError if too few are free."""
        frames = int(voice.frames)
        window = self._flow.policy.window_frames or frames
        first = max(0, frames - window) // BLOCK_FRAMES
        pages = self._pages.allocate(frames // BLOCK_FRAMES - first)
        self._memory.write(pages, voice, first)
        paged = PagedVoice(pages, frames, first, without_memories(voice))
        weakref.finalize(paged, self._pages.release, pages)
        return paged

    @torch.inference_mode()
    def open_sequence(self, voice: PagedVoice) -> SequenceHandle:
        """Begin a session with a voice. Raises MemoryError if no row of contexts is free."""
        (slot,) = self._slots.allocate(1)
        handle = SequenceHandle(slot, self._pages.share(list(voice.pages)), voice.frames, voice.first_block)
        weakref.finalize(handle, self._slots.release, (slot,))
        weakref.finalize(handle, self._pages.release, handle.pages)
        self._memory.begin_row(slot, voice.contexts)
        return handle

    @torch.inference_mode()
    def step(self, chunk: FlowChunk, handles: Sequence[SequenceHandle]) -> Tensor:
        """``Flow.step`` for several sessions: the mel, (B, 80, 2 T).

        chunk: ids on the host, ``prompt_mel`` on the device. Raises ValueError as ``Flow.step`` does, and
        MemoryError if too few pages are free; after an error the step may be tried again.
        """
        check_chunk(chunk, [handle.frames for handle in handles])
        blocks = -(-chunk.ids.shape[1] // BLOCK_IDS)
        for handle in handles:
            self._allocate_for_chunk(handle, blocks)
        max_pages = max(len(handle.pages) for handle in handles)
        key = _FlowGraphKey(
            bucket(len(handles), self._rows), blocks, bucket(max_pages, self.pages, self._min_pages)
        )
        mel = self._steps.get(key).run(chunk, handles)
        for handle in handles:
            handle.frames += chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID
        return mel

    def release_pages(self, handle: SequenceHandle) -> None:
        """Free the pages of a session before its handle is deleted. It must not be stepped again."""
        self._pages.release(handle.pages[:])
        handle.pages.clear()

    def _allocate_for_chunk(self, handle: SequenceHandle, blocks: int) -> None:
        """Allocate the pages of a chunk, and release those that the window has passed."""
        begin = handle.frames // BLOCK_FRAMES
        handle.pages += self._pages.allocate(max(0, begin + blocks - handle.first_block - len(handle.pages)))
        window = self._flow.policy.window_frames
        if window is not None and (unseen := begin - window // BLOCK_FRAMES - handle.first_block) > 0:
            self._pages.release(handle.pages[:unseen])
            del handle.pages[:unseen]
            handle.first_block += unseen


class _FlowMemoryPool:
    """The tensors of all sessions: memories as pages, contexts as rows."""

    def __init__(self, flow: Flow, slots: int, pages: int) -> None:
        def zero_speaker(rows: int) -> Tensor:
            return torch.zeros(rows, MEL_BANDS, device=flow.device)

        self._contexts = _ContextPool(
            without_memories(flow.state_with_capacity(zero_speaker(slots), 0, flow.policy))
        )
        self._pages = memory_buffers(flow.state_with_capacity(zero_speaker(pages), BLOCK_FRAMES, flow.policy))
        for pool in self._pages:
            pool.zero_()  # masked slots are multiplied by 0, which NaN would survive

    def write(self, pages: Sequence[int], voice: FlowState, first: int) -> None:
        """Copy the memories of a voice, from block ``first`` on, into pages."""
        for pool, memory in zip(self._pages, memory_buffers(voice), strict=True):
            size = pool.shape[-2]
            for place, page in enumerate(pages, first):
                slot = place * size % memory.shape[-2]  # a ring, if there is a window
                pool[page] = memory[0, ..., slot : slot + size, :]

    def begin_row(self, slot: int, contexts: FlowState) -> None:
        """Copy the contexts of a voice into a row."""
        self._contexts.write(slot, contexts)

    def read_rows(self, slots: Tensor) -> FlowState:
        """The state of some rows: copies of the contexts, the pages themselves."""
        return with_memories(self._contexts.read(slots), [PagedBuffers(pool) for pool in self._pages])

    def write_contexts(self, slots: Tensor, state: FlowState) -> None:
        """Copy the contexts of a state into rows."""
        self._contexts.write(slots, without_memories(state))


class _ContextPool:
    """Contexts of sessions, a row each. All of a row are neighbours, so that a step reads them in two copies.

    whole      speaker | contexts of the encoder
    halves     contexts of the solver, of the conditioned half | of the free half
    """

    def __init__(self, zeros: FlowState) -> None:
        """zeros: contexts of as many rows as there are slots."""
        self._form = zeros
        parts = list(tensors(zeros))
        first_of_solver = len(parts) - len(list(tensors(zeros.solver)))
        self._is_halved = [index >= first_of_solver and part.numel() > 0 for index, part in enumerate(parts)]
        self._whole, self._halves = self._join(zeros)

    def read(self, slots: Tensor) -> FlowState:
        """Copies of rows. slots: (B,) int64."""
        whole, halves = (pool.index_select(0, slots) for pool in (self._whole, self._halves))
        begins = {True: 0, False: 0}
        is_halved = iter(self._is_halved)

        def view(part: Tensor) -> Tensor:
            half = next(is_halved)
            shape = part.shape[2:] if half else part.shape[1:]
            begin = begins[half]
            begins[half] += shape.numel()
            columns = (halves if half else whole)[..., begin : begins[half]]
            return columns.view(*columns.shape[:-1], *shape)

        return map_state(view, self._form)

    def write(self, slots: Tensor | int, contexts: FlowState) -> None:
        """Copy contexts into rows. slots: (B,) int64, or the slot of one row."""
        for pool, rows in zip((self._whole, self._halves), self._join(contexts), strict=True):
            if isinstance(slots, int):
                pool[slots] = rows[0]
            else:
                pool.index_copy_(0, slots, rows)

    def _join(self, contexts: FlowState) -> tuple[Tensor, Tensor]:
        """Contexts side by side: (B, all of them), and (B, 2, all of a half)."""
        parts = list(zip(self._is_halved, tensors(contexts), strict=True))
        return (
            torch.cat([part.flatten(1) for is_halved, part in parts if not is_halved], 1),
            torch.cat([part.flatten(2) for is_halved, part in parts if is_halved], 2),
        )


class _RecordedFlowStep:
    """One recorded step and its input buffers."""

    def __init__(
        self, flow: Flow, memory: _FlowMemoryPool, key: _FlowGraphKey, pool: GraphMemoryPool | None
    ) -> None:
        self._flow, self._memory, self._key = flow, memory, key
        rows, ids, frames = key.rows, key.blocks * BLOCK_IDS, key.blocks * BLOCK_FRAMES
        self._staging = StagingBuffer(_scratch_inputs(key), flow.device)
        self._noise = torch.zeros(rows, frames, MEL_BANDS, device=flow.device)
        self._prompt_mel = torch.zeros(rows, MEL_BANDS, ids * FRAMES_PER_SPEECH_ID, device=flow.device)
        self._graph = StepGraph(self._compute, flow.device, pool)

    def run(self, chunk: FlowChunk, handles: Sequence[SequenceHandle]) -> Tensor:
        """The mel of a chunk, (B, 80, 2 T). Chunk and handles must fit into the shapes of the step."""
        rows, length = chunk.ids.shape
        frames, host = length * FRAMES_PER_SPEECH_ID, self._staging.host
        host.ids[:rows, :length] = chunk.ids
        host.future[:rows] = chunk.future if chunk.future.shape[1] else _NO_FUTURE
        for row in range(self._key.rows):
            handle = handles[row] if row < rows else SequenceHandle(_SCRATCH_PAGE, [], 0)
            host.slots[row] = handle.slot
            ids = chunk.lengths[row] if chunk.lengths and row < rows else length
            self._write_placement(row, handle, ids * FRAMES_PER_SPEECH_ID)
        self._noise[:rows, :frames] = self._flow.noise_rows([handle.frames for handle in handles], frames)
        self._prompt_mel[:rows, :, :frames] = chunk.prompt_mel
        self._staging.upload()
        return self._graph.replay()[:rows, :, :frames].clone()

    def _write_placement(self, row: int, handle: SequenceHandle, frames: int) -> None:
        places = self._staging.host.places
        table, written = places.page_table.numpy()[row], places.written_pages.numpy()[row]
        places.begins[row], places.ends[row] = handle.frames, handle.frames + frames
        places.first_frame[row] = handle.first_block * BLOCK_FRAMES
        table[: len(handle.pages)], table[len(handle.pages) :] = handle.pages, _SCRATCH_PAGE
        begin = handle.frames // BLOCK_FRAMES - handle.first_block
        written[:] = handle.pages[begin : begin + len(written)] or _SCRATCH_PAGE

    def _compute(self) -> Tensor:
        inputs = self._staging.on_device_tensors
        chunk = FlowChunk(inputs.ids, inputs.future, self._prompt_mel)
        state = self._memory.read_rows(inputs.slots)
        plans = self._plans(inputs.places)
        mel, after = self._flow.compute(chunk, self._noise, state, plans, CacheForm.KEYS_VALUES)
        self._memory.write_contexts(inputs.slots, after)
        return mel

    def _plans(self, places: PagePlacement) -> FlowPlans:
        window, heads = self._flow.policy.window_frames, self._flow.config.estimator.heads
        solver = make_paged_plan(_both_halves(places), BLOCK_FRAMES, window, is_last=True, heads=heads)
        if self._flow.config.encoder is None:
            return FlowPlans(solver, None, None)
        id_window = None if window is None else window // FRAMES_PER_SPEECH_ID
        ids = make_paged_plan(_placement_in_ids(places), BLOCK_IDS, id_window, is_last=True)
        return FlowPlans(solver, ids, make_paged_plan(places, BLOCK_FRAMES, window, is_last=True))


def _scratch_inputs(key: _FlowGraphKey) -> _FlowInputs:
    """Inputs whose rows all write to the scratch page."""
    rows = key.rows

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(rows, *shape, dtype=torch.int64)

    ends = torch.full((rows,), key.blocks * BLOCK_FRAMES)
    places = PagePlacement(zeros(), ends, zeros(key.pages), zeros(key.blocks), zeros())
    return _FlowInputs(zeros(key.blocks * BLOCK_IDS), zeros(LOOKAHEAD_IDS), zeros(), places)


def _both_halves(places: PagePlacement) -> PagePlacement:
    """Places of the solver's rows: page p of its folded pool (pages, 2, ...) is 2 p and 2 p + 1."""
    doubled = map_state(lambda part: part.repeat_interleave(2, 0), places)
    half = torch.arange(len(doubled.begins), device=doubled.begins.device)[:, None] % 2
    return replace(
        doubled,
        page_table=2 * doubled.page_table + half,
        written_pages=2 * doubled.written_pages + half,
    )


def _placement_in_ids(places: PagePlacement) -> PagePlacement:
    begins, ends, first = (
        part // FRAMES_PER_SPEECH_ID for part in (places.begins, places.ends, places.first_frame)
    )
    return replace(places, begins=begins, ends=ends, first_frame=first)
