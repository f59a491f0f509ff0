"""Kernels in Triton for a layer of the language model with matrices of 16 bits: five launches, 17 in torch.

    norm, queries, keys, values; rotation; keys and values to the memory      project_to_memory
    attention over the memory of each row                                     attend_memory
    product, residual                                                         add_product
    norm, two products, gated SiLU                                            project_gated
    product, residual                                                         add_product

On an H200, before and after: a token in bf16 2.8 and 2.1 ms. With matrices in float32 it was slower, 2.7 and
3.4 ms.

Imported only where ``has_fused_kernels`` says so.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...networks.fused_kernels import LOG2_E, product_depth, softmax_result, softmax_step

_DECODE_ROWS = 16  # rows that a program computes: the fewest that tensor cores take


@triton.jit  # type: ignore[untyped-decorator]
def _inverse_magnitude(  # type: ignore[no-untyped-def]
    x, rows, is_row, WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr
):
    """One over the root mean square of rows, (BLOCK_M,)."""
    columns = tl.arange(0, PADDED_WIDTH)
    is_value = is_row[:, None] & (columns < WIDTH)[None]
    values = tl.load(x + rows[:, None] * WIDTH + columns[None], mask=is_value, other=0.0)
    return 1.0 / tl.sqrt(tl.sum(values * values, 1) / WIDTH + EPSILON)


@triton.jit  # type: ignore[untyped-decorator]
def _two_scaled_products(  # type: ignore[no-untyped-def]
    x, norm_weight, matrix, rows, is_row, first, second,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows of x (M, WIDTH), normed by their root mean square, times two sets of rows of a matrix."""
    scale = _inverse_magnitude(x, rows, is_row, WIDTH, PADDED_WIDTH, EPSILON)
    one = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    other = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        part = tl.load(x + rows[:, None] * WIDTH + inner[None], mask=is_row[:, None], other=0.0)
        normed = part * scale[:, None] * tl.load(norm_weight + inner)[None]
        first_factors = tl.load(matrix + first[:, None] * WIDTH + inner[None])
        second_factors = tl.load(matrix + second[:, None] * WIDTH + inner[None])
        normed = normed.to(first_factors.dtype)
        one = tl.dot(normed, tl.trans(first_factors), one, input_precision="tf32x3")
        other = tl.dot(normed, tl.trans(second_factors), other, input_precision="tf32x3")
    return one, other


@triton.jit  # type: ignore[untyped-decorator]
def _project_to_memory_kernel(  # type: ignore[no-untyped-def]
    x, norm_weight, matrix, bias, cosines, sines, query, kv, write_positions,
    row_count, length, write_stride, row_stride, part_stride, head_stride,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    head = tl.program_id(1)
    channels = tl.arange(0, HALF)
    columns = head * 2 * HALF + channels
    low, high = _two_scaled_products(
        x, norm_weight, matrix, rows, is_row, columns, columns + HALF,
        WIDTH, PADDED_WIDTH, EPSILON, BLOCK_M, HALF, BLOCK_K,
    )  # fmt: skip
    low += tl.load(bias + columns)[None].to(tl.float32)
    high += tl.load(bias + columns + HALF)[None].to(tl.float32)
    if head < HEADS + KV_HEADS:
        # The cosines of both halves are equal, and the sines of the second are positive.
        angles = rows[:, None] * (2 * HALF) + channels[None]
        cosine = tl.load(cosines + angles, mask=is_row[:, None], other=0.0)
        sine = tl.load(sines + angles + HALF, mask=is_row[:, None], other=0.0)
        low, high = low * cosine - high * sine, high * cosine + low * sine
    if head < HEADS:
        target = query + rows[:, None] * (HEADS * 2 * HALF) + columns[None]
    else:
        part, kv_head = (head - HEADS) // KV_HEADS, (head - HEADS) % KV_HEADS
        batch = (rows // length).to(tl.int64)
        position = tl.load(write_positions + batch * write_stride + rows % length, mask=is_row, other=0)
        place = batch * row_stride + part * part_stride + kv_head * head_stride + position * (2 * HALF)
        target = kv + place[:, None] + channels[None]
    tl.store(target, low, mask=is_row[:, None])
    tl.store(target + HALF, high, mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _attend_memory_kernel(  # type: ignore[no-untyped-def]
    query, kv, visible, attended,
    length, positions, visible_stride, row_stride, part_stride, head_stride, scale,
    KV_HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD_WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    batch, kv_head = (tl.program_id(0) // KV_HEADS).to(tl.int64), tl.program_id(0) % KV_HEADS
    queries_of_key = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_query = queries_of_key < GROUPS * length
    group, column = queries_of_key // length, queries_of_key % length
    channels = tl.arange(0, HEAD_WIDTH)
    inner = KV_HEADS * GROUPS * HEAD_WIDTH
    places = ((batch * length + column) * inner + (kv_head * GROUPS + group) * HEAD_WIDTH)[:, None]
    places += channels[None]
    queries = tl.load(query + places, mask=is_query[:, None], other=0.0) * scale
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, HEAD_WIDTH), dtype=tl.float32)
    memory = kv + batch * row_stride + kv_head * head_stride
    for start in range(0, positions, BLOCK_S):
        slots = start + tl.arange(0, BLOCK_S)
        is_slot = slots < positions
        slot_places = slots[:, None] * HEAD_WIDTH + channels[None]
        keys = tl.load(memory + slot_places, mask=is_slot[:, None], other=0.0)
        values = tl.load(memory + part_stride + slot_places, mask=is_slot[:, None], other=0.0)
        seen = tl.load(
            visible + batch * visible_stride + queries_of_key[:, None] * positions + slots[None],
            mask=is_query[:, None] & is_slot[None],
            other=0,
        )
        largest, weight_sum, total = softmax_step(queries, keys, values, seen, largest, weight_sum, total)
    tl.store(attended + places, softmax_result(weight_sum, total), mask=is_query[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _project_gated_kernel(  # type: ignore[no-untyped-def]
    x, norm_weight, matrix, result, row_count,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr, INNER: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    gate, up = _two_scaled_products(
        x, norm_weight, matrix, rows, is_row, columns, INNER + columns,
        WIDTH, PADDED_WIDTH, EPSILON, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    gated = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(result + rows[:, None] * INNER + columns[None], gated, mask=is_row[:, None])


def project_to_memory(
    x: Tensor,
    norm_weight: Tensor,
    epsilon: float,
    matrix: Tensor,
    bias: Tensor,
    rotation: tuple[Tensor, Tensor],
    kv: Tensor,
    write_positions: Tensor,
) -> Tensor:
    """Rotated queries, (B, T, heads * d) float32; rotated keys, and values, are written to the memory.

    x: (B, T, C) float32, normed by its root mean square. matrix: ((heads + 2 kv_heads) d, C). bias: as many.
    rotation: cosines and signed sines, (B, 1, T, d) float32 each. kv: (B, 2, kv_heads, positions, d), the
    last two axes contiguous. write_positions: (B, T) int64.
    """
    batch, length, width = x.shape
    kv_heads, head_width = kv.shape[2], kv.shape[4]
    all_heads = len(matrix) // head_width
    heads = all_heads - 2 * kv_heads
    query = x.new_empty(batch, length, heads * head_width)
    cosines, sines = rotation
    _project_to_memory_kernel[triton.cdiv(batch * length, _DECODE_ROWS), all_heads](
        x, norm_weight, matrix, bias, cosines, sines, query, kv, write_positions,
        batch * length, length, write_positions.stride(0), *kv.stride()[:3],
        WIDTH=width, PADDED_WIDTH=triton.next_power_of_2(width), EPSILON=epsilon,
        HEADS=heads, KV_HEADS=kv_heads, HALF=head_width // 2,
        BLOCK_M=_DECODE_ROWS, BLOCK_K=product_depth(width),
    )  # fmt: skip
    return query


def attend_memory(query: Tensor, kv: Tensor, visible: Tensor) -> Tensor:
    """Attention of a step over the memory of its rows: (B, T, heads * d) float32.

    query: (B, T, heads * d) float32. kv: as in ``project_to_memory``. visible: (B, 1, G * T, P) bool, for G
    queries a key, which of the first P positions a query sees.
    """
    batch, length, inner = query.shape
    kv_heads, head_width = kv.shape[2], kv.shape[4]
    groups = inner // head_width // kv_heads
    attended = torch.empty_like(query)
    grid = (batch * kv_heads, triton.cdiv(groups * length, _DECODE_ROWS))
    _attend_memory_kernel[grid](
        query, kv, visible, attended,
        length, visible.shape[3], visible.stride(0), *kv.stride()[:3], LOG2_E * head_width**-0.5,
        KV_HEADS=kv_heads, GROUPS=groups, HEAD_WIDTH=head_width, BLOCK_M=_DECODE_ROWS, BLOCK_S=64,
    )  # fmt: skip
    return attended


def project_gated(x: Tensor, norm_weight: Tensor, epsilon: float, matrix: Tensor) -> Tensor:
    """``silu(gate) * up`` of rows normed by their root mean square: (..., D) float32.

    x: (..., C). matrix: (2 D, C), gates first.
    """
    width, inner = matrix.shape[1], len(matrix) // 2
    count = x.numel() // width
    result = x.new_empty(*x.shape[:-1], inner)
    block_n = 32
    _project_gated_kernel[triton.cdiv(count, _DECODE_ROWS), inner // block_n](
        x, norm_weight, matrix, result, count,
        WIDTH=width, PADDED_WIDTH=triton.next_power_of_2(width), EPSILON=epsilon, INNER=inner,
        BLOCK_M=_DECODE_ROWS, BLOCK_N=block_n, BLOCK_K=product_depth(width),
    )  # fmt: skip
    return result
