"""In which numbers the language model's matrices are kept: what a step reads, and so what a token costs.

Only the matrices change. Activations between them, norms, attention and its memory stay float32, so that a
state means the same in every precision and an error is the weights' own.

    fp32    as published
    bf16    matrices and what goes into and comes out of them in bfloat16; half the memory
    fp16    the same in float16; for a graphics card: on a CPU several rows at once take longer than in fp32
    int8    matrices in 8 bits, a scale for each output, the first ones in 16; over a quarter; CPU only

With int8 the first layer keeps 16 bits, and attention's projections in the first quarter of them: what is
wrong there goes through all that follows, and made three quarters of the error.

An int8 product takes its input in two planes of 8 bits, the second with what the first leaves over. A row
with one channel a hundred times as large as the others, as Qwen has them, keeps the small ones that way,
and the second plane is nearly free: a product of few rows takes as long as its matrix takes to be read (two
take up to 1.4 times as long as six, so it is given six). Sums are of whole numbers, so that a row's product
is the same to the bit in any company, and a session says alone what it says among others, as in fp32. In 16
bits it does not: what comes out of a product is rounded coarsely, the order of its sums depends on how many
rows there are, and soon other ids are drawn.

Source: LLM.int8() (arXiv:2208.07339) for scales by row and output, and for what outliers do to 8 bits.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import ClassVar

import torch
from torch import Tensor, nn

from .layers import MIN_PRODUCT_ROWS, Linear

_TINY = torch.finfo(torch.float32).tiny


class Precision(StrEnum):
    """What the language model's matrices are kept in."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


class MatrixRole(Enum):
    """Where in the decoder a matrix is. The value: up to which depth int8 leaves it 16 bits."""

    ATTENTION = 1 / 4
    OTHER = 1 / 24


def linear_class(precision: Precision, place: MatrixRole, depth: float) -> type[Linear]:
    """The matrix product of a precision. depth: 0 in the first layer, below 1 in the last, 1 in the head."""
    if precision is Precision.INT8 and depth < place.value:
        return _Int16Linear
    return _LINEARS[precision]


class _SixteenBitLinear(Linear):
    """A product in 16 bits; takes and gives what it is called with."""

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
    """A product of two planes of digits with a matrix of digits: sums of whole numbers.

    A row of inputs becomes whole numbers as large as fit, and those two digits in base b, of which b / 2
    stands for nought; what noughts come to is taken off with each sum:

        x = largest / limit * (b * (high - b / 2) + (low - b / 2))         0 <= high, low < b
    """

    digits: ClassVar[int]  # of a weight, 8 bits each
    bits: int  # of a digit of an input
    max_integer: int
    scale: Tensor
    zero_points: Tensor
    zero_offsets: Tensor | None
    digit_shifts: Tensor
    rounding_offset: Tensor

    def prepare(self) -> None:
        weight = self.get_parameter("weight").data
        self.weight = None
        scale = weight.abs().amax(1).div_(sum(127 << 8 * place for place in range(self.digits)))
        integers = weight.div(scale.clamp_(min=_TINY)[:, None]).round_().to(torch.int32)
        self.matrix = torch.ops.onednn.qlinear_prepack(_weight_digits(integers, self.digits), None)
        self.bits = _bits_per_digit()
        base = 1 << self.bits
        middle = base * (base + 1) // 2
        self.max_integer = base * base - 1 - middle
        self.scale = torch.cat([scale / self.max_integer * 256**place for place in range(self.digits)])
        self.zero_points = torch.zeros(len(self.scale), dtype=torch.int32)
        self.digit_shifts = torch.tensor([self.bits, 0], dtype=torch.int32)[:, None, None]
        self.rounding_offset = torch.tensor(middle + 0.5)  # what follows is cut off, so rounded
        self.zero_offsets = None
        zero_row = torch.full((1, weight.shape[1]), base // 2, dtype=torch.uint8)
        self.zero_offsets = self._multiply(zero_row)[0].neg_()

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs) float32 -> (..., outputs) float32."""
        if not x.numel():
            return x.new_empty(*x.shape[:-1], len(self.scale) // self.digits)
        rows = x.reshape(-1, x.shape[-1])
        max_abs = rows.abs().amax(-1, keepdim=True).clamp_(min=_TINY)
        high, low = self._multiply(self._digit_planes(rows, max_abs))[: 2 * len(rows)].chunk(2)
        sums = torch.add(low, high, alpha=1 << self.bits)
        if self.digits > 1:
            sums = sums.view(len(sums), self.digits, -1).sum(1)
        product = sums.mul_(max_abs) if self.bias is None else torch.addcmul(self.bias, sums, max_abs)
        return product.view(*x.shape[:-1], -1)

    def _digit_planes(self, rows: Tensor, max_abs: Tensor) -> Tensor:
        """(B, K) float32, (B, 1) -> (2 * B or more, K) uint8: high digits of all rows, low ones, anything."""
        integers = torch.addcdiv(self.rounding_offset, rows, max_abs, value=self.max_integer).to(torch.int32)
        planes = integers >> self.digit_shifts
        if self.bits < 8:
            planes.bitwise_and_((1 << self.bits) - 1)
        count = 2 * len(rows)
        buffer = torch.empty(max(MIN_PRODUCT_ROWS, count), rows.shape[1], dtype=torch.uint8)
        buffer[:count].view(planes.shape).copy_(planes)
        return buffer

    def _multiply(self, planes: Tensor) -> Tensor:
        """(2 * B, K) uint8 -> (2 * B, digits * N) float32."""
        # The overload by its name: to look for it takes as long as a small product.
        product: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            planes, 1.0, 0, self.matrix, self.scale, self.zero_points,
            self.zero_offsets, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


class _Int8Linear(_QuantizedLinear):
    digits = 1


class _Int16Linear(_QuantizedLinear):
    digits = 2


def _bits_per_digit() -> int:
    # Without VNNI two products of 8 bits are added in 16, where those of full size saturate.
    return 8 if torch.cpu._is_vnni_supported() else 7


def _weight_digits(integers: Tensor, digits: int) -> Tensor:
    """(N, K) int32 -> (digits * N, K) int8, the lowest digits first."""
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
