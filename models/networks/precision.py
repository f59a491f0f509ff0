"""Number formats of the language model's matrices, which set the memory that a step reads, and so its time.

Only the matrices change. Activations between them, norms, attention and its memory stay float32, so that a
state means the same in every precision.

    fp32    as published
    bf16    matrices and their inputs and outputs in bfloat16; half the memory
    fp16    the same in float16, for a GPU: on a CPU a step of several rows is slower than in fp32
    int8    matrices in 8 bits with a scale for each output; over a quarter of the memory; CPU only
    int4    only in ONNX Runtime, see ``models.cosyvoice.onnx_graphs``

XTTS has int8 in ONNX Runtime only, see ``models.xtts.onnx_gpt``.

With int8 the whole first layer keeps 16 bits, and so do the attention projections in the first quarter of the
layers: errors made there pass through all later layers, and made up three quarters of the total.

An int8 product takes its input as two planes of 8-bit digits, the second one for the remainder of the first.
Qwen has rows with one channel a hundred times as large as the others; two planes keep the small channels. The
second plane is nearly free, because a product of few rows takes as long as reading its matrix (two rows take
up to 1.4 times as long as six, so at least six are computed).

Sums of whole numbers do not depend on their order, so with int8, as with fp32, a session samples the same ids
alone and in a batch. With 16 bits it does not: the products are rounded coarsely, their order of summation
depends on the number of rows, and different ids are drawn soon.

Source: LLM.int8() (arXiv:2208.07339) for scales by row and output, and for what outliers do to 8 bits.

Some float32 matrices are pairs of float16, for the products of ``kernels.fused_kernels``, which explains
them.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..devices.execution import Precision
from .kernel_support import has_fused_kernels
from .layers import MIN_PRODUCT_ROWS, CausalConv, Linear, QkvProjection

_LEAST_SCALE = 1e-30  # of a row; its inverse is still finite


class MatrixRole(Enum):
    """Part of the decoder that a matrix belongs to; with int8, matrices below this depth keep 16 bits."""

    ATTENTION = 1 / 4
    OTHER = 1 / 24


def linear_class(precision: Precision, role: MatrixRole, depth: float) -> type[Linear]:
    """The matrix product of a precision. ``depth`` is layer / layers, and 1 for the head."""
    if precision is Precision.INT8 and depth < role.value:
        return _Int16Linear
    return _LINEARS[precision]


class _SixteenBitLinear(Linear):
    """A product in 16 bits; returns the dtype of its input."""

    dtype: ClassVar[torch.dtype]

    def prepare(self) -> None:
        for name, parameter in list(self.named_parameters()):
            setattr(self, name, nn.Parameter(parameter.to(self.dtype), requires_grad=False))
        super().prepare()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.dtype)).to(x.dtype)


class _Bf16Linear(_SixteenBitLinear):
    dtype = torch.bfloat16


class _Fp16Linear(_SixteenBitLinear):
    dtype = torch.float16


class _QuantizedLinear(Linear):
    """A product of two planes of input digits with a matrix of weight digits, in whole numbers.

    A row of inputs is scaled to the largest integers that fit and split into two digits of base b, stored
    with an offset of b / 2; the product of a zero row, computed once, removes the offset from each sum:

        x = max_abs / max_integer * (b * (high - b / 2) + (low - b / 2))         0 <= high, low < b
    """

    digits: ClassVar[int]  # of a weight, 8 bits each
    bits: int  # of a digit of an input
    max_integer: int  # of a scaled input
    scale: Tensor  # (digits * outputs,) float32
    zero_points: Tensor  # (digits * outputs,) int32, all 0
    zero_offsets: Tensor | None  # (digits * outputs,) float32, minus the product of a zero row
    rounding_offset: float  # offset of the digits, and 0.5 because integers are truncated

    def prepare(self) -> None:
        weight = self.get_parameter("weight").data
        self.weight = None
        scale = weight.abs().amax(1).div_(sum(127 << 8 * place for place in range(self.digits)))
        integers = weight.div(scale.clamp_(min=_LEAST_SCALE)[:, None]).round_().to(torch.int32)
        self.matrix = torch.ops.onednn.qlinear_prepack(_weight_digits(integers, self.digits), None)
        self.bits = _bits_per_digit()
        base = 1 << self.bits
        middle = base * (base + 1) // 2
        self.max_integer = base * base - 1 - middle
        self.scale = torch.cat([scale / self.max_integer * 256**place for place in range(self.digits)])
        self.zero_points = torch.zeros(len(self.scale), dtype=torch.int32)
        self.rounding_offset = middle + 0.5
        self.zero_offsets = None
        zero_row = torch.full((1, weight.shape[1]), base // 2, dtype=torch.uint8)
        self.zero_offsets = self._multiply(zero_row)[0].neg_()

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) float32 to (..., outputs) float32."""
        if not x.numel():
            return x.new_empty(*x.shape[:-1], len(self.scale) // self.digits)
        rows = x.reshape(-1, x.shape[-1])
        max_abs = rows.abs().amax(-1, keepdim=True).clamp_(min=_LEAST_SCALE)
        high, low = self._multiply(self._digit_planes(rows, max_abs))[: 2 * len(rows)].chunk(2)
        sums = low.add_(high, alpha=1 << self.bits)
        if self.digits > 1:
            sums = sums.view(len(sums), self.digits, -1).sum(1)
        sums.mul_(max_abs)  # and then add: addcmul is not vectorized over a column of scales
        product = sums if self.bias is None else sums.add_(self.bias)
        return product.view(*x.shape[:-1], -1)

    def _digit_planes(self, rows: Tensor, max_abs: Tensor) -> Tensor:
        """Digits of (B, K) inputs: (2 * B or more, K) uint8, high digits, low digits, then undefined rows."""
        scaled = rows * (self.max_integer / max_abs)
        integers = scaled.add_(self.rounding_offset).to(torch.int32)
        count = len(rows)
        planes = torch.empty(max(MIN_PRODUCT_ROWS, 2 * count), rows.shape[1], dtype=torch.uint8)
        planes[:count].copy_(integers >> self.bits)
        if self.bits < 8:  # 8 bits are those that uint8 keeps
            integers.bitwise_and_((1 << self.bits) - 1)
        planes[count : 2 * count].copy_(integers)
        return planes

    def _multiply(self, planes: Tensor) -> Tensor:
        """(2 * B, K) uint8 to (2 * B, digits * N) float32."""
        # The overload is named, because its lookup takes as long as a small product.
        product: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            planes, 1.0, 0, self.matrix, self.scale, self.zero_points,
            self.zero_offsets, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


class _Int8Linear(_QuantizedLinear):
    digits = 1


class _Int16Linear(_QuantizedLinear):
    digits = 2


@cache
def _bits_per_digit() -> int:
    # Without VNNI two 8-bit products are added in 16 bits, which saturates at full size.
    return 8 if _full_size_products_are_exact() else 7


def _full_size_products_are_exact() -> bool:
    inputs, outputs = 64, 32
    matrix = torch.ops.onednn.qlinear_prepack(torch.full((outputs, inputs), 127, dtype=torch.int8), None)
    sums = torch.ops.onednn.qlinear_pointwise.default(
        torch.full((MIN_PRODUCT_ROWS, inputs), 255, dtype=torch.uint8), 1.0, 0, matrix, torch.ones(outputs),
        torch.zeros(outputs, dtype=torch.int32), None, 1.0, 0, torch.float32, "none", [], "",
    )  # fmt: skip
    return bool((sums == inputs * 255 * 127).all())


def _weight_digits(integers: Tensor, digits: int) -> Tensor:
    """Split (N, K) int32 into (digits * N, K) int8, the lowest digits first."""
    parts = []
    for _ in range(digits):
        higher = (integers + 128) >> 8
        parts.append((integers - (higher << 8)).to(torch.int8))
        integers = higher
    return torch.cat(parts)


_LINEARS: Mapping[Precision, type[Linear]] = {
    Precision.FP32: Linear,
    Precision.BF16: _Bf16Linear,
    Precision.FP16: _Fp16Linear,
    Precision.INT8: _Int8Linear,
}


LARGEST_FACTOR = 65_504.0  # of float16


def split_matrices(layers: Iterable[Linear | CausalConv | QkvProjection]) -> None:
    """Set ``halves`` of layers whose matrices the kernels can multiply by, if their device has kernels."""
    for layer in layers:
        device = next(tensor.device for tensor in (*layer.parameters(), *layer.buffers()))
        if has_fused_kernels(device):
            layer.halves = _halves_of(layer.whole_matrix())
            if isinstance(layer, QkvProjection):
                layer.whole_bias = layer.join_biases()


def drop_low_halves(network: nn.Module) -> None:
    """Leave one product of float16 to the kernels of layers that were split, instead of three."""
    for module in network.modules():
        if isinstance(module, Linear | CausalConv | QkvProjection) and module.halves is not None:
            module.halves = module.halves[:1].clone()  # which frees the low ones


def _halves_of(matrix: Tensor) -> Tensor | None:
    if any(width % 32 for width in matrix.shape) or float(matrix.abs().max()) > LARGEST_FACTOR:
        return None
    return split_matrix(matrix)


def split_matrix(matrix: Tensor) -> Tensor:
    """The halves of a matrix: (2, D, C) float16. matrix: (D, C) float32, within ``LARGEST_FACTOR``."""
    high = matrix.half()
    return torch.stack([high, ((matrix - high.float()) * 2048).half()])
