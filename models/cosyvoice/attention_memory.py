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
are (``Apart``): a copy into one would cost more than the step saves. Where a step is recorded, memories are
blocks in one place, listed by a table (``Pages``). Nothing here has weights.

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

from .devices import CPU, on_device
from .state import tensors

BLOCKS_TOGETHER = 4

Project = Callable[[Tensor, Tensor], Tensor]
Bias = Callable[[Tensor, "Part | PagePlan"], Tensor]


class Keep(Enum):
    """What is kept of a frame: its keys and values, or the narrower inputs that give them again."""

    KEYS_VALUES = "keys and values"
    INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class Apart:
    """The buffers of several sessions as one, each where it lies; ``rows``: (n, ...) each, in order."""

    rows: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Pages:
    """Buffers cut into blocks, of which a row has those that its plan lists. pool: (pages, ..., block, D)."""

    pool: Tensor


Memory = Tensor | Apart | Pages


def layers_of(kept: Memory) -> Sequence[Memory]:
    """(N, layers, P, W, D) as (N, P, W, D) for each layer, views."""
    if isinstance(kept, Tensor):
        return kept.unbind(1)
    if isinstance(kept, Pages):
        return [Pages(layer) for layer in kept.pool.unbind(1)]
    return [Apart(layer) for layer in zip(*(rows.unbind(1) for rows in kept.rows), strict=True)]


def room_of(kept: Memory) -> int:
    """W, slots. Buffers that lie apart have as many if they are rings, else each has room for its own row."""
    if isinstance(kept, Pages):
        return len(kept.pool) * kept.pool.shape[-2]
    return kept.shape[-2] if isinstance(kept, Tensor) else max(rows.shape[-2] for rows in kept.rows)


def device_of(kept: Memory) -> torch.device:
    """Where it lies."""
    return next(tensors(kept)).device


def release_behind(kept: Tensor, slots: int) -> None:
    """Give the pages behind the first so many slots of each buffer back to the system, with what is in them.

    kept: (..., W, D), contiguous, on a CPU under Linux; a page costs nothing again until it is written to.
    Raises OSError.
    """
    slot = kept.shape[-1] * kept.element_size()
    size = kept.shape[-2] * slot
    begin, page = kept.data_ptr(), mmap.PAGESIZE
    madvise = ctypes.CDLL(None, use_errno=True).madvise  # to look it up takes as long as some of its calls
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for buffer in range(begin, begin + kept.nbytes, size):
        first, last = -(-(buffer + slots * slot) // page) * page, (buffer + size) // page * page
        if first < last and madvise(first, last - first, mmap.MADV_DONTNEED):
            raise OSError(ctypes.get_errno(), "madvise")


def _pieces(kept: Tensor | Apart, first: int, last: int) -> Iterator[tuple[int, int, Tensor]]:
    """Rows ``first`` to ``last``, as (begin, end, their buffer) for each buffer."""
    if isinstance(kept, Tensor):
        yield first, last, kept[first:last]
        return
    start = 0
    for rows in kept.rows:
        stop = start + len(rows)
        begin, end = max(first, start), min(last, stop)
        if begin < end:
            yield begin, end, rows[begin - start : end - start]
        start = stop


@dataclass(frozen=True, slots=True)
class Part:
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
    visible: int
    positions: Tensor
    queries: Tensor
    mask: Tensor | None
    distances: tuple[int, int]

    @property
    def backward(self) -> Tensor:
        """From each frame back to each slot: (frames, visible) int64."""
        return self.queries[:, None] - self.positions


@dataclass(frozen=True, slots=True)
class Block:
    """Frames ``start``..``stop`` of a chunk, one block or a few, row by row."""

    start: int
    stop: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a chunk runs through a buffer: its blocks, and what is in the buffer before it.

    ``positions``: (R, length) int64, the frames of the chunk; R is 1 where all rows agree. ``history``: slots
    in use before the chunk, of the row with most. ``history_positions``: (R, history) int64. ``padded``: (R,
    length, 1) float32, zero where a row has ended before the chunk does; None where no row has.
    """

    blocks: tuple[Block, ...]
    positions: Tensor
    history: int
    history_positions: Tensor
    padded: Tensor | None

    @property
    def distances(self) -> tuple[int, int]:
        """The least and the most of all parts."""
        parts = [part.distances for block in self.blocks for part in block.parts if part.visible]
        return min(least for least, _ in parts), max(most for _, most in parts)


@dataclass(frozen=True, slots=True)
class PagePlan:
    """How a chunk runs through pages, all of it in tensors: what is recorded with one fits every other.

    ``table``: (N, K) int64, the pages that are attended to, oldest first. ``written``: (N, blocks) int64,
    those that the chunk goes to, among them. ``positions``: (N, length) int64, the frames of the chunk.
    ``held``: (N, K * block) int64, the frame in each slot of the table. ``seen``: (N, 1, length, K * block)
    bool. ``padded``: as in ``Plan``. ``distances``: as in ``Part``, of any frame that may be seen.
    """

    table: Tensor
    written: Tensor
    positions: Tensor
    held: Tensor
    seen: Tensor
    padded: Tensor | None
    distances: tuple[int, int]

    @property
    def history_positions(self) -> Tensor:
        """Keys are kept as they are used."""
        return self.positions[:, :0]

    @property
    def backward(self) -> Tensor:
        """From each frame back to each slot: (N, 1, length, K * block) int64; of what is unseen anything."""
        return (self.positions[:, :, None] - self.held[:, None]).clamp(*self.distances)[:, None]


AnyPlan = Plan | PagePlan


@dataclass(frozen=True, slots=True)
class PagePlaces:
    """Where rows stand in pages: tensors of a tray.

    ``begins``, ``ends``: (N,) int64, frames behind the chunk, and those after the last that is real.
    ``table``, ``written``: as in ``PagePlan``. ``first``: (N,) int64, the frame that the table begins with.
    """

    begins: Tensor
    ends: Tensor
    table: Tensor
    written: Tensor
    first: Tensor


def plan_pages(places: PagePlaces, block: int, window: int | None, *, is_last: bool) -> PagePlan:
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
    return PagePlan(places.table, places.written, positions, held, seen[:, None], padded, distances)


def make_plan(
    begins: Sequence[int],
    length: int,
    *,
    block: int,
    capacity: int,
    valid: Sequence[int] | None = None,
    device: torch.device = CPU,
) -> Plan:
    """The plan of a chunk of ``length`` frames for rows that have ``begins`` frames behind them.

    ``capacity``: slots of the buffer, which is a ring if the frames exceed it. ``valid``: frames of the chunk
    that each row really has, all of them where None.
    """
    ends = valid or [length] * len(begins)
    groups = [
        (rows, begins[rows[0]], ends[rows[0]]) for rows in _agreeing(list(zip(begins, ends, strict=True)))
    ]
    comes_around = max(begins) + length > capacity
    edges = pairwise([*range(0, length, block if comes_around else BLOCKS_TOGETHER * block), length])
    blocks = tuple(
        Block(start, stop, tuple(_part(*group, start, stop, block, capacity, device) for group in groups))
        for start, stop in edges
    )
    begin = _there(begins[:1] if len(set(begins)) == 1 else begins, device)
    frames = torch.arange(length, device=device)
    history = min(max(begins), capacity)
    padded = None if valid is None else (frames < _there(valid, device)[:, None])[..., None].float()
    held = _held(begin[:, None], history, capacity)
    return Plan(blocks, begin[:, None] + frames, history, held, padded)


def _there(numbers: int | Sequence[int], device: torch.device) -> Tensor:
    return on_device(torch.tensor(numbers), device)


def _agreeing(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of equal entries, as (begin, end)."""
    edges = [row for row in range(1, len(places)) if places[row] != places[row - 1]]
    return list(pairwise([0, *edges, len(places)]))


def _part(
    rows: tuple[int, int],
    begin: int,
    end: int,
    start: int,
    stop: int,
    block: int,
    capacity: int,
    device: torch.device,
) -> Part:
    written = begin + max(min(stop, end), 0)
    visible = min(written, capacity)
    positions = _held(_there(written, device), visible, capacity)
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
    return Part(rows, slot, size, visible, positions, begin + chunk_frames, mask, distances)


def _held(end: Tensor, visible: int, capacity: int) -> Tensor:
    """The frame that each slot holds once every frame before ``end`` has been written, negative where none
    is.
    """
    newest = end - 1
    return newest - (newest - torch.arange(visible, device=end.device)) % capacity


def recall(kept: Memory, plan: AnyPlan, keep: Keep, project: Project, length: int) -> Memory:
    """The keys and values that a chunk works on: (N, 2, W, D) float32, written to by ``attend``.

    ``kept``: (N, P, W, D), one layer's buffer; P is 2 for keys and values, 1 for inputs. The buffer itself
    where it can be read as it is, else a working copy with room for the chunk. Pages and buffers that lie
    apart are always read as they are.
    """
    if isinstance(kept, Apart | Pages) or isinstance(plan, PagePlan):
        return kept
    if keep is Keep.KEYS_VALUES and kept.dtype == torch.float32:
        return kept
    history = kept[:, :, : plan.history].float()
    if keep is Keep.INPUTS:
        history = project(history[:, 0], plan.history_positions)
    room = min(plan.history + length, kept.shape[2])
    working = history.new_empty(history.shape[0], 2, room, history.shape[3])
    working[:, :, : plan.history] = history
    return working


def remember(kept: Tensor | Apart, fresh: Tensor, block: Block, part: Part) -> None:
    """Write rows of ``fresh`` (N, P, length, D) into the buffer (N, P, W, D), in place."""
    for first, last, rows in _pieces(kept, *part.rows):
        _write(rows, fresh[first:last], block, part)


def _write(rows: Tensor, fresh: Tensor, block: Block, part: Part) -> None:
    rows[:, :, part.slot : part.slot + part.size] = fresh[:, :, block.start : block.start + part.size]


def store(kept: Memory, fresh: Tensor, plan: AnyPlan) -> None:
    """Write a whole chunk into the buffer, block by block, in place. Pages have it from ``attend``."""
    if isinstance(kept, Pages) or isinstance(plan, PagePlan):
        return
    for block in plan.blocks:
        for part in block.parts:
            remember(kept, fresh, block, part)


def attend(
    query: Tensor,
    fresh: Tensor,
    working: Memory,
    plan: AnyPlan,
    heads: int,
    bias: Bias | None = None,
) -> Tensor:
    """Multi-head attention of a chunk, block by block: (N, length, H * d).

    ``query``: (N, length, H * d). ``fresh``: (N, 2, length, H * d), keys and values of the chunk. ``bias``:
    gives what is added to the scores of some rows, (n, H, frames, visible), from their queries (n, H, frames,
    d).
    """
    if isinstance(plan, PagePlan) or isinstance(working, Pages):
        assert isinstance(plan, PagePlan) and isinstance(working, Pages)
        return _attend_pages(query, fresh, working.pool, plan, heads, bias)
    answer = torch.empty_like(query, memory_format=torch.contiguous_format)
    for block in plan.blocks:
        for part in block.parts:
            for first, last, rows in _pieces(working, *part.rows):
                _write(rows, fresh[first:last], block, part)
                asked = split_heads(query[first:last, block.start : block.stop], heads)
                key, value = (split_heads(rows[:, index, : part.visible], heads) for index in (0, 1))
                scores = part.mask
                if bias is not None:
                    scores = bias(asked, part) if part.mask is None else bias(asked, part) + part.mask
                attended = F.scaled_dot_product_attention(asked, key, value, scores)
                split_heads(answer[first:last, block.start : block.stop], heads).copy_(attended)
    return answer


def _attend_pages(
    query: Tensor, fresh: Tensor, pool: Tensor, plan: PagePlan, heads: int, bias: Bias | None
) -> Tensor:
    """``attend`` for all rows and blocks at once. pool: (pages, 2, block, D), of any float type."""
    block = pool.shape[2]
    N, parts, length, width = fresh.shape
    written = fresh.reshape(N, parts, length // block, block, width).transpose(1, 2)
    # (N, blocks, 2, block, D)
    pool[plan.written] = written.to(pool.dtype)
    read = pool[plan.table].transpose(1, 2).flatten(2, 3).to(query.dtype)  # (N, 2, K * block, D)
    asked, key, value = (split_heads(x, heads) for x in (query, read[:, 0], read[:, 1]))
    scores = plan.seen if bias is None else bias(asked, plan).masked_fill(~plan.seen, -math.inf)
    attended = F.scaled_dot_product_attention(asked, key, value, scores)
    return attended.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(N, T, H * d) -> (N, H, T, d), a view."""
    N, T, width = x.shape
    return x.view(N, T, heads, width // heads).transpose(1, 2)
