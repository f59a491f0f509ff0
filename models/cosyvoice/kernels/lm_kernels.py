"""Kernels in Triton for the language model: what is between the products of a step of many rows.

    embeddings of a step, cosines and sines of its positions; once a step     embed_and_rotate
    residual, norm                                                            add_and_norm
    rotation; keys and values to the memory                                   rotate_to_memory
    attention over the memory of each row                                     attend_memory
    gated SiLU                                                                gate

cuBLAS multiplies. ``models.kernels.memory_attention`` has the third and the fourth. For a few rows
``models.kernels.decoder_layers`` computes all of it in one launch.

Imported only where ``has_fused_kernels`` says so.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...kernels.fused_kernels import await_inputs, launch_next, launch_options


@triton.jit  # type: ignore[untyped-decorator]
def _embed_and_rotate_kernel(  # type: ignore[no-untyped-def]
    indices, positions, text, speech, control, periods, embedded, cosines, sines, text_rows, speech_rows,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, HALF: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    row = tl.program_id(0)
    inner, channels = tl.arange(0, PADDED_WIDTH), tl.arange(0, HALF)
    is_value = inner < WIDTH
    period = tl.load(periods + channels)
    await_inputs(EARLY)
    index = tl.load(indices + row)
    if index < text_rows:
        values = tl.load(text + index * WIDTH + inner, mask=is_value, other=0.0)
    elif index < text_rows + speech_rows:
        values = tl.load(speech + (index - text_rows) * WIDTH + inner, mask=is_value, other=0.0)
    else:
        values = tl.load(
            control + (index - text_rows - speech_rows) * WIDTH + inner, mask=is_value, other=0.0
        )
    tl.store(embedded + row * WIDTH + inner, values, mask=is_value)
    angles = tl.div_rn(tl.load(positions + row).to(tl.float32), period)
    cosine, sine = tl.cos(angles), tl.sin(angles)
    places = row * (2 * HALF) + channels
    tl.store(cosines + places, cosine)
    tl.store(cosines + places + HALF, cosine)
    tl.store(sines + places, -sine)
    tl.store(sines + places + HALF, sine)


@triton.jit  # type: ignore[untyped-decorator]
def _add_and_norm_kernel(  # type: ignore[no-untyped-def]
    x, added, norm_weight, total, normed,
    WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, EPSILON: tl.constexpr, HAS_ADDED: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    launch_next(EARLY)
    inner = tl.arange(0, PADDED_WIDTH)
    is_value = inner < WIDTH
    places = tl.program_id(0) * WIDTH + inner
    await_inputs(EARLY)
    values = tl.load(x + places, mask=is_value, other=0.0)
    if HAS_ADDED:
        values += tl.load(added + places, mask=is_value, other=0.0).to(tl.float32)
        tl.store(total + places, values, mask=is_value)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / WIDTH + EPSILON)
    weight = tl.load(norm_weight + inner, mask=is_value, other=0.0).to(tl.float32)
    tl.store(normed + places, (values * scale * weight).to(normed.dtype.element_ty), mask=is_value)


@triton.jit  # type: ignore[untyped-decorator]
def _gate_kernel(  # type: ignore[no-untyped-def]
    gate_up, gated, INNER: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    launch_next(EARLY)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column, row = columns < INNER, tl.program_id(0)
    places = row * 2 * INNER + columns
    await_inputs(EARLY)
    gate = tl.load(gate_up + places, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(gate_up + INNER + places, mask=is_column, other=0.0).to(tl.float32)
    product = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(gated + row * INNER + columns, product.to(gated.dtype.element_ty), mask=is_column)


def embed_and_rotate(
    indices: Tensor, positions: Tensor, tables: Sequence[Tensor], periods: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of tables one behind the other, (B, T, C), and cosines and signed sines, (B, 1, T, d), float32.

    indices, positions: (B, T) int64, contiguous; indices are in range. tables: two or three of (rows, C)
    float32. periods: (d / 2,) float32, positions of a turn over 2 pi.
    """
    batch, length = indices.shape
    width, half = tables[0].shape[1], len(periods)
    embedded = periods.new_empty(batch, length, width)
    cosines, sines = (periods.new_empty(batch, 1, length, 2 * half) for _ in range(2))
    _embed_and_rotate_kernel[(batch * length,)](
        indices, positions, tables[0], tables[1], tables[-1], periods, embedded, cosines, sines,
        len(tables[0]), len(tables[1]),
        WIDTH=width, PADDED_WIDTH=triton.next_power_of_2(width), HALF=half, **launch_options(indices.device),
    )  # fmt: skip
    return embedded, cosines, sines


def add_and_norm(
    x: Tensor, added: Tensor | None, norm_weight: Tensor, epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """``x + added``, and its rows over their root mean square in another type: (..., C) each.

    x: (..., C) float32. added: as x, of any float type; None: x itself is returned.
    """
    width = x.shape[-1]
    total = x if added is None else torch.empty_like(x)
    normed = torch.empty_like(x, dtype=dtype)
    _add_and_norm_kernel[(x.numel() // width,)](
        x, x if added is None else added, norm_weight, total, normed,
        WIDTH=width, PADDED_WIDTH=triton.next_power_of_2(width), EPSILON=epsilon, HAS_ADDED=added is not None,
        **launch_options(x.device),
    )  # fmt: skip
    return total, normed


def gate(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up``: (..., D), in the type of gate_up (..., 2 D), gates first."""
    inner, block = gate_up.shape[-1] // 2, 1024
    gated = gate_up.new_empty(*gate_up.shape[:-1], inner)
    _gate_kernel[gated.numel() // inner, triton.cdiv(inner, block)](
        gate_up, gated, INNER=inner, BLOCK=block, **launch_options(gate_up.device)
    )
    return gated
