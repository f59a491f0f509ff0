"""The flow for a device: all sessions' memories in pages of one place, and whole steps recorded and replayed.

What a session remembers of the flow grows with it, and a recorded step takes no other memory than its own. So
memory is one pool for all, cut into pages of a block, 1 s of speech, and a session is a list of pages:

    pool       |0|1|2|3|4|5|6|7|8|           0: scratch, of rows that only pad
    voice       . 1 2 . . . . . .            read by everyone who speaks with it, copied for nobody
    session a   . 1 2 . 5 6 . . .            a table of pages, oldest first; a chunk goes to its last ones
    session b   . 1 2 . . . 7 . .

A step is encoder and all Euler steps, for so many rows, blocks of a chunk and pages attended to, each rounded
up; convolution contexts have a row a session. Rows that only pad write to the scratch. What a session took is
free once nobody refers to its seat.

The mel is that of ``Flow.step``, to rounding: the same frames are attended to, under a mask and not by rows.

Source: pages and block tables as in nano-vllm@bb823b3e06 engine/block_manager.py and vLLM (arXiv:2309.06180).
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..cuda_graphs import GraphMemoryPool, StagingBuffer, StepGraph, bucket, buckets, new_graph_pool
from ..state import map_state, tensors
from .attention_memory import AttentionMemory, CacheForm, PagedBuffers, PagePlacement, make_paged_plan
from .encoder import FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, EncoderState
from .flow import BLOCK_FRAMES, BLOCK_IDS, MEL_BANDS, Flow, FlowChunk, FlowPlans, FlowState, check_chunk
from .page_allocator import PageAllocator

_SCRATCH_PAGE = 0
_MIN_PAGES = 8


@dataclass(eq=False)
class SequenceHandle:
    """A session's: its row of contexts, its pages from block ``first`` on, and the frames behind it."""

    slot: int
    pages: list[int]
    frames: int
    first_block: int = 0


@dataclass(eq=False)
class PagedVoice:
    """A voice's prompt: pages as of a seat. contexts: (1, ...), without memories."""

    pages: list[int]
    frames: int
    first_block: int
    contexts: FlowState


@dataclass(frozen=True, slots=True)
class _FlowGraphKey:
    """What a step is recorded for. pages: attended to. is_last: chunks without a future."""

    rows: int
    blocks: int
    pages: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class _FlowInputs:
    """ids: (B, T) int64. future: (B, 3 or 0) int64. slots: (B,) int64. places: in frames."""

    ids: Tensor
    future: Tensor
    slots: Tensor
    places: PagePlacement


class FlowGraphs:
    """Steps of a flow on pages. rows: in a step at most. slots: sessions. pages: of 1 s each.

    The flow's policy keeps keys and values.
    """

    def __init__(self, flow: Flow, *, rows: int, slots: int, pages: int) -> None:
        if flow.policy.cache_form is not CacheForm.KEYS_VALUES:
            raise ValueError(f"cache_form is {flow.policy.cache_form}; pages hold keys and values only")
        self._flow, self._rows, self.pages = flow, rows, pages
        self._memory = _FlowMemoryPool(flow, slots + 1, pages + 1)
        self._pages, self._slots = (
            PageAllocator(pages + 1, "pages"),
            PageAllocator(slots + 1, "rows of contexts"),
        )
        self._steps: dict[_FlowGraphKey, _RecordedFlowStep] = {}
        self._pool = new_graph_pool(flow.device)

    @property
    def recorded(self) -> int:
        """Steps that there are."""
        return len(self._steps)

    @property
    def free_pages(self) -> int:
        """Pages that are nobody's."""
        return self._pages.free

    @torch.inference_mode()
    def record(self, max_blocks: int) -> None:
        """Record the steps of chunks up to that long, so that no session waits for it later."""
        for rows in buckets(self._rows):
            for blocks in range(1, max_blocks + 1):
                for pages in buckets(self.pages, _MIN_PAGES):
                    for is_last in (False, True):
                        self._recorded_step(_FlowGraphKey(rows, blocks, pages, is_last))

    @torch.inference_mode()
    def store_voice(self, voice: FlowState) -> PagedVoice:
        """A prompt that was heard, as ``Flow.prefill`` gives it, in pages; raises MemoryError."""
        frames = int(voice.frames)
        window = self._flow.policy.window_frames or frames
        first = max(0, frames - window) // BLOCK_FRAMES
        pages = self._pages.allocate(frames // BLOCK_FRAMES - first)
        self._memory.write(pages, voice, first)
        cache = PagedVoice(pages, frames, first, without_memories(voice))
        weakref.finalize(cache, self._pages.release, pages)
        return cache

    @torch.inference_mode()
    def open_sequence(self, voice: PagedVoice) -> SequenceHandle:
        """The beginning of a session; raises MemoryError."""
        (slot,) = self._slots.allocate(1)
        handle = SequenceHandle(slot, self._pages.share(list(voice.pages)), voice.frames, voice.first_block)
        weakref.finalize(handle, self._slots.release, (slot,))
        weakref.finalize(handle, self._pages.release, handle.pages)
        self._memory.begin_row(slot, voice.contexts)
        return handle

    @torch.inference_mode()
    def step(self, chunk: FlowChunk, handles: Sequence[SequenceHandle]) -> Tensor:
        """``Flow.step`` for sessions: the mel, (B, 80, 2 T).

        chunk: ids on the host, ``prompt_mel`` on the device. Raises ValueError as there, and MemoryError
        where there are no pages left. A step that failed may be tried again.
        """
        check_chunk(chunk, [handle.frames for handle in handles])
        blocks = -(-chunk.ids.shape[1] // BLOCK_IDS)
        for handle in handles:
            self._allocate_for_chunk(handle, blocks)
        max_pages = max(len(handle.pages) for handle in handles)
        is_last = not chunk.future.shape[1]
        key = _FlowGraphKey(
            bucket(len(handles), self._rows), blocks, bucket(max_pages, self.pages, _MIN_PAGES), is_last
        )
        mel = self._recorded_step(key).run(chunk, handles)
        for handle in handles:
            handle.frames += chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID
        return mel

    def release_pages(self, handle: SequenceHandle) -> None:
        """Free the pages of a seat that is not stepped again, whoever still refers to it."""
        self._pages.release(handle.pages[:])
        handle.pages.clear()

    def _allocate_for_chunk(self, handle: SequenceHandle, blocks: int) -> None:
        begin = handle.frames // BLOCK_FRAMES
        handle.pages += self._pages.allocate(max(0, begin + blocks - handle.first_block - len(handle.pages)))
        window = self._flow.policy.window_frames
        if window is not None and (unseen := begin - window // BLOCK_FRAMES - handle.first_block) > 0:
            self._pages.release(handle.pages[:unseen])
            del handle.pages[:unseen]
            handle.first_block += unseen

    def _recorded_step(self, key: _FlowGraphKey) -> "_RecordedFlowStep":
        if key not in self._steps:
            self._steps[key] = _RecordedFlowStep(self._flow, self._memory, key, self._pool)
        return self._steps[key]


class _FlowMemoryPool:
    """The tensors: memories as pages, contexts as rows."""

    def __init__(self, flow: Flow, slots: int, pages: int) -> None:
        def zero_speaker(rows: int) -> Tensor:
            return torch.zeros(rows, MEL_BANDS, device=flow.device)

        self._contexts = without_memories(flow.state_with_capacity(zero_speaker(slots), 0, flow.policy))
        self._pages = _buffers(flow.state_with_capacity(zero_speaker(pages), BLOCK_FRAMES, flow.policy))
        for pool in self._pages:
            pool.zero_()  # what is masked is still multiplied by nought

    def write(self, pages: Sequence[int], voice: FlowState, first: int) -> None:
        """Copy the blocks of a voice's memories from ``first`` on."""
        for pool, memory in zip(self._pages, _buffers(voice), strict=True):
            size = pool.shape[-2]
            for place, page in enumerate(pages, first):
                slot = place * size % memory.shape[-2]  # a ring, if there is a window
                pool[page] = memory[0, ..., slot : slot + size, :]

    def begin_row(self, slot: int, contexts: FlowState) -> None:
        """Begin a row with a voice's contexts."""
        for pool, row in zip(tensors(self._contexts), tensors(contexts), strict=True):
            pool[slot] = row[0]

    def read_rows(self, slots: Tensor) -> FlowState:
        """The state of some rows: contexts copied, memories as they are."""
        contexts = map_state(lambda pool: pool.index_select(0, slots), self._contexts)
        return _with_memories(contexts, [PagedBuffers(pool) for pool in self._pages])

    def write_contexts(self, slots: Tensor, state: FlowState) -> None:
        """Take the contexts of a state over."""
        for pool, rows in zip(tensors(self._contexts), tensors(without_memories(state)), strict=True):
            pool.index_copy_(0, slots, rows)


class _RecordedFlowStep:
    """One recorded step, and its inputs."""

    def __init__(
        self, flow: Flow, memory: _FlowMemoryPool, key: _FlowGraphKey, pool: GraphMemoryPool
    ) -> None:
        self._flow, self._memory, self._extent = flow, memory, key
        rows, ids, frames = key.rows, key.blocks * BLOCK_IDS, key.blocks * BLOCK_FRAMES
        self._staging = StagingBuffer(_scratch_inputs(key), flow.device)
        self._noise = torch.zeros(rows, frames, MEL_BANDS, device=flow.device)
        self._prompt_mel = torch.zeros(rows, MEL_BANDS, ids * FRAMES_PER_SPEECH_ID, device=flow.device)
        self._graph = StepGraph(self._compute, flow.device, pool)

    def run(self, chunk: FlowChunk, handles: Sequence[SequenceHandle]) -> Tensor:
        """The mel of a chunk that is no longer than the step, for no more seats."""
        rows, length = chunk.ids.shape
        frames, host = length * FRAMES_PER_SPEECH_ID, self._staging.host
        host.ids[:rows, :length] = chunk.ids
        host.future[:rows] = chunk.future
        for row in range(self._extent.rows):
            handle = handles[row] if row < rows else SequenceHandle(_SCRATCH_PAGE, [], 0)
            host.slots[row] = handle.slot
            spoken = (chunk.lengths[row] if chunk.lengths else length) if row < rows else length
            self._write_placement(row, handle, spoken * FRAMES_PER_SPEECH_ID)
        self._noise[:rows, :frames] = self._flow.noise_rows([handle.frames for handle in handles], frames)
        self._prompt_mel[:rows, :, :frames] = chunk.prompt_mel
        self._staging.upload()
        return self._graph.replay()[:rows, :, :frames].clone()

    def _write_placement(self, row: int, handle: SequenceHandle, frames: int) -> None:
        places = self._staging.host.places
        table, written = places.table.numpy()[row], places.written.numpy()[row]
        places.begins[row], places.ends[row] = handle.frames, handle.frames + frames
        places.first[row] = handle.first_block * BLOCK_FRAMES
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
        window, is_last = self._flow.policy.window_frames, self._extent.is_last
        solver = make_paged_plan(_both_halves(places), BLOCK_FRAMES, window, is_last=is_last)
        if self._flow.config.encoder is None:
            return FlowPlans(solver, None, None)
        in_ids = None if window is None else window // FRAMES_PER_SPEECH_ID
        ids = make_paged_plan(_placement_in_ids(places), BLOCK_IDS, in_ids, is_last=is_last)
        return FlowPlans(solver, ids, make_paged_plan(places, BLOCK_FRAMES, window, is_last=is_last))


def _scratch_inputs(key: _FlowGraphKey) -> _FlowInputs:
    """Inputs that go to the scratch."""
    rows = key.rows

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(rows, *shape, dtype=torch.int64)

    ends = torch.full((rows,), key.blocks * BLOCK_FRAMES)
    places = PagePlacement(zeros(), ends, zeros(key.pages), zeros(key.blocks), zeros())
    return _FlowInputs(
        zeros(key.blocks * BLOCK_IDS), zeros(0 if key.is_last else LOOKAHEAD_IDS), zeros(), places
    )


def _both_halves(places: PagePlacement) -> PagePlacement:
    """Rows as the solver has them: a page of a pool (pages, 2, ...) that is folded is two."""
    doubled = map_state(lambda part: part.repeat_interleave(2, 0), places)
    half = torch.arange(len(doubled.begins), device=doubled.begins.device)[:, None] % 2
    return replace(doubled, table=2 * doubled.table + half, written=2 * doubled.written + half)


def _placement_in_ids(places: PagePlacement) -> PagePlacement:
    begins, ends, first = (
        part // FRAMES_PER_SPEECH_ID for part in (places.begins, places.ends, places.first)
    )
    return replace(places, begins=begins, ends=ends, first=first)


def without_memories(state: FlowState) -> FlowState:
    """A state without its memories and its count: what of it is the same size however long it is."""
    nothing = state.speaker.new_empty(len(state.speaker), 0)
    counted = replace(state, frames=nothing)
    return _with_memories(counted, [nothing] * len(_memories(state)))


def _memories(state: FlowState) -> list[AttentionMemory]:
    encoder = state.encoder
    own = [encoder.ids, encoder.frames] if isinstance(encoder, EncoderState) else []
    return [*own, *(part.cache for part in state.solver)]


def _buffers(state: FlowState) -> list[Tensor]:
    return [memory for memory in _memories(state) if isinstance(memory, Tensor)]


def _with_memories(state: FlowState, memories: Sequence[AttentionMemory]) -> FlowState:
    encoder = state.encoder
    count = len(memories) - len(state.solver)
    if isinstance(encoder, EncoderState):
        encoder = replace(encoder, ids=memories[0], frames=memories[1])
    solver = zip(state.solver, memories[count:], strict=True)
    return replace(state, encoder=encoder, solver=tuple(replace(part, cache=cache) for part, cache in solver))
