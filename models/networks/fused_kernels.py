"""Parts that kernels in Triton share: attention in one pass over the slots, products, sizes of tiles.

A chunk has 50 to 400 frames and a decoding step a few rows, so that an operation computes for less time than
its launch takes, and the number of launches is what a step costs. The kernels of
``models.cosyvoice.kernels`` do several operations in one launch.

Sums are float32. Where a matrix is float32, each factor is split into three TF32 parts (``tf32x3``), which
keeps the accuracy of float32 and uses tensor cores; where it has 16 bits, its input is rounded to them.

Imported only where ``has_fused_kernels`` says so: it needs Triton, which torch for CUDA brings along.

Source: FlashAttention-2 (arXiv:2307.08691) for softmax in one pass; 3xTF32 as in CUTLASS,
``examples/28_ampere_3xtf32_fast_accurate_tensorop_gemm``.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634
_BUSY_PROGRAMS = 128  # that keep a large card busy; an H100 has 132 processors


@triton.jit
def softmax_step(queries, keys, values, seen, largest, weight_sum, total):  # type: ignore[no-untyped-def]
    """Attend to more slots: the largest score so far, the sum of the weights, and of the weighted values.

    queries: (BLOCK_M, d), scaled by log2(e). keys, values: (BLOCK_S, d). seen: (BLOCK_M, BLOCK_S), not 0
    where a query sees a slot. Before the first step ``largest`` is -inf, and the sums are 0.
    """
    scores = tl.dot(queries, tl.trans(keys), input_precision="tf32x3")
    scores = tl.where(seen != 0, scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    # A query that has seen nothing yet has weights of 0, not of exp(-inf + inf).
    reference = tl.where(new_largest == float("-inf"), 0.0, new_largest)
    weights = tl.exp2(scores - reference[:, None])
    rescale = tl.exp2(largest - reference)
    weight_sum = weight_sum * rescale + tl.sum(weights, 1)
    total = tl.dot(weights, values, total * rescale[:, None], input_precision="tf32x3")
    return new_largest, weight_sum, total


@triton.jit
def softmax_result(weight_sum, total):  # type: ignore[no-untyped-def]
    """The weighted mean after the last ``softmax_step``, (BLOCK_M, d); 0 for a query that saw nothing."""
    return total / tl.where(weight_sum == 0.0, 1.0, weight_sum)[:, None]


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


def add_product(x: Tensor, matrix: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
    """``residual + x @ matrix.T + bias``: (..., C) float32, as residual. x: (..., D). matrix: (C, D)."""
    width, inner = matrix.shape
    count = x.numel() // inner
    result = torch.empty_like(residual)
    block_m, block_n = product_tile(count, width)
    _add_product_kernel[triton.cdiv(count, block_m), width // block_n](
        x, matrix, x if bias is None else bias, residual, result, count,
        INNER=inner, WIDTH=width, HAS_BIAS=bias is not None,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=product_depth(inner),
    )  # fmt: skip
    return result


def product_tile(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a product that one program computes: small while few of them fill the device."""
    sizes: Sequence[tuple[int, int]] = ((64, 64), (32, 64), (32, 32))
    for block_m, block_n in sizes:
        if columns % block_n == 0 and triton.cdiv(rows, block_m) * (columns // block_n) >= _BUSY_PROGRAMS:
            return block_m, block_n
    return 16, 32 if columns // 32 >= _BUSY_PROGRAMS or columns % 16 else 16


def product_depth(inner: int) -> int:
    """Inputs of a product that a program reads at once."""
    return 64 if inner % 64 == 0 else 32
