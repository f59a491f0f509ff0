"""Matrices of float32 as pairs of float16, for the products of ``fused_kernels``, which explains them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from .kernel_support import has_fused_kernels
from .layers import CausalConv, Linear, QkvProjection

LARGEST_FACTOR = 65_504.0  # of float16


def split_matrices(layers: Iterable[Linear | CausalConv | QkvProjection]) -> None:
    """Set ``halves`` of layers whose matrices the kernels can multiply by, if their device has kernels."""
    for layer in layers:
        device = next(tensor.device for tensor in (*layer.parameters(), *layer.buffers()))
        if has_fused_kernels(device):
            layer.halves = _halves_of(layer.whole_matrix())
            if isinstance(layer, QkvProjection):
                layer.whole_bias = layer.join_biases()


def _halves_of(matrix: Tensor) -> Tensor | None:
    if any(width % 32 for width in matrix.shape) or float(matrix.abs().max()) > LARGEST_FACTOR:
        return None
    return split_matrix(matrix)


def split_matrix(matrix: Tensor) -> Tensor:
    """The halves of a matrix: (2, D, C) float16. matrix: (D, C) float32, within ``LARGEST_FACTOR``."""
    high = matrix.half()
    return torch.stack([high, ((matrix - high.float()) * 2048).half()])
