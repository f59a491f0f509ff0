"""What attention remembers between chunks: one buffer for a stack of layers, and the plan of a chunk in it.

Chunks are attended block by block. A block (50 mel frames, 25 speech ids) sees itself whole and everything
before it, never what follows:

    block        0         1         2         3
    sees      |0 .. 50)|0 .. 100)|0 .. 150)|0 .. 200)        window unlimited: exact
    sees      |0 .. 50)|0 .. 100)|50.. 150)|100.. 200)       window 100 frames: an approximation

The buffer is a ring when the window is bounded; a slot's frame number follows from where the ring stands,
and attention does not mind the order of its keys. A plan is made once a chunk and shared by all layers.
Nothing here has weights.

Source: the chunk mask of FunAudioLLM/CosyVoice@ace7c47 utils/mask.py (subsequent_chunk_mask, left context
-1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

Project = Callable[[Tensor, Tensor], Tensor]


class Keep(Enum):
    """What is kept of a frame: its keys and values, or the narrower inputs that they are computed from
    again.
    """

    KEYS_VALUES = "keys and values"
    INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a chunk: ``start``..``stop`` in the chunk, its slots in the buffer and what it sees.

    ``slots``: where each row's block is written, one number where all rows agree. ``visible``: slots to read.
    ``positions``: (R, visible) int64, the frame in each slot, negative where none; R is 1 or the row count.
    ``queries``: (R, stop - start) int64, the frames of the block itself.
    ``seen``: (R, 1, 1, visible) bool, or None where every slot may be seen.
    """

    start: int
    stop: int
    slots: tuple[int, ...]
    visible: int
    positions: Tensor
    queries: Tensor
    seen: Tensor | None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a chunk runs through a buffer: its blocks, and what is in the buffer before it.

    ``history``: slots in use before the chunk. ``history_positions``: (R, history) int64. ``padded``: (R,
    length, 1) float32, zero where a row has ended before the chunk does; None where no row has.
    """

    blocks: tuple[Block, ...]
    history: int
    history_positions: Tensor
    padded: Tensor | None

    @property
    def positions(self) -> Tensor:
        """(R, length) int64: the frames of the chunk."""
        return torch.cat([block.queries for block in self.blocks], 1)


def make_plan(
    begins: Sequence[int],
    length: int,
    *,
    block: int,
    capacity: int,
    valid: Sequence[int] | None = None,
    device: torch.device | None = None,
) -> Plan:
    """The plan of a chunk of ``length`` frames for rows that have ``begins`` frames behind them.

    ``capacity``: slots of the buffer, which is a ring if the frames exceed it. ``valid``: frames of the chunk
    that each row really has, all of them where None.
    """
    rows = list(begins) if valid or len(set(begins)) > 1 else [begins[0]]
    limits = [begin + count for begin, count in zip(rows, valid, strict=True)] if valid else None
    edges = [*range(0, length, block), length]
    begin = torch.tensor(rows, device=device)
    limit = torch.tensor(limits, device=device) if limits else None
    blocks = [_make_block(begin, start, stop, capacity, limit) for start, stop in pairwise(edges)]
    history = min(max(rows), capacity)
    padded = None
    if limit is not None:
        padded = (begin[:, None] + torch.arange(length, device=device) < limit[:, None])[..., None].float()
    return Plan(tuple(blocks), history, _held(begin, history, capacity), padded)


def _make_block(begin: Tensor, start: int, stop: int, capacity: int, limit: Tensor | None) -> Block:
    end = begin + stop
    visible = min(int(end.max()), capacity)
    positions = _held(end, visible, capacity)
    seen = positions >= 0
    if limit is not None:
        seen &= positions < limit[:, None]
    return Block(
        start,
        stop,
        tuple(int(first) % capacity for first in begin + start),
        visible,
        positions,
        begin[:, None] + torch.arange(start, stop, device=begin.device),
        None if bool(seen.all()) else seen[:, None, None, :],
    )


def _held(end: Tensor, visible: int, capacity: int) -> Tensor:
    """(R, visible): the frame that each slot holds once every frame before ``end`` has been written."""
    newest = end[:, None] - 1
    return newest - (newest - torch.arange(visible, device=end.device)) % capacity


def recall(kept: Tensor, plan: Plan, keep: Keep, project: Project, length: int) -> Tensor:
    """The keys and values that a chunk works on: (N, 2, W, D) float32, written to by ``attend``.

    ``kept``: (N, P, W, D), one layer's buffer; P is 2 for keys and values, 1 for inputs. The buffer itself
    where it can be read as it is, else a working copy with room for the chunk.
    """
    if keep is Keep.KEYS_VALUES and kept.dtype == torch.float32:
        return kept
    history = kept[:, :, : plan.history].float()
    if keep is Keep.INPUTS:
        history = project(history[:, 0], plan.history_positions)
    room = min(plan.history + length, kept.shape[2])
    working = history.new_empty(history.shape[0], 2, room, history.shape[3])
    working[:, :, : plan.history] = history
    return working


def remember(kept: Tensor, fresh: Tensor, block: Block) -> None:
    """Write a block of ``fresh`` (N, P, length, D) into the buffer (N, P, W, D), in place."""
    size = block.stop - block.start
    source = fresh[:, :, block.start : block.stop]
    if len(block.slots) == 1:
        kept[:, :, block.slots[0] : block.slots[0] + size] = source
        return
    for row, slot in enumerate(block.slots):
        kept[row, :, slot : slot + size] = source[row]


def store(kept: Tensor, fresh: Tensor, plan: Plan) -> None:
    """Write a whole chunk into the buffer, block by block, in place."""
    for block in plan.blocks:
        remember(kept, fresh, block)


def attend(
    query: Tensor,
    fresh: Tensor,
    working: Tensor,
    plan: Plan,
    heads: int,
    bias: Callable[[Tensor, Block], Tensor] | None = None,
) -> Tensor:
    """Multi-head attention of a chunk, block by block: (N, length, H * d).

    ``query``: (N, length, H * d). ``fresh``: (N, 2, length, H * d), keys and values of the chunk. ``bias``:
    gives what is added to a block's scores, (N, H, block, visible), from its queries (N, H, block, d).
    """
    answers = []
    for block in plan.blocks:
        remember(working, fresh, block)
        asked = split_heads(query[:, block.start : block.stop], heads)
        key, value = (split_heads(working[:, part, : block.visible], heads) for part in (0, 1))
        mask = block.seen if bias is None else _masked(bias(asked, block), block.seen)
        answers.append(F.scaled_dot_product_attention(asked, key, value, mask).transpose(1, 2).flatten(2))
    return answers[0] if len(answers) == 1 else torch.cat(answers, 1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(N, T, H * d) -> (N, H, T, d), a view."""
    N, T, width = x.shape
    return x.view(N, T, heads, width // heads).transpose(1, 2)


def _masked(bias: Tensor, seen: Tensor | None) -> Tensor:
    return bias if seen is None else bias.masked_fill(~seen, float("-inf"))
