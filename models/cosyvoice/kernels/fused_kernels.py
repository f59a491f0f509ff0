"""Parts that kernels in Triton share: products of float32, attention in one pass, norms, sizes of tiles.

A chunk has 50 to 400 frames and a decoding step a few rows, so that an operation computes for less time than
its launch takes, and the number of launches is what a step costs. The kernels of
``models.cosyvoice.kernels`` do several operations in one launch.

Tensor cores multiply float16, not float32. So a float32 factor is the sum of two halves, and a product of
float32 is three of float16, summed in float32:

    x = high + low / 2048                   high: x rounded to float16; low: 2048 times what is left
    x y = high high' + (high low' + low high') / 2048

What is left out is 2^-22 of the product. Factors must be within 65,504; of those under 2^-14, what is left
out is 2^-36 of the other factor. Matrices are split once, when they are loaded (``precision.split_matrix``).

On cards from compute capability 9.0 on, the programs of a kernel are launched before the kernel before them
has ended (``EARLY``): they read what no kernel writes, such as matrices, and then wait (``await_inputs``).

Imported only where ``has_fused_kernels`` says so: it needs Triton, which torch for CUDA brings along.

Source: Ootomo and Yokota (arXiv:2203.03341) for the halves; FlashAttention-2 (arXiv:2307.08691) for softmax
in one pass; Flash-Decoding (pytorch.org/blog/flash-decoding) for its parts; CUDA C++ Programming Guide,
programmatic dependent launch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from ...networks.kernel_support import launches_early

LOG2_E = 1.4426950408889634
BUSY_PROGRAMS = 96  # that keep a large card busy; an H100 has 132 processors
_MAX_STAGES = 4
_MAX_PARTS = 16
_SPARE_BYTES = 8192  # of shared memory, for the compiler


@triton.jit  # type: ignore[untyped-decorator]
def launch_next(EARLY: tl.constexpr):  # type: ignore[no-untyped-def]
    """Let the next kernel be launched, as soon as all programs of this one have come here."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit  # type: ignore[untyped-decorator]
def await_inputs(EARLY: tl.constexpr):  # type: ignore[no-untyped-def]
    """Wait until the kernels before this one have ended; before it, read only what no kernel writes."""
    if EARLY:
        tl.extra.cuda.gdc_wait()


@triton.jit
def split(x):  # type: ignore[no-untyped-def]
    """The halves of a float32 tensor."""
    high = x.to(tl.float16)
    return high, ((x - high.to(tl.float32)) * 2048.0).to(tl.float16)


@triton.jit
def add_product_of_halves(x, high, low, total, rest):  # type: ignore[no-untyped-def]
    """Add a product of x (M, K), float32, and halves (K, N) to ``total + rest / 2048``."""
    x_high, x_low = split(x)
    total = tl.dot(x_high, high, total)
    rest = tl.dot(x_high, low, rest)
    rest = tl.dot(x_low, high, rest)
    return total, rest


@triton.jit  # type: ignore[untyped-decorator]
def multiply_by_matrix(  # type: ignore[no-untyped-def]
    x, begins, is_row, halves, columns,
    INNER: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows of INNER numbers, which begin at x + begins, times rows of a matrix (2, WIDTH, INNER) of halves.

    Returns (BLOCK_M, BLOCK_N).
    """
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    rest = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, INNER, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        part = tl.load(x + begins[:, None] + inner[None], mask=is_row[:, None], other=0.0)
        places = columns[:, None] * INNER + inner[None]
        high, low = tl.load(halves + places), tl.load(halves + WIDTH * INNER + places)
        total, rest = add_product_of_halves(part, tl.trans(high), tl.trans(low), total, rest)
    return total + rest / 2048


@triton.jit
def multiply(x, y):  # type: ignore[no-untyped-def]
    """x (M, K), float32, times y (K, N), float32 or float16: (M, N) float32."""
    x_high, x_low = split(x)
    if y.dtype == tl.float16:
        return tl.dot(x_high, y) + tl.dot(x_low, y) / 2048
    else:
        y_high, y_low = split(y)
        rest = tl.dot(x_low, y_high, tl.dot(x_high, y_low))
        return tl.dot(x_high, y_high) + rest / 2048


@triton.jit
def softmax_step(queries, keys, values, seen, largest, weight_sum, total):  # type: ignore[no-untyped-def]
    """Attend to more slots: the largest score so far, the sum of the weights, and of the weighted values.

    queries: (BLOCK_M, d), scaled by log2(e). keys, values: (BLOCK_S, d), as ``multiply`` takes them. seen:
    (BLOCK_M, BLOCK_S), not 0 where a query sees a slot. Before the first step ``largest`` is -inf, and the
    sums are 0.
    """
    scores = tl.where(seen != 0, multiply(queries, tl.trans(keys)), float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    reference = _finite(new_largest)
    weights = tl.exp2(scores - reference[:, None])
    rescale = tl.exp2(largest - reference)
    weight_sum = weight_sum * rescale + tl.sum(weights, 1)
    return new_largest, weight_sum, total * rescale[:, None] + multiply(weights, values)


@triton.jit
def _finite(largest):  # type: ignore[no-untyped-def]
    """0 for a query that has seen nothing yet: its weights are 0, not exp(-inf + inf)."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit  # type: ignore[untyped-decorator]
def store_attention(  # type: ignore[no-untyped-def]
    largest, weight_sum, total, queries, is_query, result, parts, counter, part, query_count,
    HEAD_WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Store the weighted means of the values, after the last ``softmax_step``; 0 if a query saw nothing.

    queries: (BLOCK_M,), the number of each query and head. Where the slots are in several parts, the program
    that comes last joins what all have stored in ``parts``. counter: of the programs that have stored; 0
    before and after.
    """
    places = queries[:, None] * HEAD_WIDTH + tl.arange(0, HEAD_WIDTH)[None]
    if PARTS == 1:
        tl.store(result + places, total / _divisor(weight_sum)[:, None], mask=is_query[:, None])
    else:
        totals = parts + part * query_count * HEAD_WIDTH
        all_largest = parts + PARTS * query_count * HEAD_WIDTH
        all_sums = all_largest + PARTS * query_count
        tl.store(totals + places, total, mask=is_query[:, None])
        tl.store(all_largest + part * query_count + queries, largest, mask=is_query)
        tl.store(all_sums + part * query_count + queries, weight_sum, mask=is_query)
        tl.debug_barrier()
        if tl.atomic_add(counter, 1, sem="acq_rel") == PARTS - 1:
            # In the order of the parts, whichever came last, so that a step can be repeated exactly.
            joined_largest = tl.full(largest.shape, float("-inf"), dtype=tl.float32)
            joined_sum = tl.zeros(largest.shape, dtype=tl.float32)
            joined_total = tl.zeros(total.shape, dtype=tl.float32)
            for each in range(PARTS):
                # Not from the cache of this processor, which does not know of other programs' stores.
                part_largest = tl.load(
                    all_largest + each * query_count + queries,
                    mask=is_query, other=float("-inf"), cache_modifier=".cg",
                )  # fmt: skip
                part_sum = tl.load(
                    all_sums + each * query_count + queries, mask=is_query, other=0.0, cache_modifier=".cg"
                )
                part_total = tl.load(
                    parts + each * query_count * HEAD_WIDTH + places,
                    mask=is_query[:, None], other=0.0, cache_modifier=".cg",
                )  # fmt: skip
                new_largest = tl.maximum(joined_largest, part_largest)
                reference = _finite(new_largest)
                rescale, part_scale = tl.exp2(joined_largest - reference), tl.exp2(part_largest - reference)
                joined_sum = joined_sum * rescale + part_sum * part_scale
                joined_total = joined_total * rescale[:, None] + part_total * part_scale[:, None]
                joined_largest = new_largest
            tl.store(result + places, joined_total / _divisor(joined_sum)[:, None], mask=is_query[:, None])
            tl.store(counter, 0)


@triton.jit
def _divisor(weight_sum):  # type: ignore[no-untyped-def]
    return tl.where(weight_sum == 0.0, 1.0, weight_sum)


@triton.jit  # type: ignore[untyped-decorator]
def _product_kernel(  # type: ignore[no-untyped-def]
    x, halves, bias, gate, frame_mask, residual, result, row_count, length, row_stride, batch_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, ACTIVATION: tl.constexpr,
    HAS_GATE: tl.constexpr, HAS_MASK: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    places = rows[:, None] * WIDTH + columns[None]
    biases = tl.load(bias + columns)
    await_inputs(EARLY)
    begins = rows // length * batch_stride + rows % length * row_stride
    product = multiply_by_matrix(x, begins, is_row, halves, columns, INNER, WIDTH, BLOCK_M, BLOCK_N, BLOCK_K)
    product += biases[None]
    if ACTIVATION == "gelu":
        product = 0.5 * product * (1.0 + tl.erf(product * 0.7071067811865476))
    if ACTIVATION == "gelu by tanh":
        # (1 + tanh y) / 2 = 1 / (1 + e^-2y)
        y = 0.7978845608028654 * (product + 0.044715 * product * product * product)
        product = product / (1.0 + tl.exp(-2.0 * y))
    if HAS_GATE:
        product *= tl.load(gate + columns)[None]
    if HAS_MASK:
        product *= tl.load(frame_mask + rows, mask=is_row, other=0.0)[:, None]
    if HAS_RESIDUAL:
        product += tl.load(residual + places, mask=is_row[:, None], other=0.0)
    tl.store(result + places, product, mask=is_row[:, None])


def product(
    x: Tensor,
    halves: Tensor,
    bias: Tensor,
    *,
    activation: Literal["none", "gelu", "gelu by tanh"] = "none",
    gate: Tensor | None = None,
    frame_mask: Tensor | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """A product with a matrix, or a convolution over frames: (N, T - kernel + 1, C) float32.

        residual + frame_mask * gate * activation(x @ matrix.T + bias)

    x: (N, T, D), contiguous; of a convolution with the frames before. halves: (2, C, kernel * D), of each
    output first what it takes of the oldest frame: what an output takes, frames of x side by side, is one row
    of numbers in memory. gate: (C,). frame_mask: (N, T, 1). residual: as the result.
    """
    _, width, inner = halves.shape
    batch, frames, inputs = x.shape
    length = frames - inner // inputs + 1
    result = x.new_empty(batch, length, width)
    tile = product_tile(batch * length, width, inner, x.device)
    _product_kernel[triton.cdiv(batch * length, tile.rows), width // tile.columns](
        x, halves, bias, *(x if part is None else part for part in (gate, frame_mask, residual)), result,
        batch * length, length, inputs, frames * inputs,
        INNER=inner, WIDTH=width, ACTIVATION=activation,
        HAS_GATE=gate is not None, HAS_MASK=frame_mask is not None, HAS_RESIDUAL=residual is not None,
        **tile.options, **launch_options(x.device),
    )  # fmt: skip
    return result


@triton.jit  # type: ignore[untyped-decorator]
def _norm_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, offset, result, rows_per_offset,
    WIDTH: tl.constexpr, EPSILON: tl.constexpr, BASE: tl.constexpr,
    HAS_MISH: tl.constexpr, HAS_OFFSET: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    weights, biases = BASE + tl.load(weight + columns), tl.load(bias + columns)
    await_inputs(EARLY)
    values = tl.load(x + row * WIDTH + columns)
    centred = values - tl.sum(values, 0) / WIDTH
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / WIDTH + EPSILON)
    normed = centred * scale * weights + biases
    if HAS_MISH:
        # x tanh(log(1 + e^x)) with e^x = e: x (e^2 + 2 e) / (e^2 + 2 e + 2); above 20 it is x.
        exponential = tl.exp(tl.minimum(normed, 20.0))
        ratio = exponential * (exponential + 2.0)
        normed *= ratio / (ratio + 2.0)
    if HAS_OFFSET:
        normed += tl.load(offset + (row // rows_per_offset) * WIDTH + columns)
    tl.store(result + row * WIDTH + columns, normed)


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Layer norm of rows: (N, T, C) float32, C a power of two. x: contiguous."""
    return _norm(x, norm.weight, norm.bias, norm.eps)


def modulated_norm(x: Tensor, scale: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """Rows normed without weights, times ``1 + scale``, plus shift, (C,) each: (N, T, C) float32."""
    return _norm(x, scale, shift, epsilon, base=1.0)


def norm_mish(x: Tensor, norm: nn.LayerNorm, offset: Tensor | None = None) -> Tensor:
    """Mish of normed rows, and an offset added: (N, T, C) float32. offset: (1 or N, 1, C), contiguous."""
    return _norm(x, norm.weight, norm.bias, norm.eps, has_mish=True, offset=offset)


def _norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    *,
    base: float = 0.0,
    has_mish: bool = False,
    offset: Tensor | None = None,
) -> Tensor:
    batch, length, width = x.shape
    result = torch.empty_like(x)
    rows_per_offset = length if offset is not None and len(offset) > 1 else batch * length
    # A row for each program of one warp: the norms of 100 rows of 256 take 1.2 us, in programs of four 1.5.
    _norm_kernel[(batch * length,)](
        x, weight, bias, x if offset is None else offset, result, rows_per_offset,
        WIDTH=width, EPSILON=epsilon, BASE=base, HAS_MISH=has_mish, HAS_OFFSET=offset is not None,
        num_warps=max(1, width // 256), **launch_options(x.device),
    )  # fmt: skip
    return result


@dataclass(frozen=True, slots=True)
class ProductTile:
    """What one program computes of a product."""

    rows: int
    columns: int
    options: Mapping[str, int]  # arguments of a kernel


@cache
def product_tile(rows: int, width: int, inner: int, device: torch.device) -> ProductTile:
    """The tile for a product of rows with a matrix (width, inner): large where many programs remain.

    width and inner: multiples of 32. By measurements on an H200 for 100 to 3,200 rows.
    """
    block_m, block_n = next(
        (
            (block_m, block_n)
            for block_m, block_n in ((64, 64), (32, 64), (16, 64))
            if width % block_n == 0 and triton.cdiv(rows, block_m) * (width // block_n) >= BUSY_PROGRAMS
        ),
        (16, 32),
    )
    is_deep = block_m == 16 and inner >= 512 and inner % 128 == 0
    depth = 128 if is_deep else 64 if inner % 64 == 0 else 32
    stage_bytes = 4 * (block_m + block_n) * depth
    stages = (_shared_bytes(device) - _SPARE_BYTES) // stage_bytes
    options = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": depth,
        "num_warps": 4,
        "num_stages": max(1, min(_MAX_STAGES, stages)),
    }
    return ProductTile(block_m, block_n, options)


def attention_parts(programs: int, slots: int, part_slots: int) -> int:
    """Parts that the slots of each query are attended to in, so that the programs keep a card busy.

    programs: without parts. part_slots: the fewest of a part that are worth a program.
    """
    parts = 1
    while programs * parts < 2 * BUSY_PROGRAMS and parts < _MAX_PARTS and slots > part_slots * parts:
        parts *= 2
    return parts


def part_buffer(parts: int, queries: int, head_width: int, device: torch.device) -> Tensor:
    """Memory for what the parts of an attention store."""
    return torch.empty(0 if parts == 1 else parts * queries * (head_width + 2), device=device)


@cache
def launch_options(device: torch.device) -> Mapping[str, bool]:
    """Arguments of a kernel that calls ``launch_next`` and ``await_inputs``."""
    return {"EARLY": True, "launch_pdl": True} if launches_early(device) else {"EARLY": False}


@cache
def _shared_bytes(device: torch.device) -> int:
    """Shared memory that a program may have."""
    if device.type != "cuda":
        return 96 * 1024
    properties = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]
