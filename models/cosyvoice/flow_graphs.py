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
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .attention_memory import Keep, Memory, PagePlaces, Pages, plan_pages
from .flow import BLOCK_FRAMES, BLOCK_IDS, MEL, Flow, FlowChunk, FlowPlans, FlowState, check_chunk
from .flow_encoder import LOOKAHEAD, RATIO, EncoderState
from .state import map_state, tensors
from .step_graph import Pool, StepGraph, Tray, bucket, buckets, new_pool

_SCRATCH = 0
_LEAST_PAGES = 8


class Ledger:
    """Which places of a pool are taken; the first is nobody's. Places may have several users."""

    def __init__(self, count: int, what: str) -> None:
        self._free = deque(range(1, count))
        self._count, self._what = count - 1, what
        self._users: Counter[int] = Counter()
        self._left: deque[Iterable[int]] = deque()

    @property
    def free(self) -> int:
        """Places to be had."""
        self._settle()
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """So many places that nobody uses; raises MemoryError, with nothing taken."""
        self._settle()
        if count > len(self._free):
            raise MemoryError(
                f"out of memory: {count} of {self._count} {self._what} wanted, {self.free} free"
            )
        return self.share([self._free.popleft() for _ in range(count)])

    def share(self, places: list[int]) -> list[int]:
        """Use places that another user has."""
        self._users.update(places)
        return places

    def leave(self, places: Iterable[int]) -> None:
        """Use them no more; from any thread, and looked at with the next ``take``."""
        self._left.append(places)

    def _settle(self) -> None:
        while self._left:
            for place in self._left.popleft():
                self._users[place] -= 1
                if not self._users[place]:
                    self._free.append(place)


@dataclass(eq=False)
class Seat:
    """A session's: its row of contexts, its pages from block ``first`` on, and the frames behind it."""

    slot: int
    pages: list[int]
    frames: int
    first: int = 0


@dataclass(eq=False)
class PagedVoice:
    """A voice's prompt: pages as of a seat. contexts: (1, ...), without memories."""

    pages: list[int]
    frames: int
    first: int
    contexts: FlowState


@dataclass(frozen=True, slots=True)
class _Extent:
    """What a step is recorded for. pages: attended to. is_last: chunks without a future."""

    rows: int
    blocks: int
    pages: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class _Inputs:
    """ids: (B, T) int64. future: (B, 3 or 0) int64. slots: (B,) int64. places: in frames."""

    ids: Tensor
    future: Tensor
    slots: Tensor
    places: PagePlaces


class FlowGraphs:
    """Steps of a flow on pages. rows: in a step at most. slots: sessions. pages: of 1 s each.

    The flow's policy keeps keys and values.
    """

    def __init__(self, flow: Flow, *, rows: int, slots: int, pages: int) -> None:
        if flow.policy.keep is not Keep.KEYS_VALUES:
            raise ValueError(f"keep is {flow.policy.keep}; pages are of keys and values")
        self._flow, self._rows, self.pages = flow, rows, pages
        self._memory = _Memory(flow, slots + 1, pages + 1)
        self._taken, self._seated = Ledger(pages + 1, "pages"), Ledger(slots + 1, "rows of contexts")
        self._steps: dict[_Extent, _Step] = {}
        self._pool = new_pool(flow.device)

    @property
    def recorded(self) -> int:
        """Steps that there are."""
        return len(self._steps)

    @property
    def free_pages(self) -> int:
        """Pages that are nobody's."""
        return self._taken.free

    @torch.inference_mode()
    def record(self, most_blocks: int) -> None:
        """Record the steps of chunks up to that long, so that no session waits for it later."""
        for rows in buckets(self._rows):
            for blocks in range(1, most_blocks + 1):
                for pages in buckets(self.pages, _LEAST_PAGES):
                    for is_last in (False, True):
                        self._step(_Extent(rows, blocks, pages, is_last))

    @torch.inference_mode()
    def keep(self, voice: FlowState) -> PagedVoice:
        """A prompt that was heard, as ``Flow.prefill`` gives it, in pages; raises MemoryError."""
        frames = int(voice.frames)
        window = self._flow.policy.window_frames or frames
        first = max(0, frames - window) // BLOCK_FRAMES
        pages = self._taken.take(frames // BLOCK_FRAMES - first)
        self._memory.write(pages, voice, first)
        kept = PagedVoice(pages, frames, first, bare(voice))
        weakref.finalize(kept, self._taken.leave, pages)
        return kept

    @torch.inference_mode()
    def open(self, voice: PagedVoice) -> Seat:
        """The beginning of a session; raises MemoryError."""
        (slot,) = self._seated.take(1)
        seat = Seat(slot, self._taken.share(list(voice.pages)), voice.frames, voice.first)
        weakref.finalize(seat, self._seated.leave, (slot,))
        weakref.finalize(seat, self._taken.leave, seat.pages)
        self._memory.seat(slot, voice.contexts)
        return seat

    @torch.inference_mode()
    def step(self, chunk: FlowChunk, seats: Sequence[Seat]) -> Tensor:
        """``Flow.step`` for sessions: the mel, (B, 80, 2 T).

        chunk: ids on the host, ``prompt_mel`` on the device. Raises ValueError as there, and MemoryError
        where there are no pages left. A step that failed may be tried again.
        """
        check_chunk(chunk, [seat.frames for seat in seats])
        blocks = -(-chunk.ids.shape[1] // BLOCK_IDS)
        for seat in seats:
            self._make_room(seat, blocks)
        most = max(len(seat.pages) for seat in seats)
        is_last = not chunk.future.shape[1]
        extent = _Extent(
            bucket(len(seats), self._rows), blocks, bucket(most, self.pages, _LEAST_PAGES), is_last
        )
        mel = self._step(extent).run(chunk, seats)
        for seat in seats:
            seat.frames += chunk.ids.shape[1] * RATIO
        return mel

    def vacate(self, seat: Seat) -> None:
        """Free the pages of a seat that is not stepped again, whoever still refers to it."""
        self._taken.leave(seat.pages[:])
        seat.pages.clear()

    def _make_room(self, seat: Seat, blocks: int) -> None:
        begin = seat.frames // BLOCK_FRAMES
        seat.pages += self._taken.take(max(0, begin + blocks - seat.first - len(seat.pages)))
        window = self._flow.policy.window_frames
        if window is not None and (unseen := begin - window // BLOCK_FRAMES - seat.first) > 0:
            self._taken.leave(seat.pages[:unseen])
            del seat.pages[:unseen]
            seat.first += unseen

    def _step(self, extent: _Extent) -> "_Step":
        if extent not in self._steps:
            self._steps[extent] = _Step(self._flow, self._memory, extent, self._pool)
        return self._steps[extent]


class _Memory:
    """The tensors: memories as pages, contexts as rows."""

    def __init__(self, flow: Flow, slots: int, pages: int) -> None:
        def nobody(rows: int) -> Tensor:
            return torch.zeros(rows, MEL, device=flow.device)

        self._contexts = bare(flow.state_with_room(nobody(slots), 0, flow.policy))
        self._pages = _buffers(flow.state_with_room(nobody(pages), BLOCK_FRAMES, flow.policy))
        for pool in self._pages:
            pool.zero_()  # what is masked is still multiplied by nought

    def write(self, pages: Sequence[int], voice: FlowState, first: int) -> None:
        """Copy the blocks of a voice's memories from ``first`` on."""
        for pool, memory in zip(self._pages, _buffers(voice), strict=True):
            size = pool.shape[-2]
            for place, page in enumerate(pages, first):
                slot = place * size % memory.shape[-2]  # a ring, if there is a window
                pool[page] = memory[0, ..., slot : slot + size, :]

    def seat(self, slot: int, contexts: FlowState) -> None:
        """Begin a row with a voice's contexts."""
        for pool, row in zip(tensors(self._contexts), tensors(contexts), strict=True):
            pool[slot] = row[0]

    def rows(self, slots: Tensor) -> FlowState:
        """The state of some rows: contexts copied, memories as they are."""
        contexts = map_state(lambda pool: pool.index_select(0, slots), self._contexts)
        return _with_memories(contexts, [Pages(pool) for pool in self._pages])

    def write_rows(self, slots: Tensor, state: FlowState) -> None:
        """Take the contexts of a state over."""
        for pool, rows in zip(tensors(self._contexts), tensors(bare(state)), strict=True):
            pool.index_copy_(0, slots, rows)


class _Step:
    """One recorded step, and its inputs."""

    def __init__(self, flow: Flow, memory: _Memory, extent: _Extent, pool: Pool) -> None:
        self._flow, self._memory, self._extent = flow, memory, extent
        rows, ids, frames = extent.rows, extent.blocks * BLOCK_IDS, extent.blocks * BLOCK_FRAMES
        self._tray = Tray(_scratch_inputs(extent), flow.device)
        self._noise = torch.zeros(rows, frames, MEL, device=flow.device)
        self._prompt_mel = torch.zeros(rows, MEL, ids * RATIO, device=flow.device)
        self._graph = StepGraph(self._compute, flow.device, pool)

    def run(self, chunk: FlowChunk, seats: Sequence[Seat]) -> Tensor:
        """The mel of a chunk that is no longer than the step, for no more seats."""
        rows, length = chunk.ids.shape
        frames, host = length * RATIO, self._tray.host
        host.ids[:rows, :length] = chunk.ids
        host.future[:rows] = chunk.future
        for row in range(self._extent.rows):
            seat = seats[row] if row < rows else Seat(_SCRATCH, [], 0)
            host.slots[row] = seat.slot
            spoken = (chunk.lengths[row] if chunk.lengths else length) if row < rows else length
            self._place(row, seat, spoken * RATIO)
        self._noise[:rows, :frames] = self._flow.noises([seat.frames for seat in seats], frames)
        self._prompt_mel[:rows, :, :frames] = chunk.prompt_mel
        self._tray.carry()
        return self._graph.replay()[:rows, :, :frames].clone()

    def _place(self, row: int, seat: Seat, frames: int) -> None:
        places = self._tray.host.places
        table, written = places.table.numpy()[row], places.written.numpy()[row]
        places.begins[row], places.ends[row] = seat.frames, seat.frames + frames
        places.first[row] = seat.first * BLOCK_FRAMES
        table[: len(seat.pages)], table[len(seat.pages) :] = seat.pages, _SCRATCH
        begin = seat.frames // BLOCK_FRAMES - seat.first
        written[:] = seat.pages[begin : begin + len(written)] or _SCRATCH

    def _compute(self) -> Tensor:
        given = self._tray.there
        chunk = FlowChunk(given.ids, given.future, self._prompt_mel)
        state = self._memory.rows(given.slots)
        plans = self._plans(given.places)
        mel, after = self._flow.compute(chunk, self._noise, state, plans, Keep.KEYS_VALUES)
        self._memory.write_rows(given.slots, after)
        return mel

    def _plans(self, places: PagePlaces) -> FlowPlans:
        window, is_last = self._flow.policy.window_frames, self._extent.is_last
        solver = plan_pages(_both_halves(places), BLOCK_FRAMES, window, is_last=is_last)
        if self._flow.config.encoder is None:
            return FlowPlans(solver, None, None)
        in_ids = None if window is None else window // RATIO
        ids = plan_pages(_in_ids(places), BLOCK_IDS, in_ids, is_last=is_last)
        return FlowPlans(solver, ids, plan_pages(places, BLOCK_FRAMES, window, is_last=is_last))


def _scratch_inputs(extent: _Extent) -> _Inputs:
    """Inputs that go to the scratch."""
    rows = extent.rows

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(rows, *shape, dtype=torch.int64)

    ends = torch.full((rows,), extent.blocks * BLOCK_FRAMES)
    places = PagePlaces(zeros(), ends, zeros(extent.pages), zeros(extent.blocks), zeros())
    return _Inputs(
        zeros(extent.blocks * BLOCK_IDS), zeros(0 if extent.is_last else LOOKAHEAD), zeros(), places
    )


def _both_halves(places: PagePlaces) -> PagePlaces:
    """Rows as the solver has them: a page of a pool (pages, 2, ...) that is folded is two."""
    twice = map_state(lambda part: part.repeat_interleave(2, 0), places)
    half = torch.arange(len(twice.begins), device=twice.begins.device)[:, None] % 2
    return replace(twice, table=2 * twice.table + half, written=2 * twice.written + half)


def _in_ids(places: PagePlaces) -> PagePlaces:
    begins, ends, first = (part // RATIO for part in (places.begins, places.ends, places.first))
    return replace(places, begins=begins, ends=ends, first=first)


def bare(state: FlowState) -> FlowState:
    """A state without its memories and its count: what of it is the same size however long it is."""
    nothing = state.speaker.new_empty(len(state.speaker), 0)
    counted = replace(state, frames=nothing)
    return _with_memories(counted, [nothing] * len(_memories(state)))


def _memories(state: FlowState) -> list[Memory]:
    encoder = state.encoder
    own = [encoder.ids, encoder.frames] if isinstance(encoder, EncoderState) else []
    return [*own, *(part.kept for part in state.solver)]


def _buffers(state: FlowState) -> list[Tensor]:
    return [memory for memory in _memories(state) if isinstance(memory, Tensor)]


def _with_memories(state: FlowState, memories: Sequence[Memory]) -> FlowState:
    encoder = state.encoder
    count = len(memories) - len(state.solver)
    if isinstance(encoder, EncoderState):
        encoder = replace(encoder, ids=memories[0], frames=memories[1])
    solver = zip(state.solver, memories[count:], strict=True)
    return replace(state, encoder=encoder, solver=tuple(replace(part, kept=kept) for part, kept in solver))
