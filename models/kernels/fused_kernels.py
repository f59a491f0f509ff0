"""Parts that kernels in Triton share: products of float32, attention in one pass, norms, sizes of tiles.

A chunk has 50 to 400 frames and a decoding step a few rows, so that an operation computes for less time than
its launch takes, and the number of launches is what a step costs. The kernels
here and of ``models.cosyvoice.kernels`` do several operations in one launch.

Tensor cores multiply float16, not float32. So a float32 factor is the sum of two halves, and a product of
float32 is three of float16, summed in float32:

    x = high + low / 2048                   high: x rounded to float16; low: 2048 times what is left
    x y = high high' + (high low' + low high') / 2048

What is left out is 2^-22 of the product. Factors must be within 65,504; of those under 2^-14, what is left
out is 2^-36 of the other factor. Matrices are split once, when they are loaded (``precision.split_matrix``).
Where the low halves were dropped (``precision.drop_low_halves``), products are not ``EXACT``: one of float16,
high high', is summed in float32, and what is left out is 2^-11 of each factor.

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

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from ..networks.kernel_support import launches_early

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


@triton.jit  # type: ignore[untyped-decorator]
def add_product(x, halves, places, size, total, rest, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add a product of x (M, K), float32, and rows of a matrix to ``total + rest / 2048``.

    halves: of a matrix of ``size`` numbers; only the high ones unless EXACT. places: (N, K), of the rows.
    """
    high = tl.trans(tl.load(halves + places))
    if EXACT:
        low = tl.trans(tl.load(halves + size + places))
        total, rest = add_product_of_halves(x, high, low, total, rest)
    else:
        total = tl.dot(x.to(tl.float16), high, total)
    return total, rest


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
    x, context, rows, is_row, halves, columns, length, context_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows of INNER numbers times rows of a matrix (WIDTH, TAPS * INNER) in halves: (BLOCK_M, BLOCK_N).

    With several taps it is a causal convolution over the ``length`` rows of a batch row, each beside the rows
    before it, the oldest first. Rows before the first are in ``context``, TAPS - 1 of each batch row.
    """
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    rest = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, TAPS * INNER, BLOCK_K):
        lag, inner = TAPS - 1 - start // INNER, start % INNER + tl.arange(0, BLOCK_K)
        source = x + (rows - lag) * INNER
        if TAPS > 1:
            before = context + rows // length * context_stride + (rows % length + TAPS - 1 - lag) * INNER
            source = tl.where(rows % length < lag, before, source)
        part = tl.load(source[:, None] + inner[None], mask=is_row[:, None], other=0.0)
        places = columns[:, None] * (TAPS * INNER) + (start + tl.arange(0, BLOCK_K))[None]
        total, rest = add_product(part, halves, places, WIDTH * TAPS * INNER, total, rest, EXACT)
    return total + rest / 2048


@triton.jit  # type: ignore[untyped-decorator]
def multiply(x, y, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """x (M, K), float32, times y (K, N), float32 or float16: (M, N) float32."""
    x_high, x_low = split(x)
    if not EXACT:
        return tl.dot(x_high, y.to(tl.float16))
    elif y.dtype == tl.float16:
        return tl.dot(x_high, y) + tl.dot(x_low, y) / 2048
    else:
        y_high, y_low = split(y)
        rest = tl.dot(x_low, y_high, tl.dot(x_high, y_low))
        return tl.dot(x_high, y_high) + rest / 2048


@triton.jit  # type: ignore[untyped-decorator]
def softmax_step(  # type: ignore[no-untyped-def]
    queries, keys, values, seen, largest, weight_sum, total, EXACT: tl.constexpr
):  # fmt: skip
    """Attend to more slots: the largest score so far, the sum of the weights, and of the weighted values.

    queries: (BLOCK_M, d), scaled by log2(e). keys, values: (BLOCK_S, d), as ``multiply`` takes them. seen:
    (BLOCK_M, BLOCK_S), not 0 where a query sees a slot. Before the first step ``largest`` is -inf, and the
    sums are 0.
    """
    scores = tl.where(seen != 0, multiply(queries, tl.trans(keys), EXACT), float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    reference = _finite(new_largest)
    weights = tl.exp2(scores - reference[:, None])
    rescale = tl.exp2(largest - reference)
    weight_sum = weight_sum * rescale + tl.sum(weights, 1)
    return new_largest, weight_sum, total * rescale[:, None] + multiply(weights, values, EXACT)


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
def activate(x, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """ "gelu", "gelu by tanh", "mish", or x itself."""
    if ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if ACTIVATION == "gelu by tanh":
        # (1 + tanh y) / 2 = 1 / (1 + e^-2y)
        y = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x / (1.0 + tl.exp(-2.0 * y))
    if ACTIVATION == "mish":
        # x tanh(log(1 + e^x)) with e^x = e: x (e^2 + 2 e) / (e^2 + 2 e + 2); above 20 it is x.
        exponential = tl.exp(tl.minimum(x, 20.0))
        ratio = exponential * (exponential + 2.0)
        x = x * ratio / (ratio + 2.0)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def norm_statistics(x, begins, is_row, WIDTH: tl.constexpr, EPSILON: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mean, and 1 / standard deviation, of rows of WIDTH numbers that begin at x + begins."""
    places = begins[:, None] + tl.arange(0, BLOCK_K)[None]
    row_sum = tl.zeros(begins.shape, dtype=tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        row_sum += tl.sum(tl.load(x + places + start, mask=is_row[:, None], other=0.0), 1)
    mean = row_sum / WIDTH
    squares = tl.zeros(begins.shape, dtype=tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        centred = tl.load(x + places + start, mask=is_row[:, None], other=0.0) - mean[:, None]
        squares += tl.sum(centred * centred, 1)
    return mean, 1.0 / tl.sqrt(squares / WIDTH + EPSILON)


@triton.jit  # type: ignore[untyped-decorator]
def multiply_normed_by_matrix(  # type: ignore[no-untyped-def]
    x, rows, is_row, weight, bias, halves, columns, length, norm_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, EPSILON: tl.constexpr, BASE: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """``multiply_by_matrix`` of rows after a layer norm with ``BASE + weight`` and bias.

    weight, bias: INNER numbers for each ``length`` rows, ``norm_stride`` apart; 0: the same for all.
    """
    places = rows[:, None] * INNER + tl.arange(0, BLOCK_K)[None]
    norms = (rows // length * norm_stride)[:, None] + tl.arange(0, BLOCK_K)[None]
    mean, scale = norm_statistics(x, rows * INNER, is_row, INNER, EPSILON, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    rest = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, INNER, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        part = tl.load(x + places + start, mask=is_row[:, None], other=0.0)
        weights = BASE + tl.load(weight + norms + start, mask=is_row[:, None], other=0.0)
        biases = tl.load(bias + norms + start, mask=is_row[:, None], other=0.0)
        part = (part - mean[:, None]) * scale[:, None] * weights + biases
        matrix = columns[:, None] * INNER + inner[None]
        total, rest = add_product(part, halves, matrix, WIDTH * INNER, total, rest, EXACT)
    return total + rest / 2048


@triton.jit  # type: ignore[untyped-decorator]
def store_product(  # type: ignore[no-untyped-def]
    product, rows, is_row, columns, bias, gate, frame_mask, residual, result, length, gate_stride,
    WIDTH: tl.constexpr,
    ACTIVATION: tl.constexpr, HAS_GATE: tl.constexpr, HAS_MASK: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Store ``residual + frame_mask * gate * activation(product + bias)``, a tile of it."""
    places = rows[:, None] * WIDTH + columns[None]
    product = activate(product + tl.load(bias + columns)[None], ACTIVATION)
    if HAS_GATE:
        gates = (rows // length * gate_stride)[:, None] + columns[None]
        product *= tl.load(gate + gates, mask=is_row[:, None], other=0.0)
    if HAS_MASK:
        product *= tl.load(frame_mask + rows, mask=is_row, other=0.0)[:, None]
    if HAS_RESIDUAL:
        product += tl.load(residual + places, mask=is_row[:, None], other=0.0)
    tl.store(result + places, product, mask=is_row[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _product_kernel(  # type: ignore[no-untyped-def]
    x, context, halves, bias, residual, result, row_count, length, context_stride,
    INNER: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr, EXACT: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < row_count
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    await_inputs(EARLY)
    product = multiply_by_matrix(
        x, context, rows, is_row, halves, columns, length, context_stride,
        INNER, WIDTH, TAPS, EXACT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    store_product(
        product, rows, is_row, columns, bias, bias, bias, residual, result, 1, 0,
        WIDTH, "none", False, False, HAS_RESIDUAL,
    )  # fmt: skip


def product(
    x: Tensor, halves: Tensor, bias: Tensor, *, context: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """``residual + x @ matrix.T + bias``, or a causal convolution over frames: (N, T, C) float32.

    x: (N, T, D), contiguous. halves: (2 or 1, C, taps * D), of each output first what it takes of the oldest
    frame. context: (N, taps - 1, D), the frames before, a row of it contiguous. residual: as the result.
    """
    _, width, inner = halves.shape
    batch, length, inputs = x.shape
    result = x.new_empty(batch, length, width)
    tile = product_tile(batch * length, width, inputs, x.device)
    _product_kernel[triton.cdiv(batch * length, tile.rows), width // tile.columns](
        x, x if context is None else context, halves, bias, x if residual is None else residual, result,
        batch * length, length, 0 if context is None else context.stride(0),
        INNER=inputs, WIDTH=width, TAPS=inner // inputs, EXACT=len(halves) == 2,
        HAS_RESIDUAL=residual is not None,
        **tile.options, **launch_options(x.device),
    )  # fmt: skip
    return result


@triton.jit  # type: ignore[untyped-decorator]
def norm_mish_row(  # type: ignore[no-untyped-def]
    row, x, weight, bias, offset, result, rows_per_offset, offset_stride,
    WIDTH: tl.constexpr, EPSILON: tl.constexpr, HAS_OFFSET: tl.constexpr,
):  # fmt: skip
    """Mish of a normed row, and an offset added."""
    columns = tl.arange(0, WIDTH)
    weights, biases = tl.load(weight + columns), tl.load(bias + columns)
    values = tl.load(x + row * WIDTH + columns)
    centred = values - tl.sum(values, 0) / WIDTH
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / WIDTH + EPSILON)
    normed = activate(centred * scale * weights + biases, "mish")
    if HAS_OFFSET:
        normed += tl.load(offset + (row // rows_per_offset) * offset_stride + columns)
    tl.store(result + row * WIDTH + columns, normed)


@triton.jit  # type: ignore[untyped-decorator]
def _norm_mish_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, result, WIDTH: tl.constexpr, EPSILON: tl.constexpr, EARLY: tl.constexpr
):
    launch_next(EARLY)
    await_inputs(EARLY)
    norm_mish_row(tl.program_id(0), x, weight, bias, x, result, 1, 0, WIDTH, EPSILON, False)


def norm_mish(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Mish of normed rows: (N, T, C) float32, C a power of two. x: contiguous."""
    width, result = x.shape[-1], torch.empty_like(x)
    # A row for each program of one warp: the norms of 100 rows of 256 take 1.2 us, in programs of four 1.5.
    _norm_mish_kernel[(x.numel() // width,)](
        x, norm.weight, norm.bias, result, WIDTH=width, EPSILON=norm.eps,
        num_warps=max(1, width // 256), **launch_options(x.device),
    )  # fmt: skip
    return result


@dataclass(frozen=True, slots=True)
class ProductTile:
    """What one program computes of a product."""

    rows: int
    columns: int
    depth: int  # inputs that it reads at once
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
    return ProductTile(block_m, block_n, depth, options)


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
