"""What attention remembers between chunks: one buffer for a stack of layers, and the plan of a chunk in it.

Chunks are attended block by block. A block (50 mel frames, 25 speech ids) sees itself whole and everything
before it, never what follows:

    block        0         1         2         3
    sees      |0 .. 50)|0 .. 100)|0 .. 150)|0 .. 200)        window unlimited: exact
    sees      |0 .. 50)|0 .. 100)|50.. 150)|100.. 200)       window 100 frames: an approximation

The buffer is a ring when the window is bounded; a slot's frame number follows from where the ring stands,
and attention does not mind the order of its keys. Rows at different places are attended one after the other,
each with what it has: no padding, and a row among others is the row alone. A few blocks are attended together
under a mask where the ring does not come around: more queries to a product take 0.7 of the time. A plan is
made once a chunk and shared by all layers. Sessions that share a chunk for once keep their buffers where they
are (``SeparateBuffers``): a copy into one would cost more than the step saves. Where a step is recorded, memories are
blocks in one place, listed by a table (``PagedBuffers``). Nothing here has weights.

Source: FunAudioLLM/CosyVoice@ace7c47 utils/mask.py (subsequent_chunk_mask, with all left context).
"""

import ctypes
import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ..devices import CPU, to_device
from ..state import tensors

BLOCKS_PER_ATTENTION = 4

KeyValueProjection = Callable[[Tensor, Tensor], Tensor]
ScoreBias = Callable[[Tensor, "RowGroup | PagedAttentionPlan"], Tensor]


class CacheForm(Enum):
    """What is kept of a frame: its keys and values, or the narrower inputs that give them again."""

    KEYS_VALUES = "keys and values"
    INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class SeparateBuffers:
    """The buffers of several sessions as one, each where it lies; ``rows``: (n, ...) each, in order."""

    rows: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class PagedBuffers:
    """Buffers cut into blocks, of which a row has those that its plan lists. pool: (pages, ..., block, D)."""

    pool: Tensor


AttentionMemory = Tensor | SeparateBuffers | PagedBuffers


def layer_memories(cache: AttentionMemory) -> Sequence[AttentionMemory]:
    """(N, layers, P, W, D) as (N, P, W, D) for each layer, views."""
    if isinstance(cache, Tensor):
        return cache.unbind(1)
    if isinstance(cache, PagedBuffers):
        return [PagedBuffers(layer) for layer in cache.pool.unbind(1)]
    return [SeparateBuffers(layer) for layer in zip(*(rows.unbind(1) for rows in cache.rows), strict=True)]


def slot_capacity(cache: AttentionMemory) -> int:
    """W, slots. Buffers that lie apart have as many if they are rings, else each has room for its own row."""
    if isinstance(cache, PagedBuffers):
        return len(cache.pool) * cache.pool.shape[-2]
    return cache.shape[-2] if isinstance(cache, Tensor) else max(rows.shape[-2] for rows in cache.rows)


def device_of(cache: AttentionMemory) -> torch.device:
    """Where it lies."""
    return next(tensors(cache)).device


def release_pages_behind(cache: Tensor, slots: int) -> None:
    """Give the pages behind the first so many slots of each buffer back to the system, with what is in them.

    kept: (..., W, D), contiguous, on a CPU under Linux; a page costs nothing again until it is written to.
    Raises OSError.
    """
    slot = cache.shape[-1] * cache.element_size()
    size = cache.shape[-2] * slot
    begin, page = cache.data_ptr(), mmap.PAGESIZE
    madvise = ctypes.CDLL(None, use_errno=True).madvise  # to look it up takes as long as some of its calls
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for buffer in range(begin, begin + cache.nbytes, size):
        first, last = -(-(buffer + slots * slot) // page) * page, (buffer + size) // page * page
        if first < last and madvise(first, last - first, mmap.MADV_DONTNEED):
            raise OSError(ctypes.get_errno(), "madvise")


def _split_by_buffer(
    cache: Tensor | SeparateBuffers, first: int, last: int
) -> Iterator[tuple[int, int, Tensor]]:
    """Rows ``first`` to ``last``, as (begin, end, their buffer) for each buffer."""
    if isinstance(cache, Tensor):
        yield first, last, cache[first:last]
        return
    start = 0
    for rows in cache.rows:
        stop = start + len(rows)
        begin, end = max(first, start), min(last, stop)
        if begin < end:
            yield begin, end, rows[begin - start : end - start]
        start = stop


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that stand at the same place, in some blocks of a chunk.

    ``rows``: begin and end. ``slot``, ``size``: where the blocks are written, and how much of them is not
    padding. ``visible``: slots to read, from the first. ``positions``: (visible,) int64, the frame in each
    slot. ``queries``: (frames,) int64, the frames of the blocks themselves. ``mask``: (frames, visible)
    float32, -inf where a frame does not see a slot; None where all see all. ``distances``: from a frame back
    to what it may see, least (negative: ahead) and most.
    """

    rows: tuple[int, int]
    slot: int
    size: int
    visible_slots: int
    positions: Tensor
    query_positions: Tensor
    mask: Tensor | None
    distance_range: tuple[int, int]

    @property
    def distances_back(self) -> Tensor:
        """From each frame back to each slot: (frames, visible) int64."""
        return self.query_positions[:, None] - self.positions


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """Frames ``start``..``stop`` of a chunk, one block or a few, row by row."""

    start: int
    stop: int
    parts: tuple[RowGroup, ...]


@dataclass(frozen=True, slots=True)
class ContiguousAttentionPlan:
    """How a chunk runs through a buffer: its blocks, and what is in the buffer before it.

    ``positions``: (R, length) int64, the frames of the chunk; R is 1 where all rows agree. ``history``: slots
    in use before the chunk, of the row with most. ``history_positions``: (R, history) int64. ``padded``: (R,
    length, 1) float32, zero where a row has ended before the chunk does; None where no row has.
    """

    blocks: tuple[AttentionBlock, ...]
    positions: Tensor
    history_slots: int
    history_positions: Tensor
    frame_mask: Tensor | None

    @property
    def distance_range(self) -> tuple[int, int]:
        """The least and the most of all parts."""
        parts = [part.distance_range for block in self.blocks for part in block.parts if part.visible_slots]
        return min(least for least, _ in parts), max(most for _, most in parts)


@dataclass(frozen=True, slots=True)
class PagedAttentionPlan:
    """How a chunk runs through pages, all of it in tensors: what is recorded with one fits every other.

    ``table``: (N, K) int64, the pages that are attended to, oldest first. ``written``: (N, blocks) int64,
    those that the chunk goes to, among them. ``positions``: (N, length) int64, the frames of the chunk.
    ``held``: (N, K * block) int64, the frame in each slot of the table. ``seen``: (N, 1, length, K * block)
    bool. ``padded``: as in ``ContiguousAttentionPlan``. ``distances``: as in ``RowGroup``, of any frame that may be seen.
    """

    table: Tensor
    written: Tensor
    positions: Tensor
    slot_positions: Tensor
    visible_mask: Tensor
    frame_mask: Tensor | None
    distance_range: tuple[int, int]

    @property
    def history_positions(self) -> Tensor:
        """Keys are kept as they are used."""
        return self.positions[:, :0]

    @property
    def distances_back(self) -> Tensor:
        """From each frame back to each slot: (N, 1, length, K * block) int64; of what is unseen anything."""
        return (self.positions[:, :, None] - self.slot_positions[:, None]).clamp(*self.distance_range)[
            :, None
        ]


AttentionPlan = ContiguousAttentionPlan | PagedAttentionPlan


@dataclass(frozen=True, slots=True)
class PagePlacement:
    """Where rows stand in pages: tensors of a tray.

    ``begins``, ``ends``: (N,) int64, frames behind the chunk, and those after the last that is real.
    ``table``, ``written``: as in ``PagedAttentionPlan``. ``first``: (N,) int64, the frame that the table begins with.
    """

    begins: Tensor
    ends: Tensor
    table: Tensor
    written: Tensor
    first: Tensor


def make_paged_plan(
    places: PagePlacement, block: int, window: int | None, *, is_last: bool
) -> PagedAttentionPlan:
    """The plan of chunks of whole blocks for rows anywhere. is_last: rows may end before their chunk does."""
    device, begins, ends = places.begins.device, places.begins[:, None], places.ends[:, None]
    length, slots = block * places.written.shape[1], block * places.table.shape[1]
    positions = begins + torch.arange(length, device=device)
    held = places.first[:, None] + torch.arange(slots, device=device)
    horizon = ((positions // block + 1) * block)[..., None]
    seen = (held[:, None] < horizon) & (held < ends)[:, None]
    if window is not None:
        seen &= held[:, None] >= torch.minimum(horizon, ends[..., None]) - window
    padded = (positions < ends)[..., None].float() if is_last else None
    distances = (1 - block, slots - 1)
    return PagedAttentionPlan(places.table, places.written, positions, held, seen[:, None], padded, distances)


def make_plan(
    begins: Sequence[int],
    length: int,
    *,
    block: int,
    capacity: int,
    valid: Sequence[int] | None = None,
    device: torch.device = CPU,
) -> ContiguousAttentionPlan:
    """The plan of a chunk of ``length`` frames for rows that have ``begins`` frames behind them.

    ``capacity``: slots of the buffer, which is a ring if the frames exceed it. ``valid``: frames of the chunk
    that each row really has, all of them where None.
    """
    ends = valid or [length] * len(begins)
    groups = [
        (rows, begins[rows[0]], ends[rows[0]]) for rows in _equal_runs(list(zip(begins, ends, strict=True)))
    ]
    comes_around = max(begins) + length > capacity
    edges = pairwise([*range(0, length, block if comes_around else BLOCKS_PER_ATTENTION * block), length])
    blocks = tuple(
        AttentionBlock(
            start,
            stop,
            tuple(_make_row_group(*group, start, stop, block, capacity, device) for group in groups),
        )
        for start, stop in edges
    )
    begin = _device_tensor(begins[:1] if len(set(begins)) == 1 else begins, device)
    frames = torch.arange(length, device=device)
    history = min(max(begins), capacity)
    padded = None if valid is None else (frames < _device_tensor(valid, device)[:, None])[..., None].float()
    held = _frames_in_slots(begin[:, None], history, capacity)
    return ContiguousAttentionPlan(blocks, begin[:, None] + frames, history, held, padded)


def _device_tensor(numbers: int | Sequence[int], device: torch.device) -> Tensor:
    return to_device(torch.tensor(numbers), device)


def _equal_runs(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of equal entries, as (begin, end)."""
    edges = [row for row in range(1, len(places)) if places[row] != places[row - 1]]
    return list(pairwise([0, *edges, len(places)]))


def _make_row_group(
    rows: tuple[int, int],
    begin: int,
    end: int,
    start: int,
    stop: int,
    block: int,
    capacity: int,
    device: torch.device,
) -> RowGroup:
    written = begin + max(min(stop, end), 0)
    visible = min(written, capacity)
    positions = _frames_in_slots(_device_tensor(written, device), visible, capacity)
    chunk_frames = torch.arange(start, stop, device=device)
    mask = None
    if stop - start > block:
        seen = positions < begin + (chunk_frames // block + 1)[:, None] * block
        mask = torch.zeros(seen.shape, device=device).masked_fill(~seen, -math.inf)
    size = max(0, min(stop, end) - start)
    slot, distances = (
        (begin + start) % capacity,
        (begin + start + 1 - written, begin + stop - 1 + visible - written),
    )
    return RowGroup(rows, slot, size, visible, positions, begin + chunk_frames, mask, distances)


def _frames_in_slots(end: Tensor, visible: int, capacity: int) -> Tensor:
    """The frame that each slot holds once every frame before ``end`` has been written, negative where none
    is.
    """
    newest = end - 1
    return newest - (newest - torch.arange(visible, device=end.device)) % capacity


def read_history(
    cache: AttentionMemory,
    plan: AttentionPlan,
    cache_form: CacheForm,
    project: KeyValueProjection,
    length: int,
) -> AttentionMemory:
    """The keys and values that a chunk works on: (N, 2, W, D) float32, written to by ``attend``.

    ``kept``: (N, P, W, D), one layer's buffer; P is 2 for keys and values, 1 for inputs. The buffer itself
    where it can be read as it is, else a working copy with room for the chunk. Pages and buffers that lie
    apart are always read as they are.
    """
    if isinstance(cache, SeparateBuffers | PagedBuffers) or isinstance(plan, PagedAttentionPlan):
        return cache
    if cache_form is CacheForm.KEYS_VALUES and cache.dtype == torch.float32:
        return cache
    history = cache[:, :, : plan.history_slots].float()
    if cache_form is CacheForm.INPUTS:
        history = project(history[:, 0], plan.history_positions)
    room = min(plan.history_slots + length, cache.shape[2])
    history_and_chunk = history.new_empty(history.shape[0], 2, room, history.shape[3])
    history_and_chunk[:, :, : plan.history_slots] = history
    return history_and_chunk


def write_row_group(
    cache: Tensor | SeparateBuffers, new_values: Tensor, block: AttentionBlock, part: RowGroup
) -> None:
    """Write rows of ``fresh`` (N, P, length, D) into the buffer (N, P, W, D), in place."""
    for first, last, rows in _split_by_buffer(cache, *part.rows):
        _write(rows, new_values[first:last], block, part)


def _write(rows: Tensor, new_values: Tensor, block: AttentionBlock, part: RowGroup) -> None:
    rows[:, :, part.slot : part.slot + part.size] = new_values[:, :, block.start : block.start + part.size]


def write_chunk(cache: AttentionMemory, new_values: Tensor, plan: AttentionPlan) -> None:
    """Write a whole chunk into the buffer, block by block, in place. Pages have it from ``attend``."""
    if isinstance(cache, PagedBuffers) or isinstance(plan, PagedAttentionPlan):
        return
    for block in plan.blocks:
        for part in block.parts:
            write_row_group(cache, new_values, block, part)


def attend(
    query: Tensor,
    new_values: Tensor,
    history_and_chunk: AttentionMemory,
    plan: AttentionPlan,
    heads: int,
    bias: ScoreBias | None = None,
) -> Tensor:
    """Multi-head attention of a chunk, block by block: (N, length, H * d).

    ``query``: (N, length, H * d). ``fresh``: (N, 2, length, H * d), keys and values of the chunk. ``bias``:
    gives what is added to the scores of some rows, (n, H, frames, visible), from their queries (n, H, frames,
    d).
    """
    if isinstance(plan, PagedAttentionPlan) or isinstance(history_and_chunk, PagedBuffers):
        assert isinstance(plan, PagedAttentionPlan) and isinstance(history_and_chunk, PagedBuffers)
        return _attend_pages(query, new_values, history_and_chunk.pool, plan, heads, bias)
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    for block in plan.blocks:
        for part in block.parts:
            for first, last, rows in _split_by_buffer(history_and_chunk, *part.rows):
                _write(rows, new_values[first:last], block, part)
                query_rows = split_heads(query[first:last, block.start : block.stop], heads)
                key, value = (split_heads(rows[:, index, : part.visible_slots], heads) for index in (0, 1))
                scores = part.mask
                if bias is not None:
                    scores = (
                        bias(query_rows, part) if part.mask is None else bias(query_rows, part) + part.mask
                    )
                attended = F.scaled_dot_product_attention(query_rows, key, value, scores)
                split_heads(output[first:last, block.start : block.stop], heads).copy_(attended)
    return output


def _attend_pages(
    query: Tensor,
    new_values: Tensor,
    pool: Tensor,
    plan: PagedAttentionPlan,
    heads: int,
    bias: ScoreBias | None,
) -> Tensor:
    """``attend`` for all rows and blocks at once. pool: (pages, 2, block, D), of any float type."""
    block = pool.shape[2]
    N, parts, length, width = new_values.shape
    written = new_values.reshape(N, parts, length // block, block, width).transpose(1, 2)
    # (N, blocks, 2, block, D)
    pool[plan.written] = written.to(pool.dtype)
    read = pool[plan.table].transpose(1, 2).flatten(2, 3).to(query.dtype)  # (N, 2, K * block, D)
    query_rows, key, value = (split_heads(x, heads) for x in (query, read[:, 0], read[:, 1]))
    scores = (
        plan.visible_mask
        if bias is None
        else bias(query_rows, plan).masked_fill(~plan.visible_mask, -math.inf)
    )
    attended = F.scaled_dot_product_attention(query_rows, key, value, scores)
    return attended.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(N, T, H * d) -> (N, H, T, d), a view."""
    N, T, width = x.shape
    return x.view(N, T, heads, width // heads).transpose(1, 2)
