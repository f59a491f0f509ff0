"""Plans of block-wise attention: for each chunk, what to write where and which slots each frame attends to.

Chunks are attended block by block. A block (50 mel frames, 25 speech ids) attends to itself as a whole and to
everything before it, never to later frames:

    block          0         1         2         3
    attends to  |0 .. 50)|0 .. 100)|0 .. 150)|0 .. 200)        unbounded window: exact
    attends to  |0 .. 50)|0 .. 100)|50.. 150)|100.. 200)       window of 100 frames: an approximation

With a bounded window the buffer is a ring, here of 100 slots, after block 2:

    slot      0         50        100
    frame     |100..150)|50 ..100)|

A plan is made once for a chunk and shared by all layers. ``ContiguousAttentionPlan`` treats rows at different
frames one after the other, each with its own history, so that nothing is padded and a row in a batch equals
the row alone. Several blocks share one attention under a mask while the ring does not wrap: more queries in
one product take 0.7 of the time. ``PagedAttentionPlan`` holds everything in tensors of fixed shapes, as a
recorded step needs it.

Source: FunAudioLLM/CosyVoice@ace7c47 utils/mask.py (subsequent_chunk_mask, with all left context).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ...devices.torch_devices import CPU, to_device

BLOCKS_PER_ATTENTION = 4


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Adjacent rows that are at the same frame, within some blocks of a chunk."""

    rows: tuple[int, int]  # first and one past the last
    first_slot: int  # where the blocks are written
    valid_frames: int  # frames of the blocks that are written; the others are padding
    visible_slots: int  # slots to attend to, counted from slot 0
    positions: Tensor  # (visible,) int64, the frame in each slot
    query_positions: Tensor  # (frames,) int64, the frames of the blocks
    mask: Tensor | None  # (frames, visible) float32, -inf where unseen; None if every frame sees all slots
    distance_range: tuple[int, int]  # least (negative: ahead) and largest, from a frame back to a slot

    @property
    def distances_back(self) -> Tensor:
        """From each frame back to each slot: (frames, visible) int64."""
        return self.query_positions[:, None] - self.positions


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """Frames ``start`` to ``stop`` of a chunk, one block or a few, for all groups of rows."""

    start: int
    stop: int
    groups: tuple[RowGroup, ...]


@dataclass(frozen=True, slots=True)
class ContiguousAttentionPlan:
    """The plan of a chunk whose memory has one buffer for each row."""

    blocks: tuple[AttentionBlock, ...]
    positions: Tensor  # (R, length) int64, the frames of the chunk; R is 1 if all rows agree
    history_slots: int  # slots in use before the chunk, in the row that uses most
    history_positions: Tensor  # (R, history) int64, the frame in each of them
    frame_mask: Tensor | None  # (R, length, 1) float32, 0 after the end of a row; None if all end together

    @property
    def distance_range(self) -> tuple[int, int]:
        """The least and the largest distance of all groups."""
        groups = [
            group.distance_range for block in self.blocks for group in block.groups if group.visible_slots
        ]
        return min(least for least, _ in groups), max(largest for _, largest in groups)


@dataclass(frozen=True, slots=True)
class PagedAttentionPlan:
    """The plan of a chunk whose memory is in pages; K pages for each of N rows."""

    page_table: Tensor  # (N, K) int64, pages to attend to, oldest first
    written_pages: Tensor  # (N, blocks) int64, those of them that the chunk is written to
    positions: Tensor  # (N, length) int64, the frames of the chunk
    slot_positions: Tensor  # (N, K * block) int64, the frame in each slot of the table
    visible_mask: Tensor  # (N, 1, length, K * block) bool
    slots_in_use: Tensor  # (N,) int64, slots of the table up to the last frame
    frame_mask: Tensor | None  # (N, length, 1) float32, 0 after the end of a row; None if none ends early
    distance_range: tuple[int, int]  # as in RowGroup, of any frame that may be visible
    part_counters: Tensor  # (N * heads * length,) int32, all 0, for kernels that attend in parts

    @property
    def history_positions(self) -> Tensor:
        """Empty, (N, 0): pages hold keys and values, so that no history has to be projected again."""
        return self.positions[:, :0]

    @property
    def distances_back(self) -> Tensor:
        """From each frame back to each slot, clamped: (N, 1, length, K * block) int64."""
        return (self.positions[:, :, None] - self.slot_positions[:, None]).clamp(*self.distance_range)[
            :, None
        ]


@dataclass(frozen=True, slots=True)
class WholeAttentionPlan:
    """The plan of whole utterances, which need no memory; only training computes those."""

    positions: Tensor  # (1, length) int64, the frames
    visible_mask: Tensor  # (N, 1, length, length) bool
    frame_mask: Tensor  # (N, length, 1), of a float type, 0 after the end of a row
    dropout: float = 0.0  # share of the attention weights that are dropped

    @property
    def history_positions(self) -> Tensor:
        """Empty, (1, 0)."""
        return self.positions[:, :0]

    @property
    def distance_range(self) -> tuple[int, int]:
        """As in RowGroup."""
        length = self.positions.shape[1]
        return 1 - length, length - 1

    @property
    def distances_back(self) -> Tensor:
        """From each frame back to each other one: (length, length) int64."""
        return self.positions[0][:, None] - self.positions[0]


AttentionPlan = ContiguousAttentionPlan | PagedAttentionPlan | WholeAttentionPlan


def make_whole_plan(
    lengths: Tensor, block: int | None, dtype: torch.dtype, dropout: float = 0.0
) -> WholeAttentionPlan:
    """Plan utterances of ``lengths`` (N,) frames, padded at the right to the longest.

    block: frames that attend to each other and to those before them; None: every frame attends to all.
    """
    positions = torch.arange(int(lengths.max()), device=lengths.device)
    is_real = positions < lengths[:, None]
    visible = is_real[:, None, None].expand(-1, -1, len(positions), -1)
    if block is not None:
        visible = visible & (positions // block <= (positions // block)[:, None])
    return WholeAttentionPlan(positions[None], visible, is_real[..., None].to(dtype), dropout)


@dataclass(frozen=True, slots=True)
class PagePlacement:
    """Places of N rows in the pages; tensors of a staging buffer, in frames."""

    begins: Tensor  # (N,) int64, frames before the chunk
    ends: Tensor  # (N,) int64, one past the last frame that is not padding
    page_table: Tensor  # (N, K) int64, as in PagedAttentionPlan
    written_pages: Tensor  # (N, blocks) int64
    first_frame: Tensor  # (N,) int64, the first frame of the first page of the table


def make_paged_plan(
    places: PagePlacement, block: int, window: int | None, *, is_last: bool, heads: int = 0
) -> PagedAttentionPlan:
    """Plan chunks of whole blocks for rows at any frames.

    is_last: rows may end before their chunk does. heads: of the attention, if kernels compute it.
    """
    device, begins, ends = places.begins.device, places.begins[:, None], places.ends[:, None]
    length, slots = block * places.written_pages.shape[1], block * places.page_table.shape[1]
    positions = begins + torch.arange(length, device=device)
    slot_positions = places.first_frame[:, None] + torch.arange(slots, device=device)
    horizon = ((positions // block + 1) * block)[..., None]  # (N, length, 1) end of each frame's block
    seen = (slot_positions[:, None] < horizon) & (slot_positions < ends)[:, None]
    if window is not None:
        seen &= slot_positions[:, None] >= torch.minimum(horizon, ends[..., None]) - window
    frame_mask = (positions < ends)[..., None].float() if is_last else None
    distances = (1 - block, slots - 1)
    return PagedAttentionPlan(
        places.page_table,
        places.written_pages,
        positions,
        slot_positions,
        seen[:, None],
        (places.ends - places.first_frame).clamp(max=slots),
        frame_mask,
        distances,
        torch.zeros(heads * positions.numel(), dtype=torch.int32, device=device),
    )


def make_plan(
    begins: Sequence[int],
    length: int,
    *,
    block: int,
    capacity: int,
    valid: Sequence[int] | None = None,
    device: torch.device = CPU,
) -> ContiguousAttentionPlan:
    """Plan a chunk of ``length`` frames for rows that have ``begins`` frames before it.

    ``capacity``: slots of the buffer, which is a ring if the frames exceed it. ``valid``: frames of the chunk
    in each row that are not padding; None for all.
    """
    ends = valid or [length] * len(begins)
    row_groups = [
        (rows, begins[rows[0]], ends[rows[0]]) for rows in _equal_runs(list(zip(begins, ends, strict=True)))
    ]
    ring_wraps = max(begins) + length > capacity
    edges = pairwise([*range(0, length, block if ring_wraps else BLOCKS_PER_ATTENTION * block), length])
    blocks = tuple(
        AttentionBlock(
            start,
            stop,
            tuple(_make_row_group(*group, start, stop, block, capacity, device) for group in row_groups),
        )
        for start, stop in edges
    )
    begin = _device_tensor(begins[:1] if len(set(begins)) == 1 else begins, device)
    frames = torch.arange(length, device=device)
    history = min(max(begins), capacity)
    frame_mask = (
        None if valid is None else (frames < _device_tensor(valid, device)[:, None])[..., None].float()
    )
    history_positions = _frames_in_slots(begin[:, None], history, capacity)
    return ContiguousAttentionPlan(blocks, begin[:, None] + frames, history, history_positions, frame_mask)


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
    written = begin + max(min(stop, end), 0)  # frames in the buffer once these blocks are written
    visible = min(written, capacity)
    positions = _frames_in_slots(_device_tensor(written, device), visible, capacity)
    chunk_frames = torch.arange(start, stop, device=device)
    mask = None
    if stop - start > block:
        seen = positions < begin + (chunk_frames // block + 1)[:, None] * block
        mask = torch.zeros(seen.shape, device=device).masked_fill(~seen, -math.inf)
    valid_frames = max(0, min(stop, end) - start)
    first_slot = (begin + start) % capacity
    distances = (begin + start + 1 - written, begin + stop - 1 + visible - written)
    return RowGroup(rows, first_slot, valid_frames, visible, positions, begin + chunk_frames, mask, distances)


def _frames_in_slots(end: Tensor, visible: int, capacity: int) -> Tensor:
    """The frame in each slot after all frames before ``end`` are written; negative for an empty slot."""
    newest = end - 1
    return newest - (newest - torch.arange(visible, device=end.device)) % capacity
