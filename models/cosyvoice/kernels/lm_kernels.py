"""Kernels in Triton for the language model: what is between the products of a step of many rows.

    embeddings of a step, cosines and sines of its positions; once a step     embed_and_rotate
    residual, norm                                                            add_and_norm
    rotation; keys and values to the memory                                   rotate_to_memory
    attention over the memory of each row                                     attend_memory
    gated SiLU                                                                gate

cuBLAS multiplies. For a few rows ``decoder_layers`` computes all of it in one launch.

Imported only where ``has_fused_kernels`` says so.
"""

from collections.abc import Sequence

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
def _embed_and_rotate_kernel(  # type: ignore[no-untyped-def]
    indices, positions, text, speech, control, periods, embedded, cosines, sines, text_rows, speech_rows,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, HALF: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    row = tl.program_id(0)
    inner, channels = tl.arange(0, PADDED_WIDTH), tl.arange(0, HALF)
    is_value = inner < WIDTH
    period = tl.load(periods + channels)
    await_inputs(EARLY)
    index = tl.load(indices + row)
    if index < text_rows:
        values = tl.load(text + index * WIDTH + inner, mask=is_value, other=0.0)
    elif index < text_rows + speech_rows:
        values = tl.load(speech + (index - text_rows) * WIDTH + inner, mask=is_value, other=0.0)
    else:
        values = tl.load(
            control + (index - text_rows - speech_rows) * WIDTH + inner, mask=is_value, other=0.0
        )
    tl.store(embedded + row * WIDTH + inner, values, mask=is_value)
    angles = tl.div_rn(tl.load(positions + row).to(tl.float32), period)
    cosine, sine = tl.cos(angles), tl.sin(angles)
    places = row * (2 * HALF) + channels
    tl.store(cosines + places, cosine)
    tl.store(cosines + places + HALF, cosine)
    tl.store(sines + places, -sine)
    tl.store(sines + places + HALF, sine)


@triton.jit  # type: ignore[untyped-decorator]
def rotate_and_store(  # type: ignore[no-untyped-def]
    low, high, rows, is_row, head, channels, cosines, sines, query, kv, write_positions,
    length, write_stride, row_stride, part_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Store channels of a head and those half a head after them: of queries, or of keys or values."""
    if head < HEADS + KV_HEADS:
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
        length, write_stride, row_stride, part_stride, head_stride, HEADS, KV_HEADS, HALF,
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


@triton.jit  # type: ignore[untyped-decorator]
def _add_and_norm_kernel(  # type: ignore[no-untyped-def]
    x, added, norm_weight, total, normed,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr, HAS_ADDED: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    inner = tl.arange(0, PADDED_WIDTH)
    is_value = inner < WIDTH
    places = tl.program_id(0) * WIDTH + inner
    await_inputs(EARLY)
    values = tl.load(x + places, mask=is_value, other=0.0)
    if HAS_ADDED:
        values += tl.load(added + places, mask=is_value, other=0.0).to(tl.float32)
        tl.store(total + places, values, mask=is_value)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / WIDTH + EPSILON)
    weight = tl.load(norm_weight + inner, mask=is_value, other=0.0).to(tl.float32)
    tl.store(normed + places, (values * scale * weight).to(normed.dtype.element_ty), mask=is_value)


@triton.jit  # type: ignore[untyped-decorator]
def _gate_kernel(  # type: ignore[no-untyped-def]
    gate_up, gated, INNER: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    launch_next(EARLY)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column, row = columns < INNER, tl.program_id(0)
    places = row * 2 * INNER + columns
    await_inputs(EARLY)
    gate = tl.load(gate_up + places, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(gate_up + INNER + places, mask=is_column, other=0.0).to(tl.float32)
    product = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(gated + row * INNER + columns, product.to(gated.dtype.element_ty), mask=is_column)


def embed_and_rotate(
    indices: Tensor, positions: Tensor, tables: Sequence[Tensor], periods: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of tables one behind the other, (B, T, C), and cosines and signed sines, (B, 1, T, d), float32.

    indices, positions: (B, T) int64, contiguous; indices are in range. tables: two or three of (rows, C)
    float32. periods: (d / 2,) float32, positions of a turn over 2 pi.
    """
    batch, length = indices.shape
    width, half = tables[0].shape[1], len(periods)
    embedded = periods.new_empty(batch, length, width)
    cosines, sines = (periods.new_empty(batch, 1, length, 2 * half) for _ in range(2))
    _embed_and_rotate_kernel[(batch * length,)](
        indices, positions, tables[0], tables[1], tables[-1], periods, embedded, cosines, sines,
        len(tables[0]), len(tables[1]),
        WIDTH=width, PADDED_WIDTH=triton.next_power_of_2(width), HALF=half, **launch_options(indices.device),
    )  # fmt: skip
    return embedded, cosines, sines


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


def add_and_norm(
    x: Tensor, added: Tensor | None, norm_weight: Tensor, epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """``x + added``, and its rows over their root mean square in another type: (..., C) each.

    x: (..., C) float32. added: as x, of any float type; None: x itself is returned.
    """
    width = x.shape[-1]
    total = x if added is None else torch.empty_like(x)
    normed = torch.empty_like(x, dtype=dtype)
    _add_and_norm_kernel[(x.numel() // width,)](
        x, x if added is None else added, norm_weight, total, normed,
        WIDTH=width, PADDED_WIDTH=triton.next_power_of_2(width), EPSILON=epsilon, HAS_ADDED=added is not None,
        **launch_options(x.device),
    )  # fmt: skip
    return total, normed


def gate(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up``: (..., D), in the type of gate_up (..., 2 D), gates first."""
    inner, block = gate_up.shape[-1] // 2, 1024
    gated = gate_up.new_empty(*gate_up.shape[:-1], inner)
    _gate_kernel[gated.numel() // inner, triton.cdiv(inner, block)](
        gate_up, gated, INNER=inner, BLOCK=block, **launch_options(gate_up.device)
    )
    return gated
