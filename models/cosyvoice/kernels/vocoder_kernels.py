"""A convolution of the vocoders in one launch, with the activations around it and what it is added to.

    snake of the input | dilated convolution | snake of the output, or residual and mean of residual blocks

Samples before the first one are 0 on both sides (version 2), or a context of snake-activated samples on the
left (version 3); programs behind those of the convolution then store the next context. Tensors have the shape
(B, C, T); results are (B, T, C) in memory. Imported only where ``has_fused_kernels`` says so.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from ...kernels.fused_kernels import (
    add_product_of_halves,
    await_inputs,
    launch_next,
    launch_options,
    product_tile,
)


@dataclass(frozen=True, slots=True)
class VocoderConv:
    """A dilated convolution of as many channels as it has inputs."""

    halves: Tensor  # (2, C, taps * C) float16
    bias: Tensor  # (C,)
    dilation: int
    snake: Tensor | None = None  # (C,), of the input
    output_snake: Tensor | None = None  # (C,)

    @property
    def reach(self) -> int:
        """Samples beside its own that an output depends on."""
        return (self.halves.shape[2] // self.halves.shape[1] - 1) * self.dilation


@triton.jit
def _snake(x, alpha):  # type: ignore[no-untyped-def]
    sine = tl.sin(x * alpha)
    return x + sine * sine / (alpha + 1e-9)


@triton.jit  # type: ignore[untyped-decorator]
def _load_rows(  # type: ignore[no-untyped-def]
    x, context, alpha, batch, source, channels, is_row, length,
    batch_stride, time_stride, channel_stride, context_batch_stride, context_time_stride,
    context_channel_stride, REACH: tl.constexpr, HAS_CONTEXT: tl.constexpr, HAS_SNAKE: tl.constexpr,
):  # fmt: skip
    """Activated samples ``source`` of rows, from the context where they are negative; else 0 outside."""
    is_new = is_row & (source >= 0) & (source < length)
    begins = batch * batch_stride + source * time_stride
    values = tl.load(x + begins[:, None] + (channels * channel_stride)[None], mask=is_new[:, None], other=0.0)
    if HAS_SNAKE:
        values = _snake(values, tl.load(alpha + channels)[None])
    if HAS_CONTEXT:
        begins = batch * context_batch_stride + (source + REACH) * context_time_stride
        earlier = tl.load(
            context + begins[:, None] + (channels * context_channel_stride)[None],
            mask=(is_row & (source < 0))[:, None], other=0.0,
        )  # fmt: skip
        values = tl.where((source < 0)[:, None], earlier, values)
    return values


@triton.jit  # type: ignore[untyped-decorator]
def _convolve_kernel(  # type: ignore[no-untyped-def]
    x, context, alpha, halves, bias, output_alpha, residual, total, result, following,
    row_count, length, tiles, factor,
    batch_stride, channel_stride, time_stride, context_batch_stride, context_channel_stride,
    context_time_stride, residual_batch_stride, residual_channel_stride, residual_time_stride,
    total_batch_stride, total_channel_stride, total_time_stride,
    WIDTH: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr, HAS_CONTEXT: tl.constexpr,
    HAS_SNAKE: tl.constexpr, HAS_OUTPUT_SNAKE: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    HAS_TOTAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    await_inputs(EARLY)
    REACH: tl.constexpr = (TAPS - 1) * DILATION
    program = tl.program_id(0)
    if program < tiles:
        rows = program // (WIDTH // BLOCK_N) * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = program % (WIDTH // BLOCK_N) * BLOCK_N + tl.arange(0, BLOCK_N)
        is_row, batch, time = rows < row_count, rows // length, rows % length
        first = time - REACH if HAS_CONTEXT else time - REACH // 2
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        rest = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, TAPS * WIDTH, BLOCK_K):
            channels = start % WIDTH + tl.arange(0, BLOCK_K)
            part = _load_rows(
                x, context, alpha, batch, first + start // WIDTH * DILATION, channels, is_row, length,
                batch_stride, time_stride, channel_stride, context_batch_stride, context_time_stride,
                context_channel_stride, REACH, HAS_CONTEXT, HAS_SNAKE,
            )  # fmt: skip
            places = columns[:, None] * (TAPS * WIDTH) + (start + tl.arange(0, BLOCK_K))[None]
            high, low = tl.load(halves + places), tl.load(halves + WIDTH * TAPS * WIDTH + places)
            sums, rest = add_product_of_halves(part, tl.trans(high), tl.trans(low), sums, rest)
        y = sums + rest / 2048 + tl.load(bias + columns)[None]
        if HAS_OUTPUT_SNAKE:
            y = _snake(y, tl.load(output_alpha + columns)[None])
        if HAS_RESIDUAL:
            begins = batch * residual_batch_stride + time * residual_time_stride
            added = residual + begins[:, None] + (columns * residual_channel_stride)[None]
            y += tl.load(added, mask=is_row[:, None], other=0.0)
        if HAS_TOTAL:
            begins = batch * total_batch_stride + time * total_time_stride
            added = total + begins[:, None] + (columns * total_channel_stride)[None]
            y += tl.load(added, mask=is_row[:, None], other=0.0)
        tl.store(result + rows[:, None] * WIDTH + columns[None], y * factor, mask=is_row[:, None])
    else:
        row = program - tiles + tl.arange(0, 1)
        owner, kept = row // REACH, length - REACH + row % REACH
        for start in range(0, WIDTH, BLOCK_K):
            channels = start + tl.arange(0, BLOCK_K)
            values = _load_rows(
                x, context, alpha, owner, kept, channels, row >= 0, length,
                batch_stride, time_stride, channel_stride, context_batch_stride, context_time_stride,
                context_channel_stride, REACH, HAS_CONTEXT, HAS_SNAKE,
            )  # fmt: skip
            tl.store(following + row[:, None] * WIDTH + channels[None], values)


def convolve(
    x: Tensor,
    conv: VocoderConv,
    *,
    context: Tensor | None = None,
    residual: Tensor | None = None,
    total: Tensor | None = None,
    factor: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """``factor * (snake(convolution of snake(x)) + residual + total)``: (B, C, T), and the next context.

    x, residual, total: (B, C, T) float32. context: (B, C, ``reach``), activated, or None for zeros on both
    sides. The next context is of that shape, or empty.
    """
    batch, width, length = x.shape
    rows, taps = batch * length, conv.halves.shape[2] // width
    result = x.new_empty(batch, length, width)
    following = x.new_empty(batch, 0 if context is None else conv.reach, width)
    tile = product_tile(rows, width, width, x.device)
    tiles = triton.cdiv(rows, tile.rows) * width // tile.columns
    present = [x if part is None else part for part in (context, residual, total)]
    _convolve_kernel[(tiles + batch * following.shape[1],)](
        x, present[0], x if conv.snake is None else conv.snake, conv.halves, conv.bias,
        x if conv.output_snake is None else conv.output_snake, present[1], present[2], result, following,
        rows, length, tiles, factor, *x.stride(), *(stride for part in present for stride in part.stride()),
        WIDTH=width, TAPS=taps, DILATION=conv.dilation, HAS_CONTEXT=context is not None,
        HAS_SNAKE=conv.snake is not None, HAS_OUTPUT_SNAKE=conv.output_snake is not None,
        HAS_RESIDUAL=residual is not None, HAS_TOTAL=total is not None,
        **tile.options, **launch_options(x.device),
    )  # fmt: skip
    return result.mT, following.mT
