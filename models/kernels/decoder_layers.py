"""All layers of a language model in one launch, for a step of a few rows.

    of each layer   norm, queries, keys, values; rotation; keys and values to the memory
                    attention over the memory of each row
                    product, residual
                    norm, products, activation
                    product, residual

A decoder without biases is one like Qwen2: norms by the root mean square, and a gated SiLU of two products.
With biases it is one like GPT-2: layer norms, and a GELU in its form by tanh. Either may rotate or not.

Each line is a phase of ``chained_programs``. A step of a few rows takes as long as reading the matrices. So
a program reads a few whole rows of a matrix, waits for the phase before, and multiplies them by every row of
the step without tensor cores, in float32.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..networks.kernel_support import MAX_FUSED_ROWS
from .chained_programs import await_phase, end_program, new_counters, take_ticket
from .fused_kernels import (
    LOG2_E,
    activate,
    attention_parts,
    await_inputs,
    launch_next,
    launch_options,
    part_buffer,
)
from .memory_attention import QUERIES, SLOTS, attend_rows, rotate_and_store

_CHANNEL_PAIRS = 2  # of a program that projects
_INNER_PAIRS = {1: 4, 2: 4, 4: 2}  # of a program that activates, by rows of the step
_OUTPUTS = 2
_DEPTH = 1024  # inputs that a program reads at once
_PHASES = 5  # of a layer


@dataclass(frozen=True, slots=True)
class DecoderBiases:
    """Biases of all layers like those of GPT-2, but for ``qkv_bias``; of any float type."""

    attention_norm: Tensor  # (layers, C)
    output: Tensor  # (layers, C)
    mlp_norm: Tensor  # (layers, C)
    up: Tensor  # (layers, I)
    down: Tensor  # (layers, C)


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Weights of all layers, one behind the other; matrices are float32, bfloat16 or float16."""

    attention_norm: Tensor  # (layers, C) float32
    qkv: Tensor  # (layers, (heads + 2 kv_heads) d, C)
    qkv_bias: Tensor  # (layers, (heads + 2 kv_heads) d)
    output: Tensor  # (layers, C, heads d)
    mlp_norm: Tensor  # (layers, C) float32
    up: Tensor  # (layers, I, C); without biases (layers, 2 I, C), gates first
    down: Tensor  # (layers, C, I)
    biases: DecoderBiases | None
    epsilon: float  # of both norms
    counters: "DecoderCounters"


@dataclass(frozen=True, slots=True)
class DecoderCounters:
    """Counters of the launches of a decoder; int32, all 0 before and after a launch."""

    phases: Tensor  # of ``new_counters``
    parts: Tensor  # (MAX_FUSED_ROWS * heads,), for the parts of an attention


def new_decoder_counters(layers: int, heads: int, device: torch.device) -> DecoderCounters:
    """Counters for that many layers, with heads of queries in each."""
    parts = torch.zeros(MAX_FUSED_ROWS * heads, dtype=torch.int32, device=device)
    return DecoderCounters(new_counters(_PHASES * layers, device), parts)


@triton.jit  # type: ignore[untyped-decorator]
def _normed_rows(  # type: ignore[no-untyped-def]
    x, norm_weight, norm_bias, row_count, WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr,
    EPSILON: tl.constexpr, HAS_BIASES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Rows after their norm: (ROWS, PADDED_WIDTH), 0 beyond WIDTH."""
    rows, inner = tl.arange(0, ROWS), tl.arange(0, PADDED_WIDTH)
    is_value = (rows < row_count)[:, None] & (inner < WIDTH)[None]
    values = tl.load(x + rows[:, None] * WIDTH + inner[None], mask=is_value, other=0.0, cache_modifier=".cg")
    if HAS_BIASES:
        values = tl.where((inner < WIDTH)[None], values - (tl.sum(values, 1) / WIDTH)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 1) / WIDTH + EPSILON)
    weight = tl.load(norm_weight + inner, mask=inner < WIDTH, other=0.0).to(tl.float32)
    normed = values * scale[:, None] * weight[None]
    if HAS_BIASES:
        normed += tl.load(norm_bias + inner, mask=inner < WIDTH, other=0.0).to(tl.float32)[None]
    return normed


@triton.jit
def _multiply_rows(vectors, factors):  # type: ignore[no-untyped-def]
    """Products of vectors (ROWS, K) with rows of a matrix (N, K): (ROWS, N)."""
    return tl.sum(vectors[:, None, :] * factors.to(tl.float32)[None], 2)


@triton.jit  # type: ignore[untyped-decorator]
def _two_products(  # type: ignore[no-untyped-def]
    x, norm_weight, norm_bias, matrix, row_count, columns, distance, counters, phase, awaited,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr, HAS_BIASES: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Normed rows of x times the rows ``columns`` of a matrix, and times those ``distance`` after them."""
    inner = tl.arange(0, PADDED_WIDTH)
    is_inner = (inner < WIDTH)[None]
    places = columns[:, None] * WIDTH + inner[None]
    factors = tl.load(matrix + places, mask=is_inner, other=0.0)
    later_factors = tl.load(matrix + distance * WIDTH + places, mask=is_inner, other=0.0)
    await_phase(counters, phase - 1, awaited)
    normed = _normed_rows(
        x, norm_weight, norm_bias, row_count, WIDTH, PADDED_WIDTH, EPSILON, HAS_BIASES, ROWS
    )
    return _multiply_rows(normed, factors), _multiply_rows(normed, later_factors)


@triton.jit  # type: ignore[untyped-decorator]
def _project(  # type: ignore[no-untyped-def]
    program, x, norm_weight, norm_bias, matrix, bias, cosines, sines, query, kv, write_positions,
    row_count, length, write_stride, row_stride, part_stride, head_stride, counters, phase, awaited,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr, HAS_BIASES: tl.constexpr,
    IS_ROTATED: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Queries, and keys and values in the memory, of some pairs of channels of a head."""
    head = program // (HALF // PAIRS)
    channels = program % (HALF // PAIRS) * PAIRS + tl.arange(0, PAIRS)
    columns = head * 2 * HALF + channels
    low, high = _two_products(
        x, norm_weight, norm_bias, matrix, row_count, columns, HALF, counters, phase, awaited,
        WIDTH, PADDED_WIDTH, EPSILON, HAS_BIASES, ROWS,
    )  # fmt: skip
    low += tl.load(bias + columns)[None].to(tl.float32)
    high += tl.load(bias + columns + HALF)[None].to(tl.float32)
    rows = tl.arange(0, ROWS)
    rotate_and_store(
        low, high, rows, rows < row_count, head, channels, cosines, sines, query, kv, write_positions,
        length, write_stride, row_stride, part_stride, head_stride, IS_ROTATED, HEADS, KV_HEADS, HALF,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _activate_products(  # type: ignore[no-untyped-def]
    program, x, norm_weight, norm_bias, matrix, bias, result, row_count, counters, phase, awaited,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr, HAS_BIASES: tl.constexpr,
    INNER: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """``silu(gate) * up`` of normed rows, some columns; with biases GELU, in both halves of the columns."""
    DISTANCE: tl.constexpr = INNER // 2 if HAS_BIASES else INNER
    columns = program * PAIRS + tl.arange(0, PAIRS)
    first, second = _two_products(
        x, norm_weight, norm_bias, matrix, row_count, columns, DISTANCE, counters, phase, awaited,
        WIDTH, PADDED_WIDTH, EPSILON, HAS_BIASES, ROWS,
    )  # fmt: skip
    rows = tl.arange(0, ROWS)
    is_row = (rows < row_count)[:, None]
    places = result + rows[:, None] * INNER + columns[None]
    if HAS_BIASES:
        first = activate(first + tl.load(bias + columns).to(tl.float32)[None], "gelu by tanh")
        second = activate(second + tl.load(bias + DISTANCE + columns).to(tl.float32)[None], "gelu by tanh")
        tl.store(places, first, mask=is_row)
        tl.store(places + DISTANCE, second, mask=is_row)
    else:
        tl.store(places, first / (1.0 + tl.exp(-first)) * second, mask=is_row)


@triton.jit  # type: ignore[untyped-decorator]
def _add_product(  # type: ignore[no-untyped-def]
    program, x, matrix, bias, residual, result, row_count, counters, phase, awaited,
    INNER: tl.constexpr, WIDTH: tl.constexpr, HAS_BIASES: tl.constexpr, ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """``residual + x @ matrix.T + bias``, some columns."""
    rows, columns = tl.arange(0, ROWS), program * OUTPUTS + tl.arange(0, OUTPUTS)
    is_row = (rows < row_count)[:, None]
    places = rows[:, None] * WIDTH + columns[None]
    depth = tl.arange(0, DEPTH)
    factors = tl.load(matrix + columns[:, None] * INNER + depth[None], mask=(depth < INNER)[None], other=0.0)
    await_phase(counters, phase - 1, awaited)
    products = tl.zeros((ROWS, OUTPUTS, DEPTH), dtype=tl.float32)
    # Of 4 rows, loads of the whole depth at once have no registers.
    UNROLLED: tl.constexpr = tl.cdiv(INNER, DEPTH) if ROWS < 4 else 1
    for start in tl.range(0, INNER, DEPTH, loop_unroll_factor=UNROLLED):
        inner = start + depth
        is_inner = (inner < INNER)[None]
        if start > 0:
            factors = tl.load(matrix + columns[:, None] * INNER + inner[None], mask=is_inner, other=0.0)
        vectors = tl.load(
            x + rows[:, None] * INNER + inner[None], mask=is_row & is_inner, other=0.0, cache_modifier=".cg"
        )
        products += vectors[:, None, :] * factors.to(tl.float32)[None]
    total = tl.load(residual + places, mask=is_row, other=0.0, cache_modifier=".cg")
    if HAS_BIASES:
        total += tl.load(bias + columns).to(tl.float32)[None]
    tl.store(result + places, total + tl.sum(products, 2), mask=is_row)


@triton.jit  # type: ignore[untyped-decorator]
def _decode_kernel(  # type: ignore[no-untyped-def]
    x, result, between, query, attended, activated, kv, parts, part_counters, counters,
    attention_norm, attention_norm_bias, qkv, qkv_bias, output, output_bias,
    mlp_norm, mlp_norm_bias, up, up_bias, down, down_bias, cosines, sines, positions, write_positions,
    row_count, length, query_count, capacity, positions_stride, write_stride,
    layer_stride, row_stride, part_stride, head_stride, scale,
    LAYERS: tl.constexpr, WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr,
    HAS_BIASES: tl.constexpr, IS_ROTATED: tl.constexpr,
    INNER: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
    PARTS: tl.constexpr, QUERY_TILES: tl.constexpr, ROWS: tl.constexpr, CHANNEL_PAIRS: tl.constexpr,
    INNER_PAIRS: tl.constexpr, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr,
    ATTENDING: tl.constexpr, ACTIVATING: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    await_inputs(EARLY)
    PROJECTING: tl.constexpr = (HEADS + 2 * KV_HEADS) * (HALF // CHANNEL_PAIRS)
    ADDING: tl.constexpr = WIDTH // OUTPUTS
    PROGRAMS: tl.constexpr = PROJECTING + ATTENDING + 2 * ADDING + ACTIVATING
    UP_WIDTH: tl.constexpr = INNER if HAS_BIASES else 2 * INNER
    ALL_WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * 2 * HALF
    QUERY_WIDTH: tl.constexpr = HEADS * 2 * HALF
    ticket = take_ticket(counters)
    layer, program = (ticket // PROGRAMS).to(tl.int64), ticket % PROGRAMS
    phase = (layer * 5).to(tl.int32)
    memory = kv + layer * layer_stride
    source = x
    if layer > 0:
        source = result
    if program < PROJECTING:
        _project(
            program, source, attention_norm + layer * WIDTH, attention_norm_bias + layer * WIDTH,
            qkv + layer * ALL_WIDTH * WIDTH, qkv_bias + layer * ALL_WIDTH,
            cosines, sines, query, memory, write_positions,
            row_count, length, write_stride, row_stride, part_stride, head_stride, counters, phase, ADDING,
            WIDTH, PADDED_WIDTH, EPSILON, HAS_BIASES, IS_ROTATED, HEADS, KV_HEADS, HALF, ROWS, CHANNEL_PAIRS,
        )  # fmt: skip
    elif program < PROJECTING + ATTENDING:
        phase += 1
        await_phase(counters, phase - 1, PROJECTING)
        program -= PROJECTING
        group, rest = program // (QUERY_TILES * PARTS), program % (QUERY_TILES * PARTS)
        attend_rows(
            group, rest // PARTS, rest % PARTS, query, memory, positions, attended, parts,
            part_counters + program // PARTS, length, query_count, capacity, positions_stride,
            row_stride, part_stride, head_stride, scale,
            KV_HEADS, HEADS // KV_HEADS, 2 * HALF, PARTS, BLOCK_M, BLOCK_S,
        )  # fmt: skip
    elif program < PROJECTING + ATTENDING + ADDING:
        phase += 2
        _add_product(
            program - PROJECTING - ATTENDING, attended, output + layer * WIDTH * QUERY_WIDTH,
            output_bias + layer * WIDTH, source, between, row_count, counters, phase, ATTENDING,
            QUERY_WIDTH, WIDTH, HAS_BIASES, ROWS, OUTPUTS, DEPTH,
        )  # fmt: skip
    elif program < PROGRAMS - ADDING:
        phase += 3
        _activate_products(
            program - PROJECTING - ATTENDING - ADDING, between, mlp_norm + layer * WIDTH,
            mlp_norm_bias + layer * WIDTH, up + layer * UP_WIDTH * WIDTH, up_bias + layer * UP_WIDTH,
            activated, row_count, counters, phase, ADDING,
            WIDTH, PADDED_WIDTH, EPSILON, HAS_BIASES, INNER, ROWS, INNER_PAIRS,
        )  # fmt: skip
    else:
        phase += 4
        _add_product(
            program - (PROGRAMS - ADDING), activated, down + layer * WIDTH * INNER,
            down_bias + layer * WIDTH, between, result, row_count, counters, phase, ACTIVATING,
            INNER, WIDTH, HAS_BIASES, ROWS, OUTPUTS, DEPTH,
        )  # fmt: skip
    end_program(counters, phase, 5 * LAYERS, PROGRAMS * LAYERS)


def run_decoder(
    x: Tensor,
    weights: DecoderWeights,
    rotation: tuple[Tensor, Tensor] | None,
    kv: Tensor,
    positions: Tensor,
    write_positions: Tensor,
    capacity: int,
) -> Tensor:
    """Run all layers on a step: (B, T, C) float32, up to ``MAX_FUSED_ROWS`` rows in all.

    x: (B, T, C) float32. rotation: cosines and signed sines, (B, 1, T, d) float32 each; None: without. kv:
    (B, layers, 2, kv_heads, positions, d) float32, the last two axes contiguous. positions, write_positions:
    (B, T) int64. capacity: positions that may be seen.
    """
    batch, length, width = x.shape
    kv_heads, head_width, inner = kv.shape[3], kv.shape[5], weights.down.shape[2]
    rows, heads = batch * length, weights.output.shape[2] // head_width
    padded_rows = triton.next_power_of_2(rows)
    inner_pairs = _INNER_PAIRS[padded_rows]
    attended = heads * head_width
    tiles = triton.cdiv(heads // kv_heads * length, QUERIES)
    parts = attention_parts(batch * kv_heads * tiles, capacity, SLOTS)
    attending, adding = batch * kv_heads * tiles * parts, width // _OUTPUTS
    projecting = (heads + 2 * kv_heads) * (head_width // 2 // _CHANNEL_PAIRS)
    activating = weights.up.shape[1] // 2 // inner_pairs
    result, counters = torch.empty_like(x), weights.counters
    # Tensors that a decoder lacks are not read.
    biases = weights.biases or DecoderBiases(*(5 * [weights.qkv_bias]))
    programs = projecting + attending + 2 * adding + activating
    _decode_kernel[(programs * len(weights.qkv),)](
        x, result, torch.empty_like(x), *(x.new_empty(rows, size) for size in (attended, attended, inner)),
        kv, part_buffer(parts, rows * heads, head_width, x.device), counters.parts, counters.phases,
        weights.attention_norm, biases.attention_norm, weights.qkv, weights.qkv_bias,
        weights.output, biases.output, weights.mlp_norm, biases.mlp_norm, weights.up, biases.up,
        weights.down, biases.down, *(rotation or (x, x)), positions, write_positions,
        rows, length, rows * heads, capacity, positions.stride(0), write_positions.stride(0),
        kv.stride(1), kv.stride(0), kv.stride(2), kv.stride(3), LOG2_E * head_width**-0.5,
        LAYERS=len(weights.qkv), WIDTH=width, PADDED_WIDTH=triton.next_power_of_2(width),
        EPSILON=weights.epsilon, HAS_BIASES=weights.biases is not None, IS_ROTATED=rotation is not None,
        INNER=inner, HEADS=heads, KV_HEADS=kv_heads, HALF=head_width // 2,
        PARTS=parts, QUERY_TILES=tiles, ROWS=padded_rows, CHANNEL_PAIRS=_CHANNEL_PAIRS,
        INNER_PAIRS=inner_pairs, OUTPUTS=_OUTPUTS, DEPTH=_DEPTH, BLOCK_M=QUERIES, BLOCK_S=SLOTS,
        ATTENDING=attending, ACTIVATING=activating,
        **launch_options(x.device),
    )  # fmt: skip
    return result
