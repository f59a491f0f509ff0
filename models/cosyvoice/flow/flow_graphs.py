"""Recorded steps of the flow: the memories of all sessions in one pool of pages, whole steps replayed.

Attention memory grows with a session, but a recorded step can only use the memory it was recorded with. So
all memory is one pool, cut into pages of one block (1 s of speech), and a session is a list of pages:

    page       |0|1|2|3|4|5|6|7|8|           page 0: scratch, for rows that only pad
    voice       . 1 2 . . . . . .            shared by all sessions of the voice, never copied
    session a   . 1 2 . 5 6 . . .            oldest page first; chunks are written to the last ones
    session b   . 1 2 . . . 7 . .

A chunk is one step of the encoder and then one for each Euler step. Rows at different Euler steps share a
step, so that a new session joins at the next one:

    session a   encoder | 0 | 1 | 2 | 3 | 4 | 5 | ...
    session b                    encoder | 0 | 1 | ...          step 3 of a is step 0 of b

One step of either kind is recorded for each number of rows, blocks in a chunk and pages attended to, rows and
pages rounded up to buckets; padding rows write to the scratch page. Kernels read the pages that a row has, so
with them there is one bucket for all usual lengths; the attention of version 2's encoder, in torch, reads the
whole bucket. A last chunk is told by data: its length, and a lookahead of -1.
Contexts of convolutions have one row for each session, and those of the
solver one for each Euler step too. The pages of a session are freed when its handle is
deleted.

The mel is that of ``Flow.step`` except for rounding: the same frames are attended to, under a mask instead of
row by row.

Source: pages and block tables as in nano-vllm@bb823b3e06 engine/block_manager.py and vLLM (arXiv:2309.06180).
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from ...devices.planned_captures import PlannedCapture
from ...devices.torch_devices import to_device
from ...networks.cuda_graphs import (
    CapturedSteps,
    GraphMemoryPool,
    StagingBuffer,
    StepGraph,
    bucket,
    bucket_ranges,
    buckets,
)
from ...networks.state import map_state
from ..config import BLOCK_FRAMES, BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, MEL_BANDS
from .attention_plan import PagePlacement, make_paged_plan
from .flow import Flow, FlowPlans, conditioning
from .flow_memory import FlowMemoryPool
from .page_allocator import PageAllocator
from .policy import CacheForm
from .state import (
    FlowChunk,
    FlowState,
    check_chunk,
    without_memories,
)

_SCRATCH_PAGE = 0
_NO_FUTURE = -1
_MIN_PAGES = 16  # smallest bucket of pages attended to
# Largest bucket of pages, each 1 s of speech, that is planned; a longer sentence records its own.
_MAX_RECORDED_PAGES = 128


@dataclass(slots=True)
class SolvedChunk:
    """A chunk of one session between its Euler steps."""

    x: Tensor  # (T, 80), noise at first, then mel
    conditioned: Tensor  # (T, 240)
    frames: int  # without padding
    solver_step: int = 0  # the next one


@dataclass(eq=False)
class SequenceHandle:
    """The memory of one session."""

    slot: int  # row of the contexts
    pages: list[int]  # from block ``first_block`` on
    frames: int  # mel frames so far
    first_block: int = 0  # above 0 once a bounded window has passed the first pages
    chunk: SolvedChunk | None = None  # begun and not yet finished


@dataclass(eq=False)
class PagedVoice:
    """The memory of a voice's prompt; fields as in ``SequenceHandle``."""

    pages: list[int]
    frames: int
    first_block: int
    contexts: FlowState  # (1, ...), without memories


class _FlowPart(Enum):
    """Kind of a recorded step; its value is the growth from a bucket of rows to the next."""

    ENCODER = 8  # once a chunk
    SOLVER = 4


@dataclass(frozen=True, slots=True)
class _FlowGraphKey:
    """What a step is recorded for."""

    part: "_FlowPart"
    rows: int
    blocks: int  # in the chunk
    pages: int  # attended to


@dataclass(frozen=True, slots=True)
class _EncoderInputs:
    """Inputs of a recorded step of the encoder."""

    ids: Tensor  # (B, T) int64
    future: Tensor  # (B, 3) int64, -1 in a last chunk
    slots: Tensor  # (B,) int64
    places: PagePlacement  # in frames


@dataclass(frozen=True, slots=True)
class _SolverInputs:
    """Inputs of a recorded Euler step."""

    slots: Tensor  # (B,) int64
    solver_steps: Tensor  # (B,) int64
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
        self._memory = FlowMemoryPool(flow, slots + 1, pages + 1)
        self._pages = PageAllocator(pages + 1, "pages")
        self._slots = PageAllocator(slots + 1, "rows of contexts")
        # One memory pool: neither runs while the other does.
        self._steps: CapturedSteps[_FlowGraphKey, _EncoderStep | _SolverStep] = CapturedSteps(
            flow.device, lambda key, pool: _RECORDED[key.part](flow, self._memory, key, pool)
        )

    @property
    def recorded_count(self) -> int:
        """Number of recorded steps."""
        return len(self._steps.keys)

    def defer_captures(
        self, max_blocks: int, plan_later: Callable[[PlannedCapture], None] | None = None
    ) -> list[PlannedCapture]:
        """Plan the captures of chunks of up to ``max_blocks`` blocks, which run without a graph until then.

        plan_later: plans those of other sizes when they are first needed; without it they are captured then.
        """
        if plan_later is not None:
            self._steps.defer_new(lambda key: plan_later(self._defer(key)))
        max_pages = min(self.pages, _MAX_RECORDED_PAGES)
        return [
            self._defer(_FlowGraphKey(part, rows, blocks, pages))
            for pages in buckets(max_pages, self._min_pages)
            for blocks in range(1, max_blocks + 1)
            for part in _FlowPart
            for rows in buckets(self._rows, growth=part.value)
        ]

    def _defer(self, key: _FlowGraphKey) -> PlannedCapture:
        pages = bucket(1, self.pages, self._min_pages)
        is_first = (key.rows, key.blocks, key.pages) == (1, 1, pages)
        name = f"the flow's {key.part.name.lower()} step of {key.rows} rows and {key.blocks} blocks"
        min_rows = {rows: fewest for fewest, rows in bucket_ranges(self._rows, growth=key.part.value)}
        return PlannedCapture(name, min_rows[key.rows], is_first, self._steps.defer(key))

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

    def step(self, chunk: FlowChunk, handles: Sequence[SequenceHandle]) -> Tensor:
        """``Flow.step`` for several sessions: the mel, (B, 80, 2 T). Raises as ``begin`` does."""
        self.begin(chunk, handles)
        while True:
            mels = self.advance(handles)
            finished = [mel for mel in mels if mel is not None]
            if finished:
                return torch.stack(finished)[:, :, : chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID]

    @torch.inference_mode()
    def begin(self, chunk: FlowChunk, handles: Sequence[SequenceHandle]) -> None:
        """Run the encoder for sessions without a chunk; ``advance`` makes the mel.

        chunk: ids on the host, ``prompt_mel`` on the device. Raises ValueError as ``Flow.step`` does, and
        MemoryError if too few pages are free; after an error the step may be tried again.
        """
        check_chunk(chunk, [handle.frames for handle in handles])
        blocks = -(-chunk.ids.shape[1] // BLOCK_IDS)
        for handle in handles:
            self._allocate_for_chunk(handle, blocks)
        step = self._steps.get(self._key(_FlowPart.ENCODER, handles, blocks))
        assert isinstance(step, _EncoderStep)
        for handle, begun in zip(handles, step.run(chunk, handles), strict=True):
            handle.chunk = begun

    @torch.inference_mode()
    def advance(self, handles: Sequence[SequenceHandle]) -> list[Tensor | None]:
        """One Euler step of begun chunks of as many blocks, at any steps; the mels, (80, T), of the finished.

        T is the length of whole blocks: frames behind the end of a last chunk are undefined.
        """
        chunks = [handle.chunk for handle in handles if handle.chunk is not None]
        (length,) = {len(chunk.x) for chunk in chunks}
        step = self._steps.get(self._key(_FlowPart.SOLVER, handles, length // BLOCK_FRAMES))
        assert isinstance(step, _SolverStep)
        step.run(chunks, handles)
        return [self._finished(handle) for handle in handles]

    def _finished(self, handle: SequenceHandle) -> Tensor | None:
        chunk = handle.chunk
        assert chunk is not None
        if chunk.solver_step < self._flow.config.solver_steps:
            return None
        handle.frames += chunk.frames
        handle.chunk = None
        return chunk.x.mT

    def _key(self, part: _FlowPart, handles: Sequence[SequenceHandle], blocks: int) -> _FlowGraphKey:
        max_pages = max(len(handle.pages) for handle in handles)
        return _FlowGraphKey(
            part,
            bucket(len(handles), self._rows, growth=part.value),
            blocks,
            bucket(max_pages, self.pages, self._min_pages),
        )

    def release_pages(self, handle: SequenceHandle) -> None:
        """Free the pages of a session before its handle is deleted. It must not be stepped again."""
        self._pages.release(handle.pages[:])
        handle.pages.clear()
        handle.chunk = None

    def _allocate_for_chunk(self, handle: SequenceHandle, blocks: int) -> None:
        """Allocate the pages of a chunk, and release those that the window has passed."""
        begin = handle.frames // BLOCK_FRAMES
        handle.pages += self._pages.allocate(max(0, begin + blocks - handle.first_block - len(handle.pages)))
        window = self._flow.policy.window_frames
        if window is not None and (unseen := begin - window // BLOCK_FRAMES - handle.first_block) > 0:
            self._pages.release(handle.pages[:unseen])
            del handle.pages[:unseen]
            handle.first_block += unseen


class _EncoderStep:
    """One recorded step of the encoder and its input buffers."""

    def __init__(
        self, flow: Flow, memory: FlowMemoryPool, key: _FlowGraphKey, pool: GraphMemoryPool | None
    ) -> None:
        self._flow, self._memory, self._key = flow, memory, key
        self._staging = StagingBuffer(
            _EncoderInputs(
                _zeros(key.rows, key.blocks * BLOCK_IDS),
                _zeros(key.rows, LOOKAHEAD_IDS),
                _zeros(key.rows),
                _scratch_places(key),
            ),
            flow.device,
        )
        frames = key.blocks * BLOCK_FRAMES
        self._prompt_mel = torch.zeros(key.rows, MEL_BANDS, frames, device=flow.device)
        self._graph = StepGraph(self._compute, flow.device, pool)

    def run(self, chunk: FlowChunk, handles: Sequence[SequenceHandle]) -> list[SolvedChunk]:
        """The begun chunks. Chunk and handles must fit into the shapes of the step."""
        rows, length = chunk.ids.shape
        frames, host = length * FRAMES_PER_SPEECH_ID, self._staging.host
        host.ids[:rows, :length] = chunk.ids
        host.future[:rows] = chunk.future if chunk.future.shape[1] else _NO_FUTURE
        lengths = [FRAMES_PER_SPEECH_ID * ids for ids in chunk.lengths or [length] * rows]
        _write_places(host.slots, host.places, handles, lengths)
        self._prompt_mel[:rows, :, :frames] = chunk.prompt_mel
        self._staging.upload()
        conditioned = self._graph.replay()[:rows].clone()
        noise = self._flow.noise_rows([handle.frames for handle in handles], conditioned.shape[1])
        return [SolvedChunk(*parts) for parts in zip(noise, conditioned, lengths, strict=True)]

    def _compute(self) -> Tensor:
        inputs = self._staging.on_device_tensors
        speaker, encoder = self._memory.read_encoder(inputs.slots)
        chunk = FlowChunk(inputs.ids, inputs.future, self._prompt_mel)
        mu, after = self._flow.encode(chunk, encoder, self._plans(inputs.places))
        self._memory.write_encoder(inputs.slots, speaker, after)
        return conditioning(mu, speaker, self._prompt_mel)

    def _plans(self, places: PagePlacement) -> FlowPlans:
        window, config = self._flow.policy.window_frames, self._flow.config
        solver = make_paged_plan(_both_halves(places), BLOCK_FRAMES, window, is_last=True)
        if config.encoder is None:
            return FlowPlans(solver, None, None)
        id_window = None if window is None else window // FRAMES_PER_SPEECH_ID
        ids = make_paged_plan(_placement_in_ids(places), BLOCK_IDS, id_window, is_last=True)
        return FlowPlans(solver, ids, make_paged_plan(places, BLOCK_FRAMES, window, is_last=True))


class _SolverStep:
    """One recorded Euler step and its input buffers."""

    def __init__(
        self, flow: Flow, memory: FlowMemoryPool, key: _FlowGraphKey, pool: GraphMemoryPool | None
    ) -> None:
        self._flow, self._memory, self._key = flow, memory, key
        inputs = _SolverInputs(_zeros(key.rows), _zeros(key.rows), _scratch_places(key))
        self._staging = StagingBuffer(inputs, flow.device)
        frames = key.blocks * BLOCK_FRAMES
        self._x = torch.zeros(key.rows, frames, MEL_BANDS, device=flow.device)
        self._conditioned = torch.zeros(key.rows, frames, 3 * MEL_BANDS, device=flow.device)
        self._widths = to_device(torch.tensor([dt for _, dt in flow.times]), flow.device)
        self._graph = StepGraph(self._compute, flow.device, pool)

    def run(self, chunks: Sequence[SolvedChunk], handles: Sequence[SequenceHandle]) -> None:
        """Take the next Euler step of each chunk."""
        rows, host = len(chunks), self._staging.host
        host.solver_steps.zero_()
        host.solver_steps[:rows] = torch.tensor([chunk.solver_step for chunk in chunks])
        _write_places(host.slots, host.places, handles, [chunk.frames for chunk in chunks])
        torch.stack([chunk.x for chunk in chunks], out=self._x[:rows])
        torch.stack([chunk.conditioned for chunk in chunks], out=self._conditioned[:rows])
        self._staging.upload()
        for chunk, x in zip(chunks, self._graph.replay()[:rows].clone(), strict=True):
            chunk.x, chunk.solver_step = x, chunk.solver_step + 1

    def _compute(self) -> Tensor:
        inputs, memory, flow = self._staging.on_device_tensors, self._memory, self._flow
        steps = inputs.solver_steps
        plan = make_paged_plan(
            _both_halves(memory.solver_pages(inputs.places, steps)),
            BLOCK_FRAMES,
            flow.policy.window_frames,
            is_last=True,
            heads=flow.config.estimator.heads,
        )
        offsets = flow.require_offsets().index_select(0, steps.repeat_interleave(2))
        widths = self._widths.index_select(0, steps)[:, None, None]
        state = memory.read_solver(inputs.slots, steps)
        x, after = flow.euler_step(
            self._x, self._conditioned, (offsets, widths), state, plan, CacheForm.KEYS_VALUES
        )
        memory.write_solver(inputs.slots, steps, after)
        return x


_RECORDED: Mapping[_FlowPart, type[_EncoderStep] | type[_SolverStep]] = {
    _FlowPart.ENCODER: _EncoderStep,
    _FlowPart.SOLVER: _SolverStep,
}


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def _scratch_places(key: _FlowGraphKey) -> PagePlacement:
    """Places of rows that all write to the scratch page."""
    ends = torch.full((key.rows,), key.blocks * BLOCK_FRAMES)
    pages, written = _zeros(key.rows, key.pages), _zeros(key.rows, key.blocks)
    return PagePlacement(_zeros(key.rows), ends, pages, written, _zeros(key.rows))


def _write_places(
    slots: Tensor, places: PagePlacement, handles: Sequence[SequenceHandle], lengths: Sequence[int]
) -> None:
    """Fill places on the host; rows behind those of the handles pad. lengths: frames of each chunk."""
    for row in range(len(slots)):
        is_used = row < len(handles)
        handle = handles[row] if is_used else SequenceHandle(_SCRATCH_PAGE, [], 0)
        table, written = places.page_table.numpy()[row], places.written_pages.numpy()[row]
        slots[row] = handle.slot
        frames = lengths[row] if is_used else BLOCK_FRAMES * len(written)
        places.begins[row], places.ends[row] = handle.frames, handle.frames + frames
        places.first_frame[row] = handle.first_block * BLOCK_FRAMES
        table[: len(handle.pages)], table[len(handle.pages) :] = handle.pages, _SCRATCH_PAGE
        begin = handle.frames // BLOCK_FRAMES - handle.first_block
        written[:] = handle.pages[begin : begin + len(written)] or _SCRATCH_PAGE


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
