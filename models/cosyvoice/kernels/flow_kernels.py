"""A transformer block of the estimators in one launch, on pages.

                                                                   version 2     version 3
    norm, queries, keys, values; keys and values to their pages    layer norm    modulated norm, rotation
    attention over the pages of each row
    product, bias, residual                                                      gate, frame mask
    norm, product, bias, GELU                                      layer norm    modulated norm
    product, bias, residual                                                      gate

Each line is a phase of ``chained_programs``; a program computes a tile of a product, or some queries of a
head.
Imported only where ``has_fused_kernels`` says so.

Source: PagedAttention (arXiv:2309.06180) for page tables.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...kernels.chained_programs import await_phase, end_program, new_counters, take_ticket
from ...kernels.fused_kernels import (
    BUSY_PROGRAMS,
    LOG2_E,
    attention_parts,
    await_inputs,
    launch_next,
    launch_options,
    multiply_by_matrix,
    multiply_normed_by_matrix,
    part_buffer,
    product_tile,
    softmax_step,
    store_attention,
    store_product,
)
from ..flow.attention_plan import PagedAttentionPlan

_QUERIES = (32, 16)  # of a program; the more, the less often keys and values are read
_SLOTS = 64  # that a program attends to at once
_PHASES = 5
_STAGES = 2  # of a loop: tiles that are read ahead


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """Weights of a transformer block. Matrices are halves (2 or 1, outputs, inputs) float16."""

    # Scale and shift before attention, and before the products, (C,) each or (N, C) with one stride.
    norms: tuple[Tensor, Tensor, Tensor, Tensor]
    base: float  # added to the scales
    epsilon: float  # of both norms
    qkv: Tensor
    qkv_bias: Tensor | None
    output: tuple[Tensor, Tensor]  # and its bias, as the next two
    widen: tuple[Tensor, Tensor]
    narrow: tuple[Tensor, Tensor]
    activation: Literal["gelu", "gelu by tanh"]
    gates: tuple[Tensor, Tensor] | None = None  # of attention and of the products, as ``norms``


def new_block_counters(device: torch.device) -> Tensor:
    """Counters of the launches of blocks that follow each other."""
    return new_counters(_PHASES, device)


@triton.jit  # type: ignore[untyped-decorator]
def _project_to_pages(  # type: ignore[no-untyped-def]
    row_tile, column_tile, x, norm_weight, norm_bias, halves, bias, cosines, sines, query, pool,
    written_pages, row_count, length, norm_stride, written_stride, block,
    page_stride, part_stride, slot_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, EPSILON: tl.constexpr, BASE: tl.constexpr,
    HAS_BIAS: tl.constexpr, ROTATED: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of the queries, or of keys or values, which are written to their pages."""
    rows = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    first = column_tile * BLOCK_N
    columns = first + tl.arange(0, BLOCK_N)
    product = multiply_normed_by_matrix(
        x, rows, is_row, norm_weight, norm_bias, halves, columns, length, norm_stride,
        INNER, 3 * WIDTH, EPSILON, BASE, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
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
def _attend_pages(  # type: ignore[no-untyped-def]
    row_and_head, tile, part, query, pool, page_table, visible, slots_in_use, attended, parts, counter,
    length, query_count, slots_per_row, table_stride, block, page_stride, part_stride, slot_stride, scale,
    HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, PARTS: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Attention of some frames of a row over a part of its pages, one head."""
    row, head = row_and_head // HEADS, row_and_head % HEADS
    frames = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    is_frame = frames < length
    rows = row * length + frames
    channels = head * HEAD_WIDTH + tl.arange(0, HEAD_WIDTH)
    places = rows[:, None] * (HEADS * HEAD_WIDTH) + channels[None]
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
        largest, weight_sum, total = softmax_step(
            queries, keys, values, seen, largest, weight_sum, total, EXACT
        )
    store_attention(
        largest, weight_sum, total, rows * HEADS + head, is_frame, attended, parts, counter, part,
        query_count, HEAD_WIDTH, PARTS,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _multiply(  # type: ignore[no-untyped-def]
    row_tile, column_tile, x, halves, bias, gate, frame_mask, residual, result,
    row_count, length, norm_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, HAS_GATE: tl.constexpr, HAS_MASK: tl.constexpr,
    EXACT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of a product that is added to a residual."""
    rows = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = column_tile * BLOCK_N + tl.arange(0, BLOCK_N)
    product = multiply_by_matrix(
        x, x, rows, is_row, halves, columns, 1, 0, INNER, WIDTH, 1, EXACT, BLOCK_M, BLOCK_N, BLOCK_K
    )
    store_product(
        product, rows, is_row, columns, bias, gate, frame_mask, residual, result, length, norm_stride,
        WIDTH, "none", HAS_GATE, HAS_MASK, True,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _widen(  # type: ignore[no-untyped-def]
    row_tile, column_tile, x, norm_weight, norm_bias, halves, bias, result, row_count, length, norm_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, EPSILON: tl.constexpr, BASE: tl.constexpr,
    ACTIVATION: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of a product of normed rows, activated."""
    rows = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = column_tile * BLOCK_N + tl.arange(0, BLOCK_N)
    product = multiply_normed_by_matrix(
        x, rows, is_row, norm_weight, norm_bias, halves, columns, length, norm_stride,
        INNER, WIDTH, EPSILON, BASE, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    store_product(
        product,
        rows,
        is_row,
        columns,
        bias,
        bias,
        bias,
        x,
        result,
        1,
        0,
        WIDTH,
        ACTIVATION,
        False,
        False,
        False,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _block_kernel(  # type: ignore[no-untyped-def]
    x, query, attended, between, widened, result, pool, parts, part_counters, counters,
    norm_weight, norm_bias, wide_norm_weight, wide_norm_bias, qkv, qkv_bias, output, output_bias,
    widen, widen_bias, narrow, narrow_bias, gate, wide_gate, cosines, sines,
    page_table, visible, slots_in_use, written_pages, frame_mask,
    row_count, length, norm_stride, query_count, slots_per_row, table_stride, written_stride, block,
    page_stride, part_stride, slot_stride, scale, query_tiles, projecting, attending, adding, widening,
    WIDTH: tl.constexpr, INNER: tl.constexpr, WIDE: tl.constexpr, HEADS: tl.constexpr,
    EPSILON: tl.constexpr, BASE: tl.constexpr, HAS_BIAS: tl.constexpr, ROTATED: tl.constexpr,
    HAS_GATE: tl.constexpr, HAS_MASK: tl.constexpr, ACTIVATION: tl.constexpr, PARTS: tl.constexpr,
    EXACT: tl.constexpr, QUERIES: tl.constexpr, SLOTS: tl.constexpr,
    WIDE_M: tl.constexpr, WIDE_N: tl.constexpr, WIDE_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    await_inputs(EARLY)
    program, phase = take_ticket(counters), 0
    programs = projecting + attending + 2 * adding + widening
    if program < projecting:
        _project_to_pages(
            program // (3 * INNER // WIDE_N), program % (3 * INNER // WIDE_N), x, norm_weight, norm_bias,
            qkv, qkv_bias, cosines, sines, query, pool, written_pages, row_count, length, norm_stride,
            written_stride, block, page_stride, part_stride, slot_stride,
            WIDTH, INNER, EPSILON, BASE, HAS_BIAS, ROTATED, EXACT, WIDE_M, WIDE_N, WIDE_K,
        )  # fmt: skip
    elif program < projecting + attending:
        phase = 1
        await_phase(counters, 0, projecting)
        program -= projecting
        _attend_pages(
            program // (query_tiles * PARTS), program // PARTS % query_tiles, program % PARTS,
            query, pool, page_table, visible, slots_in_use, attended, parts, part_counters + program // PARTS,
            length, query_count, slots_per_row, table_stride, block, page_stride, part_stride, slot_stride,
            scale, HEADS, INNER // HEADS, PARTS, EXACT, QUERIES, SLOTS,
        )  # fmt: skip
    elif program < projecting + attending + adding:
        phase = 2
        await_phase(counters, 1, attending)
        program -= projecting + attending
        _multiply(
            program // (WIDTH // BLOCK_N), program % (WIDTH // BLOCK_N), attended, output, output_bias,
            gate, frame_mask, x, between, row_count, length, norm_stride,
            INNER, WIDTH, HAS_GATE, HAS_MASK, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    elif program < programs - adding:
        phase = 3
        await_phase(counters, 2, adding)
        program -= projecting + attending + adding
        _widen(
            program // (WIDE // WIDE_N), program % (WIDE // WIDE_N), between, wide_norm_weight,
            wide_norm_bias, widen, widen_bias, widened, row_count, length, norm_stride,
            WIDTH, WIDE, EPSILON, BASE, ACTIVATION, EXACT, WIDE_M, WIDE_N, WIDE_K,
        )  # fmt: skip
    else:
        phase = 4
        await_phase(counters, 3, widening)
        program -= programs - adding
        _multiply(
            program // (WIDTH // BLOCK_N), program % (WIDTH // BLOCK_N), widened, narrow, narrow_bias,
            wide_gate, frame_mask, between, result, row_count, length, norm_stride,
            WIDE, WIDTH, HAS_GATE, False, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    end_program(counters, phase, 5, programs)


def run_block(
    x: Tensor,
    weights: BlockWeights,
    pool: Tensor,
    plan: PagedAttentionPlan,
    heads: int,
    counters: Tensor,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """A transformer block: (N, T, C) float32; keys and values of the chunk are written to their pages.

    x: (N, T, C) float32. pool: (pages, 2, block, D), of any float type. counters: of ``new_block_counters``.
    rotation: cosines and sines for the first channels of queries and keys, (N, T, channels) each, of
    neighbours the same. Channels and D are multiples of 64. Raises ValueError if the plan is for fewer heads.
    """
    batch, length, width = x.shape
    rows, inner, wide = batch * length, weights.qkv.shape[1] // 3, weights.widen[0].shape[1]
    slots = plan.visible_mask.shape[3]
    queries = next((size for size in _QUERIES if _tiles(batch, heads, length, size) >= BUSY_PROGRAMS), 16)
    tiles = _tiles(batch, heads, length, queries)
    parts = attention_parts(tiles, slots, _SLOTS)
    if parts > 1 and tiles > plan.part_counters.numel():
        raise ValueError(f"the plan counts {plan.part_counters.numel()} programs of {tiles}")
    large = product_tile(rows, wide, width, x.device)
    small = product_tile(rows, width, inner, x.device)
    row_tiles, small_row_tiles = triton.cdiv(rows, large.rows), triton.cdiv(rows, small.rows)
    projecting, widening = (row_tiles * columns // large.columns for columns in (3 * inner, wide))
    adding = small_row_tiles * width // small.columns
    query, attended = x.new_empty(rows, inner), x.new_empty(rows, inner)
    between, widened, result = torch.empty_like(x), x.new_empty(rows, wide), torch.empty_like(x)
    _block_kernel[(projecting + tiles * parts + 2 * adding + widening,)](
        x, query, attended, between, widened, result, pool,
        part_buffer(parts, rows * heads, inner // heads, x.device), plan.part_counters, counters,
        *weights.norms, weights.qkv, x if weights.qkv_bias is None else weights.qkv_bias,
        *weights.output, *weights.widen, *weights.narrow, *(weights.gates or (x, x)), *(rotation or (x, x)),
        plan.page_table, plan.visible_mask, plan.slots_in_use, plan.written_pages,
        x if plan.frame_mask is None else plan.frame_mask,
        rows, length, weights.norms[0].stride(0) if weights.norms[0].ndim > 1 else 0, rows * heads, slots,
        plan.page_table.stride(0), plan.written_pages.stride(0),
        pool.shape[2], *pool.stride()[:3], LOG2_E * (inner // heads) ** -0.5,
        triton.cdiv(length, queries), projecting, tiles * parts, adding, widening,
        WIDTH=width, INNER=inner, WIDE=wide, HEADS=heads, EPSILON=weights.epsilon, BASE=weights.base,
        HAS_BIAS=weights.qkv_bias is not None, ROTATED=rotation[0].shape[2] if rotation else 0,
        HAS_GATE=weights.gates is not None,
        HAS_MASK=weights.gates is not None and plan.frame_mask is not None,
        ACTIVATION=weights.activation, PARTS=parts, EXACT=len(weights.qkv) == 2,
        QUERIES=queries, SLOTS=_SLOTS,
        WIDE_M=large.rows, WIDE_N=large.columns, WIDE_K=large.depth,
        BLOCK_M=small.rows, BLOCK_N=small.columns, BLOCK_K=small.depth,
        num_warps=4 if large.rows < 64 else 8, num_stages=_STAGES, **launch_options(x.device),
    )  # fmt: skip
    return result


def _tiles(batch: int, heads: int, length: int, queries: int) -> int:
    tiles: int = triton.cdiv(length, queries)
    return batch * heads * tiles
