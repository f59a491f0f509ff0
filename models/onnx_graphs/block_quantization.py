"""Matrices in 8 or 4 bits with a scale and a zero point for each block of inputs, as MatMulNBits reads them.

    weight (N, K)  ->  blocks (N, K / block)    w = scale * (q - zero),  0 <= q < 2 ** bits

Each block's range is widened to contain 0, so that a weight of 0 stays exact.

Source: MatMulNBits in docs/ContribOperators.md of microsoft/onnxruntime v1.24 (layout of its inputs).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True, slots=True)
class BlockQuantizedMatrix:
    """A matrix of N outputs and K inputs; ``blocks`` is K / block, rounded up."""

    bits: int  # 8 or 4
    block: int
    values: NDArray[np.uint8]  # (N, blocks, block * bits / 8), lower half byte first
    scales: NDArray[np.float32]  # (N, blocks)
    zero_points: NDArray[np.uint8]  # (N, blocks * bits / 8, rounded up)


def quantize_in_blocks(weight: NDArray[np.float32], bits: int, block: int) -> BlockQuantizedMatrix:
    """Round a weight (N, K) to the nearest representable values."""
    outputs, inputs = weight.shape
    blocked = np.pad(weight, ((0, 0), (0, -inputs % block))).reshape(outputs, -1, block)
    low, high = np.minimum(blocked.min(-1), 0), np.maximum(blocked.max(-1), 0)
    max_value = 2**bits - 1
    scales = np.maximum((high - low) / max_value, _TINY).astype(np.float32)
    zero_points = np.rint(-low / scales)
    values = np.rint(blocked / scales[..., None]) + zero_points[..., None]
    return BlockQuantizedMatrix(
        bits,
        block,
        _pack(np.clip(values, 0, max_value).astype(np.uint8), bits),
        scales,
        _pack(np.clip(zero_points, 0, max_value).astype(np.uint8), bits),
    )


def _pack(values: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Store two 4-bit values in a byte, the first one in its lower half."""
    if bits == 8:
        return values
    if values.shape[-1] % 2:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 1)])
    packed: NDArray[np.uint8] = values[..., ::2] | values[..., 1::2] << np.uint8(4)
    return packed
