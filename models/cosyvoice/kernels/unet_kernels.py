"""Kernels in Triton for the v2 estimator: a transformer block on pages in five launches, 22 in torch.

    norm, queries, keys, values; keys and values to their pages        project_to_pages
    attention over the pages of each row                               attend_pages
    product, bias, residual                                            add_product
    norm, product, bias, GELU                                          project_normed
    product, bias, residual                                            add_product

A convolution with norm and Mish takes two. On an H200, before and after: a chunk of 1 s in the whole flow 91
and 53 ms, four chunks in one step 137 and 101 ms.

Imported only where ``has_fused_kernels`` says so.

Source: PagedAttention (arXiv:2309.06180) for page tables.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from ...networks.fused_kernels import LOG2_E, product_depth, product_tile, softmax_result, softmax_step


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
        largest, weight_sum, total = softmax_step(queries, keys, values, seen, largest, weight_sum, total)
    tl.store(attended + places, softmax_result(weight_sum, total), mask=is_frame[:, None])


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


def project_to_pages(
    x: Tensor,
    norm: nn.LayerNorm,
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
    block_m, block_n = product_tile(batch * length, 3 * inner)
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
        LOG2_E * head_width**-0.5,
        HEADS=heads, HEAD_WIDTH=head_width, BLOCK_M=block_m, BLOCK_S=64,
    )  # fmt: skip
    return attended


def project_normed(x: Tensor, norm: nn.LayerNorm, matrix: Tensor, bias: Tensor) -> Tensor:
    """GELU of a product with normed rows: (..., D) float32. x: (..., C). matrix: (D, C)."""
    outputs, width = matrix.shape
    count = x.numel() // width
    result = x.new_empty(*x.shape[:-1], outputs)
    block_m, block_n = product_tile(count, outputs)
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
    block_m, block_n = product_tile(batch * length, outputs)
    _causal_conv_kernel[triton.cdiv(batch * length, block_m), outputs // block_n](
        x, context, matrix, bias, result, batch * length, length, context.stride(0),
        KERNEL=kernel, INPUTS=inputs, OUTPUTS=outputs,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=product_depth(inputs),
    )  # fmt: skip
    return result


def norm_mish(x: Tensor, norm: nn.LayerNorm, offset: Tensor | None = None) -> Tensor:
    """Mish of normed rows, and an offset added: (N, T, C) float32. offset: (1 or N, 1, C), contiguous."""
    batch, length, width = x.shape
    result, block_m = torch.empty_like(x), 4
    rows_per_offset = length if offset is not None and len(offset) > 1 else batch * length
    _norm_mish_kernel[(triton.cdiv(batch * length, block_m),)](
        x, norm.weight, norm.bias, x if offset is None else offset, result, batch * length, rows_per_offset,
        WIDTH=width, EPSILON=norm.eps, HAS_OFFSET=offset is not None, BLOCK_M=block_m,
    )  # fmt: skip
    return result
