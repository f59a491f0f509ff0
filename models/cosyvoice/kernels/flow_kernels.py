"""Kernels in Triton for the estimators: a transformer block on pages in seven launches, 22 and more in torch.

                                                                       version 2        version 3
    norm                                                               layer_norm       modulated_norm
    queries, keys, values; keys and values to their pages              project_to_pages
    attention over the pages of each row                               attend_pages
    product, bias, gate, residual                                      product
    norm                                                               layer_norm       modulated_norm
    product, bias, GELU                                                product
    product, bias, gate, residual                                      product

Imported only where ``has_fused_kernels`` says so.

Source: PagedAttention (arXiv:2309.06180) for page tables.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..flow.attention_plan import PagedAttentionPlan
from .fused_kernels import (
    BUSY_PROGRAMS,
    LOG2_E,
    attention_parts,
    await_inputs,
    launch_next,
    launch_options,
    multiply_by_matrix,
    part_buffer,
    product_tile,
    softmax_step,
    store_attention,
)

_QUERIES = (32, 16)  # of a program; the more, the less often keys and values are read
_SLOTS = 128  # that a program attends to at once


@triton.jit  # type: ignore[untyped-decorator]
def _project_to_pages_kernel(  # type: ignore[no-untyped-def]
    x, halves, bias, cosines, sines, query, pool, written_pages,
    row_count, length, written_stride, block, page_stride, part_stride, slot_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, HAS_BIAS: tl.constexpr, ROTATED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    first = tl.program_id(1) * BLOCK_N
    columns = first + tl.arange(0, BLOCK_N)
    await_inputs(EARLY)
    product = multiply_by_matrix(
        x, rows * INNER, is_row, halves, columns, INNER, 3 * WIDTH, BLOCK_M, BLOCK_N, BLOCK_K
    )
    if HAS_BIAS:
        product += tl.load(bias + columns)[None]
    if ROTATED > 0:  # noqa: SIM102 (decided when the kernel is compiled, the next when it runs)
        if (first % WIDTH < ROTATED) & (first < 2 * WIDTH):
            even, odd = tl.split(tl.reshape(product, (BLOCK_M, BLOCK_N // 2, 2)))
            channels = first % WIDTH + 2 * tl.arange(0, BLOCK_N // 2)
            angles = rows[:, None] * ROTATED + channels[None]
            cosine = tl.load(cosines + angles, mask=is_row[:, None], other=0.0)
            sine = tl.load(sines + angles, mask=is_row[:, None], other=0.0)
            rotated = tl.join(even * cosine - odd * sine, odd * cosine + even * sine)
            product = tl.reshape(rotated, (BLOCK_M, BLOCK_N))
    if first < WIDTH:
        tl.store(query + rows[:, None] * WIDTH + columns[None], product, mask=is_row[:, None])
    else:
        part = first // WIDTH - 1
        frame = rows % length
        page = tl.load(
            written_pages + (rows // length) * written_stride + frame // block, mask=is_row, other=0
        )
        place = page * page_stride + part * part_stride + (frame % block) * slot_stride
        target = pool + place[:, None] + (columns - (part + 1) * WIDTH)[None]
        tl.store(target, product.to(pool.dtype.element_ty), mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _attend_pages_kernel(  # type: ignore[no-untyped-def]
    query, pool, page_table, visible, slots_in_use, attended, parts, counters,
    length, query_count, slots_per_row, table_stride, block, page_stride, part_stride, slot_stride, scale,
    HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    frames = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    part = tl.program_id(2)
    is_frame = frames < length
    rows = row * length + frames
    channels = head * HEAD_WIDTH + tl.arange(0, HEAD_WIDTH)
    places = rows[:, None] * (HEADS * HEAD_WIDTH) + channels[None]
    await_inputs(EARLY)
    queries = tl.load(query + places, mask=is_frame[:, None], other=0.0) * scale
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, HEAD_WIDTH), dtype=tl.float32)
    slot_count = tl.load(slots_in_use + row)
    part_slots = tl.cdiv(slot_count, PARTS * BLOCK_S) * BLOCK_S
    for start in range(part * part_slots, tl.minimum(slot_count, (part + 1) * part_slots), BLOCK_S):
        slots = start + tl.arange(0, BLOCK_S)
        is_slot = slots < slot_count
        page = tl.load(page_table + row * table_stride + slots // block, mask=is_slot, other=0)
        slot_places = (page * page_stride + (slots % block) * slot_stride)[:, None] + channels[None]
        keys = tl.load(pool + slot_places, mask=is_slot[:, None], other=0.0)
        values = tl.load(pool + part_stride + slot_places, mask=is_slot[:, None], other=0.0)
        seen = tl.load(
            visible + rows[:, None] * slots_per_row + slots[None],
            mask=is_frame[:, None] & is_slot[None],
            other=0,
        )
        largest, weight_sum, total = softmax_step(queries, keys, values, seen, largest, weight_sum, total)
    store_attention(
        largest, weight_sum, total, rows * HEADS + head, is_frame, attended, parts,
        counters + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), part, query_count,
        HEAD_WIDTH, PARTS,
    )  # fmt: skip


def project_to_pages(
    x: Tensor,
    halves: Tensor,
    bias: Tensor | None,
    pool: Tensor,
    written_pages: Tensor,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Queries of a chunk, (N, T, D) float32; its keys and values are written to their pages.

    x: (N, T, C) float32, normed. halves: (2, 3 D, C), of the matrix of queries, keys and values. bias: (3
    D,). pool: (pages, 2, block, D), of any float type. written_pages: (N, T / block) int64. rotation: cosines
    and sines for the first channels of queries and keys, (N, T, channels) each, of neighbours the same.
    Channels and D are multiples of 64.
    """
    batch, length, inner = x.shape
    width = halves.shape[1] // 3
    query = x.new_empty(batch, length, width)
    tile = product_tile(batch * length, 3 * width, inner, x.device)
    _project_to_pages_kernel[triton.cdiv(batch * length, tile.rows), 3 * width // tile.columns](
        x, halves, x if bias is None else bias, *(rotation or (x, x)), query, pool, written_pages,
        batch * length, length, written_pages.stride(0), pool.shape[2], *pool.stride()[:3],
        INNER=inner, WIDTH=width, HAS_BIAS=bias is not None, ROTATED=rotation[0].shape[2] if rotation else 0,
        **tile.options, **launch_options(x.device),
    )  # fmt: skip
    return query


def attend_pages(query: Tensor, pool: Tensor, plan: PagedAttentionPlan, heads: int) -> Tensor:
    """Attention of a chunk over its pages: (N, T, D) float32.

    query: (N, T, D) float32. pool: (pages, 2, block, D) float32 or float16. Raises ValueError if the plan is
    for fewer heads.
    """
    batch, length, inner = query.shape
    attended = torch.empty_like(query)
    head_width, slots = inner // heads, plan.visible_mask.shape[3]
    block_m = next((size for size in _QUERIES if _programs(batch, heads, length, size) >= BUSY_PROGRAMS), 16)
    programs = _programs(batch, heads, length, block_m)
    parts = attention_parts(programs, slots, _SLOTS)
    if parts > 1 and programs > plan.part_counters.numel():
        raise ValueError(f"the plan counts {plan.part_counters.numel()} programs of {programs}")
    _attend_pages_kernel[batch * heads, triton.cdiv(length, block_m), parts](
        query, pool, plan.page_table, plan.visible_mask, plan.slots_in_use, attended,
        part_buffer(parts, batch * length * heads, head_width, query.device), plan.part_counters,
        length, batch * length * heads, slots,
        plan.page_table.stride(0), pool.shape[2], *pool.stride()[:3], LOG2_E * head_width**-0.5,
        HEADS=heads, HEAD_WIDTH=head_width, PARTS=parts, BLOCK_M=block_m, BLOCK_S=_SLOTS,
        num_warps=4, num_stages=2, **launch_options(query.device),
    )  # fmt: skip
    return attended


def _programs(batch: int, heads: int, length: int, block_m: int) -> int:
    tiles: int = triton.cdiv(length, block_m)
    return batch * heads * tiles
