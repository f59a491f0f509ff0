"""Multi-head attention of a chunk over its memory, block by block. Pure functions without weights.

The order of keys does not matter to attention, so a ring buffer is read as it is, from slot 0. Where frames
are kept as inputs or in half precision, the history is projected or converted into a working copy first.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_memory import AttentionMemory, PagedBuffers, SeparateBuffers, split_by_buffer
from .attention_plan import (
    AttentionBlock,
    AttentionPlan,
    ContiguousAttentionPlan,
    PagedAttentionPlan,
    RowGroup,
    WholeAttentionPlan,
)
from .policy import CacheForm

# (inputs, their positions) -> keys and values, (N, 2, T, D)
KeyValueProjection = Callable[[Tensor, Tensor], Tensor]
# (queries (n, H, frames, d), their plan) -> what is added to the scores, (n, H, frames, visible)
ScoreBias = Callable[[Tensor, RowGroup | PagedAttentionPlan | WholeAttentionPlan], Tensor]


def read_history(
    cache: AttentionMemory,
    plan: AttentionPlan,
    cache_form: CacheForm,
    project: KeyValueProjection,
    length: int,
) -> AttentionMemory:
    """Keys and values for ``attend``, (N, 2, W, D) float32, with room for a chunk of ``length`` frames.

    cache: (N, P, W, D), the buffer of one layer; P is 2 for keys and values, 1 for inputs. Returns the buffer
    itself if it holds float32 keys and values, or if it is separate or paged; otherwise a working copy.
    """
    if isinstance(cache, SeparateBuffers | PagedBuffers) or not isinstance(plan, ContiguousAttentionPlan):
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


def write_chunk(cache: AttentionMemory, new_values: Tensor, plan: AttentionPlan) -> None:
    """Write a chunk, (N, P, length, D), into the buffer in place. Pages are written by ``attend`` already."""
    if isinstance(cache, PagedBuffers) or not isinstance(plan, ContiguousAttentionPlan):
        return
    for block in plan.blocks:
        for group in block.groups:
            for first, last, rows in split_by_buffer(cache, *group.rows):
                _write(rows, new_values[first:last], block, group)


def _write(rows: Tensor, new_values: Tensor, block: AttentionBlock, group: RowGroup) -> None:
    """Write the valid frames of a block into the buffer of its rows, (n, P, W, D)."""
    end = group.first_slot + group.valid_frames
    rows[:, :, group.first_slot : end] = new_values[:, :, block.start : block.start + group.valid_frames]


def attend(
    query: Tensor,
    new_values: Tensor,
    history_and_chunk: AttentionMemory,
    plan: AttentionPlan,
    heads: int,
    bias: ScoreBias | None = None,
) -> Tensor:
    """Attention output of a chunk: (N, length, H * d). Writes the chunk into ``history_and_chunk``.

    query: (N, length, H * d). new_values: (N, 2, length, H * d), keys and values of the chunk.
    history_and_chunk: of ``read_history``. bias: adds to the scores, e.g. for relative positions.
    """
    if isinstance(plan, WholeAttentionPlan):
        return _attend_whole(query, new_values, plan, heads, bias)
    if isinstance(plan, PagedAttentionPlan) or isinstance(history_and_chunk, PagedBuffers):
        assert isinstance(plan, PagedAttentionPlan) and isinstance(history_and_chunk, PagedBuffers)
        return _attend_pages(query, new_values, history_and_chunk.pool, plan, heads, bias)
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    for block in plan.blocks:
        for group in block.groups:
            for first, last, rows in split_by_buffer(history_and_chunk, *group.rows):
                _write(rows, new_values[first:last], block, group)
                query_rows = split_heads(query[first:last, block.start : block.stop], heads)
                key, value = (split_heads(rows[:, index, : group.visible_slots], heads) for index in (0, 1))
                scores = group.mask
                if bias is not None:
                    scores = (
                        bias(query_rows, group)
                        if group.mask is None
                        else bias(query_rows, group) + group.mask
                    )
                attended = F.scaled_dot_product_attention(query_rows, key, value, scores)
                split_heads(output[first:last, block.start : block.stop], heads).copy_(attended)
    return output


def _attend_whole(
    query: Tensor, new_values: Tensor, plan: WholeAttentionPlan, heads: int, bias: ScoreBias | None
) -> Tensor:
    """``attend`` for whole utterances, without a memory and differentiable."""
    query_rows, key, value = (split_heads(x, heads) for x in (query, new_values[:, 0], new_values[:, 1]))
    scores = (
        plan.visible_mask
        if bias is None
        else bias(query_rows, plan).masked_fill(~plan.visible_mask, -math.inf)
    )
    attended = F.scaled_dot_product_attention(query_rows, key, value, scores, plan.dropout)
    return attended.transpose(1, 2).flatten(2)


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
    # (N, 2, length, D) -> (N, blocks, 2, block, D), the layout of pages
    written = new_values.reshape(N, parts, length // block, block, width).transpose(1, 2)
    pool[plan.written_pages] = written.to(pool.dtype)
    read = pool[plan.page_table].transpose(1, 2).flatten(2, 3).to(query.dtype)  # (N, 2, K * block, D)
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
