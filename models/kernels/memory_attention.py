"""Keys and values of a step to the memory of its rows, and attention over that memory.

kv: as in ``SpeechLmState`` of ``models.decoding.kv_memory``; a query sees its position and those before it.

Imported only where ``has_fused_kernels`` says so.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .fused_kernels import (
    LOG2_E,
    attention_parts,
    await_inputs,
    launch_next,
    launch_options,
    part_buffer,
    softmax_step,
    store_attention,
)

QUERIES = 16  # of a program: the fewest that tensor cores take
SLOTS = 64  # that a program attends to at once


@triton.jit  # type: ignore[untyped-decorator]
def rotate_and_store(  # type: ignore[no-untyped-def]
    low, high, rows, is_row, head, channels, cosines, sines, query, kv, write_positions,
    length, write_stride, row_stride, part_stride, head_stride,
    IS_ROTATED: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Store channels of a head and those half a head after them: of queries, or of keys or values."""
    if IS_ROTATED and head < HEADS + KV_HEADS:
        # The cosines of both halves are equal, and the sines of the second are positive.
        angles = rows[:, None] * (2 * HALF) + channels[None]
        cosine = tl.load(cosines + angles, mask=is_row[:, None], other=0.0)
        sine = tl.load(sines + angles + HALF, mask=is_row[:, None], other=0.0)
        low, high = low * cosine - high * sine, high * cosine + low * sine
    if head < HEADS:
        target = query + rows[:, None] * (HEADS * 2 * HALF) + (head * 2 * HALF + channels)[None]
    else:
        part, kv_head = (head - HEADS) // KV_HEADS, (head - HEADS) % KV_HEADS
        batch = (rows // length).to(tl.int64)
        position = tl.load(write_positions + batch * write_stride + rows % length, mask=is_row, other=0)
        place = batch * row_stride + part * part_stride + kv_head * head_stride + position * (2 * HALF)
        target = kv + place[:, None] + channels[None]
    tl.store(target, low, mask=is_row[:, None])
    tl.store(target + HALF, high, mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _rotate_to_memory_kernel(  # type: ignore[no-untyped-def]
    projected, cosines, sines, query, kv, write_positions,
    length, write_stride, row_stride, part_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    rows, head = tl.program_id(0) + tl.arange(0, 1), tl.program_id(1)
    channels = tl.arange(0, HALF)
    places = rows[:, None] * ((HEADS + 2 * KV_HEADS) * 2 * HALF) + (head * 2 * HALF + channels)[None]
    await_inputs(EARLY)
    low = tl.load(projected + places).to(tl.float32)
    high = tl.load(projected + places + HALF).to(tl.float32)
    rotate_and_store(
        low, high, rows, rows >= 0, head, channels, cosines, sines, query, kv, write_positions,
        length, write_stride, row_stride, part_stride, head_stride, True, HEADS, KV_HEADS, HALF,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def attend_rows(  # type: ignore[no-untyped-def]
    row_and_head, tile, part, query, kv, positions, attended, parts, counter,
    length, query_count, capacity, positions_stride, row_stride, part_stride, head_stride, scale,
    KV_HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD_WIDTH: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Attention of a tile of a row's queries over a part of its memory, for one head of keys."""
    batch, kv_head = (row_and_head // KV_HEADS).to(tl.int64), row_and_head % KV_HEADS
    queries_of_key = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    is_query = queries_of_key < GROUPS * length
    group, column = queries_of_key // length, queries_of_key % length
    heads = (batch * length + column) * (KV_HEADS * GROUPS) + kv_head * GROUPS + group
    channels = tl.arange(0, HEAD_WIDTH)
    places = heads[:, None] * HEAD_WIDTH + channels[None]
    # A query sees its own position and earlier ones, so a program reads up to its latest query.
    position = tl.load(positions + batch * positions_stride + column, mask=is_query, other=-1)
    in_use = tl.minimum(tl.max(position, 0) + 1, capacity)
    queries = tl.load(query + places, mask=is_query[:, None], other=0.0, cache_modifier=".cg") * scale
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, HEAD_WIDTH), dtype=tl.float32)
    memory = kv + batch * row_stride + kv_head * head_stride
    part_slots = tl.cdiv(in_use, PARTS * BLOCK_S) * BLOCK_S
    for start in range(part * part_slots, tl.minimum(in_use, (part + 1) * part_slots), BLOCK_S):
        slots = start + tl.arange(0, BLOCK_S)
        is_slot = slots < in_use
        slot_places = slots[:, None] * HEAD_WIDTH + channels[None]
        keys = tl.load(memory + slot_places, mask=is_slot[:, None], other=0.0, cache_modifier=".cg")
        values = tl.load(
            memory + part_stride + slot_places, mask=is_slot[:, None], other=0.0, cache_modifier=".cg"
        )
        seen = is_slot[None] & (slots[None] <= position[:, None])
        largest, weight_sum, total = softmax_step(
            queries, keys, values, seen, largest, weight_sum, total, True
        )
    store_attention(
        largest, weight_sum, total, heads, is_query, attended, parts, counter, part, query_count,
        HEAD_WIDTH, PARTS,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _attend_memory_kernel(  # type: ignore[no-untyped-def]
    query, kv, positions, attended, parts, counters,
    length, query_count, capacity, positions_stride, row_stride, part_stride, head_stride, scale,
    KV_HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD_WIDTH: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    await_inputs(EARLY)
    attend_rows(
        tl.program_id(0), tl.program_id(1), tl.program_id(2), query, kv, positions, attended, parts,
        counters + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1),
        length, query_count, capacity, positions_stride, row_stride, part_stride, head_stride, scale,
        KV_HEADS, GROUPS, HEAD_WIDTH, PARTS, BLOCK_M, BLOCK_S,
    )  # fmt: skip


def rotate_to_memory(
    projected: Tensor, rotation: tuple[Tensor, Tensor], kv: Tensor, write_positions: Tensor
) -> Tensor:
    """As ``project_to_memory``, of what is projected: (B, T, (heads + 2 kv_heads) d), of any float type."""
    batch, length, width = projected.shape
    kv_heads, head_width = kv.shape[2], kv.shape[4]
    heads = width // head_width - 2 * kv_heads
    query = projected.new_empty(batch, length, heads * head_width, dtype=torch.float32)
    _rotate_to_memory_kernel[batch * length, width // head_width](
        projected, *rotation, query, kv, write_positions,
        length, write_positions.stride(0), *kv.stride()[:3],
        HEADS=heads, KV_HEADS=kv_heads, HALF=head_width // 2, num_warps=1,
        **launch_options(projected.device),
    )  # fmt: skip
    return query


def attend_memory(query: Tensor, kv: Tensor, positions: Tensor, capacity: int, counters: Tensor) -> Tensor:
    """Attention of a step over the memory of its rows: (B, T, heads * d) float32.

    query: (B, T, heads * d) float32; each sees its position and those before it. kv: as in
    ``project_to_memory``, float32. positions: (B, T) int64. capacity: positions that may be seen. counters:
    (B * T * heads,) int32, all 0 before and after.
    """
    batch, length, inner = query.shape
    kv_heads, head_width = kv.shape[2], kv.shape[4]
    heads = inner // head_width
    attended = torch.empty_like(query)
    grid = (batch * kv_heads, triton.cdiv(heads // kv_heads * length, QUERIES))
    parts = attention_parts(grid[0] * grid[1], capacity, SLOTS)
    _attend_memory_kernel[*grid, parts](
        query, kv, positions, attended,
        part_buffer(parts, batch * length * heads, head_width, query.device), counters,
        length, batch * length * heads, capacity, positions.stride(0), *kv.stride()[:3],
        LOG2_E * head_width**-0.5,
        KV_HEADS=kv_heads, GROUPS=heads // kv_heads, HEAD_WIDTH=head_width, PARTS=parts,
        BLOCK_M=QUERIES, BLOCK_S=SLOTS, **launch_options(query.device),
    )  # fmt: skip
    return attended
