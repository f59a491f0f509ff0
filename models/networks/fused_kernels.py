"""Kernels in Triton for transformer blocks on a GPU: several operations of a chunk in one launch.

A chunk has 50 to 400 frames and a decoding step a few rows, so that an operation computes for less time than
its launch takes, and the number of launches is what a step costs. A block of the flow's estimator is five
launches here and 22 in torch:

    norm, queries, keys, values; keys and values to their pages        project_to_pages
    attention over the pages of each row                               attend_pages
    product, bias, residual                                            add_product
    norm, product, bias, GELU                                          project_normed
    product, bias, residual                                            add_product

A layer of the language model, with matrices of 16 bits, is five as well, and 17 in torch:

    norm, queries, keys, values; rotation; keys and values to the memory      project_to_memory
    attention over the memory of each row                                     attend_memory
    product, residual                                                         add_product
    norm, two products, gated SiLU                                            project_gated
    product, residual                                                         add_product

Sums are float32. Where a matrix is float32, each factor is split into three TF32 parts (``tf32x3``), which
keeps the accuracy of float32 and uses tensor cores; where it has 16 bits, its input is rounded to them.

On an H200, before and after: a chunk of 1 s of the v2 flow 91 and 53 ms, four chunks in one step 137 and
101 ms, a token of the language model in bf16 2.8 and 2.1 ms. In float32 a token was slower, 2.7 and 3.4 ms.

Imported only where Triton is installed, which torch for CUDA brings along.

Source: FlashAttention-2 (arXiv:2307.08691) for softmax in one pass; PagedAttention (arXiv:2309.06180) for
page tables; 3xTF32 as in CUTLASS, ``examples/28_ampere_3xtf32_fast_accurate_tensorop_gemm``.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_LOG2_E = 1.4426950408889634


@triton.jit  # type: ignore[untyped-decorator]
def _row_moments(x, rows, is_row, WIDTH: tl.constexpr, EPSILON: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mean and inverse deviation of rows, (BLOCK_M,) each."""
    columns = tl.arange(0, WIDTH)
    values = tl.load(x + rows[:, None] * WIDTH + columns[None], mask=is_row[:, None], other=0.0)
    mean = tl.sum(values, 1) / WIDTH
    centred = values - mean[:, None]
    return mean, 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + EPSILON)


@triton.jit  # type: ignore[untyped-decorator]
def _normed_product(  # type: ignore[no-untyped-def]
    x, norm_weight, norm_bias, matrix, rows, is_row, columns,
    WIDTH: tl.constexpr, EPSILON: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Layer norm of rows of x (M, WIDTH), times rows of a matrix (N, WIDTH): (BLOCK_M, BLOCK_N)."""
    mean, scale = _row_moments(x, rows, is_row, WIDTH, EPSILON)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        part = tl.load(x + rows[:, None] * WIDTH + inner[None], mask=is_row[:, None], other=0.0)
        weight, bias = tl.load(norm_weight + inner), tl.load(norm_bias + inner)
        normed = (part - mean[:, None]) * scale[:, None] * weight[None] + bias[None]
        factors = tl.load(matrix + columns[:, None] * WIDTH + inner[None])
        total = tl.dot(normed, tl.trans(factors), total, input_precision="tf32x3")
    return total


@triton.jit  # type: ignore[untyped-decorator]
def _project_to_pages_kernel(  # type: ignore[no-untyped-def]
    x, norm_weight, norm_bias, query_matrix, key_value_matrix, query, pool, written_pages,
    row_count, length, written_stride, block, page_stride, part_stride, slot_stride,
    WIDTH: tl.constexpr, INNER: tl.constexpr, EPSILON: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    first = tl.program_id(1) * BLOCK_N
    columns = first + tl.arange(0, BLOCK_N)
    if first < INNER:
        product = _normed_product(
            x, norm_weight, norm_bias, query_matrix, rows, is_row, columns,
            WIDTH, EPSILON, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
        tl.store(query + rows[:, None] * INNER + columns[None], product, mask=is_row[:, None])
    else:
        product = _normed_product(
            x, norm_weight, norm_bias, key_value_matrix, rows, is_row, columns - INNER,
            WIDTH, EPSILON, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
        part = (first - INNER) // INNER
        frame = rows % length
        page = tl.load(
            written_pages + (rows // length) * written_stride + frame // block, mask=is_row, other=0
        )
        place = page * page_stride + part * part_stride + (frame % block) * slot_stride
        target = pool + place[:, None] + (columns - INNER - part * INNER)[None]
        tl.store(target, product.to(pool.dtype.element_ty), mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _attend_pages_kernel(  # type: ignore[no-untyped-def]
    query, pool, page_table, visible, slots_in_use, attended,
    length, slots_per_row, table_stride, block, page_stride, part_stride, slot_stride, scale,
    HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    frames = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_frame = frames < length
    channels = head * HEAD_WIDTH + tl.arange(0, HEAD_WIDTH)
    places = (row * length + frames)[:, None] * (HEADS * HEAD_WIDTH) + channels[None]
    queries = tl.load(query + places, mask=is_frame[:, None], other=0.0) * scale
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, HEAD_WIDTH), dtype=tl.float32)
    slot_count = tl.load(slots_in_use + row)
    for start in range(0, slot_count, BLOCK_S):
        slots = start + tl.arange(0, BLOCK_S)
        is_slot = slots < slot_count
        page = tl.load(page_table + row * table_stride + slots // block, mask=is_slot, other=0)
        slot_places = (page * page_stride + (slots % block) * slot_stride)[:, None] + channels[None]
        keys = tl.load(pool + slot_places, mask=is_slot[:, None], other=0.0).to(tl.float32)
        values = tl.load(pool + part_stride + slot_places, mask=is_slot[:, None], other=0.0).to(tl.float32)
        seen = tl.load(
            visible + (row * length + frames)[:, None] * slots_per_row + slots[None],
            mask=is_frame[:, None] & is_slot[None],
            other=0,
        )
        scores = tl.dot(queries, tl.trans(keys), input_precision="tf32x3")
        scores = tl.where(seen != 0, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        # A frame that has seen nothing yet has weights of 0, not of exp(-inf + inf).
        reference = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weights = tl.exp2(scores - reference[:, None])
        rescale = tl.exp2(largest - reference)
        weight_sum = weight_sum * rescale + tl.sum(weights, 1)
        total = tl.dot(weights, values, total * rescale[:, None], input_precision="tf32x3")
        largest = new_largest
    result = total / tl.where(weight_sum == 0.0, 1.0, weight_sum)[:, None]
    tl.store(attended + places, result, mask=is_frame[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _add_product_kernel(  # type: ignore[no-untyped-def]
    x, matrix, bias, residual, result, row_count,
    INNER: tl.constexpr, WIDTH: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, INNER, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        part = tl.load(x + rows[:, None] * INNER + inner[None], mask=is_row[:, None], other=0.0)
        factors = tl.load(matrix + columns[:, None] * INNER + inner[None])
        total = tl.dot(part.to(factors.dtype), tl.trans(factors), total, input_precision="tf32x3")
    places = rows[:, None] * WIDTH + columns[None]
    total += tl.load(residual + places, mask=is_row[:, None], other=0.0)
    if HAS_BIAS:
        total += tl.load(bias + columns)[None]
    tl.store(result + places, total, mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _project_normed_kernel(  # type: ignore[no-untyped-def]
    x, norm_weight, norm_bias, matrix, bias, result, row_count,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, EPSILON: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    product = _normed_product(
        x, norm_weight, norm_bias, matrix, rows, is_row, columns,
        WIDTH, EPSILON, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    product += tl.load(bias + columns)[None]
    gelu = 0.5 * product * (1.0 + tl.erf(product * 0.7071067811865476))
    tl.store(result + rows[:, None] * OUTPUTS + columns[None], gelu, mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _causal_conv_kernel(  # type: ignore[no-untyped-def]
    x, context, matrix, bias, result, row_count, length, context_stride,
    KERNEL: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    batch, frame = rows // length, rows % length
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, KERNEL * INPUTS // BLOCK_K):
        lag = step * BLOCK_K // INPUTS
        inner = step * BLOCK_K % INPUTS + tl.arange(0, BLOCK_K)
        earlier = frame + lag - (KERNEL - 1)
        is_new = earlier >= 0
        new = tl.load(
            x + (batch * length + earlier)[:, None] * INPUTS + inner[None],
            mask=(is_row & is_new)[:, None],
            other=0.0,
        )
        old = tl.load(
            context + (batch * context_stride + (earlier + KERNEL - 1) * INPUTS)[:, None] + inner[None],
            mask=(is_row & (earlier < 0))[:, None],
            other=0.0,
        )
        factors = tl.load(matrix + columns[:, None] * (KERNEL * INPUTS) + (lag * INPUTS + inner)[None])
        total = tl.dot(new + old, tl.trans(factors), total, input_precision="tf32x3")
    total += tl.load(bias + columns)[None]
    tl.store(result + rows[:, None] * OUTPUTS + columns[None], total, mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _norm_mish_kernel(  # type: ignore[no-untyped-def]
    x, norm_weight, norm_bias, offset, result, row_count, rows_per_offset,
    WIDTH: tl.constexpr, EPSILON: tl.constexpr, HAS_OFFSET: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = tl.arange(0, WIDTH)
    places = rows[:, None] * WIDTH + columns[None]
    mean, scale = _row_moments(x, rows, is_row, WIDTH, EPSILON)
    values = tl.load(x + places, mask=is_row[:, None], other=0.0)
    weight, bias = tl.load(norm_weight + columns), tl.load(norm_bias + columns)
    normed = (values - mean[:, None]) * scale[:, None] * weight[None] + bias[None]
    # x tanh(log(1 + e^x)) with e^x = e: x (e^2 + 2 e) / (e^2 + 2 e + 2); above 20 it is x.
    exponential = tl.exp(tl.minimum(normed, 20.0))
    ratio = exponential * (exponential + 2.0)
    mish = normed * ratio / (ratio + 2.0)
    if HAS_OFFSET:
        mish += tl.load(
            offset + (rows // rows_per_offset)[:, None] * WIDTH + columns[None],
            mask=is_row[:, None],
            other=0.0,
        )
    tl.store(result + places, mish, mask=is_row[:, None])


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
        scores = tl.dot(queries, tl.trans(keys), input_precision="tf32x3")
        scores = tl.where(seen != 0, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        reference = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weights = tl.exp2(scores - reference[:, None])
        rescale = tl.exp2(largest - reference)
        weight_sum = weight_sum * rescale + tl.sum(weights, 1)
        total = tl.dot(weights, values, total * rescale[:, None], input_precision="tf32x3")
        largest = new_largest
    result = total / tl.where(weight_sum == 0.0, 1.0, weight_sum)[:, None]
    tl.store(attended + places, result, mask=is_query[:, None])


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


def project_to_pages(
    x: Tensor,
    norm: torch.nn.LayerNorm,
    query_matrix: Tensor,
    key_value_matrix: Tensor,
    pool: Tensor,
    written_pages: Tensor,
) -> Tensor:
    """Queries of a chunk, (N, T, D) float32; its keys and values are written to their pages.

    x: (N, T, C) float32. query_matrix: (D, C). key_value_matrix: (2 D, C). pool: (pages, 2, block, D), of any
    float type. written_pages: (N, T / block) int64.
    """
    batch, length, width = x.shape
    inner = len(query_matrix)
    query = x.new_empty(batch, length, inner)
    block_m, block_n = _tile(batch * length, 3 * inner)
    grid = (triton.cdiv(batch * length, block_m), 3 * inner // block_n)
    _project_to_pages_kernel[grid](
        x, norm.weight, norm.bias, query_matrix, key_value_matrix, query, pool, written_pages,
        batch * length, length, written_pages.stride(0), pool.shape[2], *pool.stride()[:3],
        WIDTH=width, INNER=inner, EPSILON=norm.eps, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=32,
    )  # fmt: skip
    return query


def attend_pages(
    query: Tensor, pool: Tensor, page_table: Tensor, visible: Tensor, slots_in_use: Tensor, heads: int
) -> Tensor:
    """Attention of a chunk over its pages: (N, T, D) float32.

    query: (N, T, D) float32. pool: as in ``project_to_pages``. page_table: (N, K) int64. visible: (N, 1, T,
    K * block) bool, which slots a frame sees. slots_in_use: (N,) int64, slots after them are seen by none.
    """
    batch, length, inner = query.shape
    attended = torch.empty_like(query)
    head_width, block_m = inner // heads, 16
    grid = (batch * heads, triton.cdiv(length, block_m))
    _attend_pages_kernel[grid](
        query, pool, page_table, visible, slots_in_use, attended,
        length, visible.shape[3], page_table.stride(0), pool.shape[2], *pool.stride()[:3],
        _LOG2_E * head_width**-0.5,
        HEADS=heads, HEAD_WIDTH=head_width, BLOCK_M=block_m, BLOCK_S=64,
    )  # fmt: skip
    return attended


def add_product(x: Tensor, matrix: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
    """``residual + x @ matrix.T + bias``: (..., C) float32, as residual. x: (..., D). matrix: (C, D)."""
    width, inner = matrix.shape
    count = x.numel() // inner
    result = torch.empty_like(residual)
    block_m, block_n = _tile(count, width)
    _add_product_kernel[triton.cdiv(count, block_m), width // block_n](
        x, matrix, x if bias is None else bias, residual, result, count,
        INNER=inner, WIDTH=width, HAS_BIAS=bias is not None,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=_depth(inner),
    )  # fmt: skip
    return result


def project_normed(x: Tensor, norm: torch.nn.LayerNorm, matrix: Tensor, bias: Tensor) -> Tensor:
    """GELU of a product with normed rows: (..., D) float32. x: (..., C). matrix: (D, C)."""
    outputs, width = matrix.shape
    count = x.numel() // width
    result = x.new_empty(*x.shape[:-1], outputs)
    block_m, block_n = _tile(count, outputs)
    _project_normed_kernel[triton.cdiv(count, block_m), outputs // block_n](
        x, norm.weight, norm.bias, matrix, bias, result, count,
        WIDTH=width, OUTPUTS=outputs, EPSILON=norm.eps, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=32,
    )  # fmt: skip
    return result


def convolve(x: Tensor, context: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """A causal convolution, (N, T, D) float32. x: (N, T, C). context: (N, kernel - 1, C), the frames before.

    matrix: (D, kernel * C), of each output first what it takes of the oldest frame. The frames of a row of
    ``context`` are contiguous; its rows may be apart.
    """
    batch, length, inputs = x.shape
    outputs, kernel = len(matrix), context.shape[1] + 1
    result = x.new_empty(batch, length, outputs)
    block_m, block_n = _tile(batch * length, outputs)
    _causal_conv_kernel[triton.cdiv(batch * length, block_m), outputs // block_n](
        x, context, matrix, bias, result, batch * length, length, context.stride(0),
        KERNEL=kernel, INPUTS=inputs, OUTPUTS=outputs,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=_depth(inputs),
    )  # fmt: skip
    return result


def norm_mish(x: Tensor, norm: torch.nn.LayerNorm, offset: Tensor | None = None) -> Tensor:
    """Mish of normed rows, and an offset added: (N, T, C) float32. offset: (1 or N, 1, C), contiguous."""
    batch, length, width = x.shape
    result, block_m = torch.empty_like(x), 4
    rows_per_offset = length if offset is not None and len(offset) > 1 else batch * length
    _norm_mish_kernel[(triton.cdiv(batch * length, block_m),)](
        x, norm.weight, norm.bias, x if offset is None else offset, result, batch * length, rows_per_offset,
        WIDTH=width, EPSILON=norm.eps, HAS_OFFSET=offset is not None, BLOCK_M=block_m,
    )  # fmt: skip
    return result


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
        BLOCK_M=_DECODE_ROWS, BLOCK_K=_depth(width),
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
        length, visible.shape[3], visible.stride(0), *kv.stride()[:3], _LOG2_E * head_width**-0.5,
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
        BLOCK_M=_DECODE_ROWS, BLOCK_N=block_n, BLOCK_K=_depth(width),
    )  # fmt: skip
    return result


# Rows of a decoding step that a program computes: the fewest that tensor cores take.
_DECODE_ROWS = 16


def _tile(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a product that one program computes: small while few of them fill the device."""
    sizes: Sequence[tuple[int, int]] = ((64, 64), (32, 64), (32, 32))
    for block_m, block_n in sizes:
        if columns % block_n == 0 and triton.cdiv(rows, block_m) * (columns // block_n) >= _BUSY_PROGRAMS:
            return block_m, block_n
    return 16, 32 if columns // 32 >= _BUSY_PROGRAMS or columns % 16 else 16


# Programs that keep a large card busy; an H100 has 132 processors.
_BUSY_PROGRAMS = 128


def _depth(inner: int) -> int:
    """Inputs of a product that a program reads at once."""
    return 64 if inner % 64 == 0 else 32
