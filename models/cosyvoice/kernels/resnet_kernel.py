"""A residual block of the version 2 estimator in one launch.

    causal convolution
    norm, Mish, offset of the solver time
    causal convolution
    norm, Mish; product of the block's input, added

Each line is a phase of ``chained_programs``. Imported only where ``has_fused_kernels`` says so.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...kernels.chained_programs import await_phase, end_program, new_counters, take_ticket
from ...kernels.fused_kernels import (
    activate,
    await_inputs,
    launch_next,
    launch_options,
    multiply_by_matrix,
    norm_mish_row,
    norm_statistics,
    product_tile,
    store_product,
)

_PHASES = 4
_STAGES = 3  # of a loop: tiles that are read ahead


@dataclass(frozen=True, slots=True)
class ConvNormWeights:
    """A causal convolution and the norm after it."""

    halves: Tensor  # (2, C, taps * D) float16, or (1, ...) of high ones only
    bias: Tensor  # (C,)
    norm_weight: Tensor  # (C,)
    norm_bias: Tensor  # (C,)


def new_resnet_counters(device: torch.device) -> Tensor:
    """Counters of the launches of residual blocks that follow each other."""
    return new_counters(_PHASES, device)


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    program, x, context, halves, bias, result, row_count, length, context_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = program // (WIDTH // BLOCK_N) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = program % (WIDTH // BLOCK_N) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_row = rows < row_count
    product = multiply_by_matrix(
        x, context, rows, is_row, halves, columns, length, context_stride,
        INNER, WIDTH, TAPS, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    store_product(
        product, rows, is_row, columns, bias, bias, bias, x, result, 1, 0, WIDTH, "none", False, False, False
    )


@triton.jit  # type: ignore[untyped-decorator]
def _add_normed(  # type: ignore[no-untyped-def]
    program, x, halves, bias, convolved, norm_weight, norm_bias, result, row_count,
    INNER: tl.constexpr, WIDTH: tl.constexpr, EPSILON: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of ``mish(norm(convolved)) + x @ matrix.T + bias``."""
    rows = program // (WIDTH // BLOCK_N) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = program % (WIDTH // BLOCK_N) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_row = rows < row_count
    product = multiply_by_matrix(
        x, x, rows, is_row, halves, columns, 1, 0, INNER, WIDTH, 1, EXACT, BLOCK_M, BLOCK_N, BLOCK_K
    )
    mean, scale = norm_statistics(convolved, rows * WIDTH, is_row, WIDTH, EPSILON, BLOCK_N)
    places = rows[:, None] * WIDTH + columns[None]
    values = tl.load(convolved + places, mask=is_row[:, None], other=0.0)
    weights, biases = tl.load(norm_weight + columns), tl.load(norm_bias + columns)
    normed = (values - mean[:, None]) * scale[:, None] * weights[None] + biases[None]
    total = activate(normed, "mish") + product + tl.load(bias + columns)[None]
    tl.store(result + places, total, mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _resnet_kernel(  # type: ignore[no-untyped-def]
    x, offset, first_context, second_context, convolved, hidden, again, result, counters,
    first, first_bias, first_norm, first_norm_bias, second, second_bias, second_norm, second_norm_bias,
    shortcut, shortcut_bias,
    row_count, length, rows_per_offset, offset_stride, first_stride, second_stride, tiles,
    INNER: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr, EPSILON: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    await_inputs(EARLY)
    program, phase = take_ticket(counters), 0
    programs = 3 * tiles + row_count
    if program < tiles:
        _convolve(
            program, x, first_context, first, first_bias, convolved, row_count, length, first_stride,
            INNER, WIDTH, TAPS, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    elif program < tiles + row_count:
        phase = 1
        await_phase(counters, 0, tiles)
        norm_mish_row(
            program - tiles, convolved, first_norm, first_norm_bias, offset, hidden,
            rows_per_offset, offset_stride,
            WIDTH, EPSILON, True,
        )  # fmt: skip
    elif program < programs - tiles:
        phase = 2
        await_phase(counters, 1, row_count)
        _convolve(
            program - tiles - row_count, hidden, second_context, second, second_bias, again,
            row_count, length, second_stride, WIDTH, WIDTH, TAPS, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    else:
        phase = 3
        await_phase(counters, 2, tiles)
        _add_normed(
            program - (programs - tiles), x, shortcut, shortcut_bias, again, second_norm, second_norm_bias,
            result, row_count, INNER, WIDTH, EPSILON, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    end_program(counters, phase, 4, programs)


def run_resnet(
    x: Tensor,
    offset: Tensor,
    contexts: tuple[Tensor, Tensor],
    convs: tuple[ConvNormWeights, ConvNormWeights],
    shortcut: tuple[Tensor, Tensor],
    epsilon: float,
    counters: Tensor,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A residual block: (N, T, C) float32, and the next contexts, (N, taps - 1, D) and (N, taps - 1, C).

    x: (N, T, D) float32, contiguous; T is at least taps - 1. offset: (1 or N, 1, C). contexts: as the next
    ones. A row of either is contiguous. shortcut: halves (2 or 1, C, D) and bias. epsilon: of both norms.
    counters: of ``new_resnet_counters``.
    """
    batch, length, inputs = x.shape
    rows, width = batch * length, len(convs[0].bias)
    taps = convs[0].halves.shape[2] // inputs
    tile = product_tile(rows, width, math.gcd(inputs, width), x.device)
    tiles = triton.cdiv(rows, tile.rows) * width // tile.columns
    convolved, hidden, again, result = (x.new_empty(batch, length, width) for _ in range(4))
    _resnet_kernel[(3 * tiles + rows,)](
        x, offset, *contexts, convolved, hidden, again, result, counters,
        *(part for conv in convs for part in (conv.halves, conv.bias, conv.norm_weight, conv.norm_bias)),
        *shortcut, rows, length, length if len(offset) > 1 else rows, offset.stride(0),
        contexts[0].stride(0), contexts[1].stride(0), tiles,
        INNER=inputs, WIDTH=width, TAPS=taps, EPSILON=epsilon, EXACT=len(shortcut[0]) == 2,
        BLOCK_M=tile.rows, BLOCK_N=tile.columns, BLOCK_K=tile.depth,
        num_warps=4, num_stages=_STAGES, **launch_options(x.device),
    )  # fmt: skip
    return result, (x[:, length - taps + 1 :], hidden[:, length - taps + 1 :])
