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
and the second plane is nearly free: a product of few rows takes as long as its matrix takes to be read. Sums
are of whole numbers, so that a row's product is the same to the bit in any company, and a session says alone
what it says among others, as in fp32. In 16 bits it does not: what comes out of a product is rounded
coarsely, the order of its sums depends on how many rows there are, and soon other ids are drawn.

Source: LLM.int8() (arXiv:2208.07339) for scales by row and output, and for what outliers do to 8 bits.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import ClassVar

import torch
from torch import Tensor, nn

from .layers import Linear

_TINY = torch.finfo(torch.float32).tiny


class Precision(StrEnum):
    """What the language model's matrices are kept in."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


class Place(Enum):
    """Where in the decoder a matrix is. The value: up to which depth int8 leaves it 16 bits."""

    ATTENTION = 1 / 4
    OTHER = 1 / 24


def linear_of(precision: Precision, place: Place, depth: float) -> type[Linear]:
    """The matrix product of a precision. depth: 0 in the first layer, below 1 in the last, 1 in the head."""
    if precision is Precision.INT8 and depth < place.value:
        return _Int16Linear
    return _LINEARS[precision]


class _HalfLinear(Linear):
    """A product in 16 bits; takes and gives what it is called with."""

    dtype: ClassVar[torch.dtype]

    def prepare(self) -> None:
        for name, parameter in list(self.named_parameters()):
            setattr(self, name, nn.Parameter(parameter.to(self.dtype), requires_grad=False))
        super().prepare()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.dtype)).to(x.dtype)


class _Bf16Linear(_HalfLinear):
    dtype = torch.bfloat16


class _Fp16Linear(_HalfLinear):
    dtype = torch.float16


class _WholeLinear(Linear):
    """A product of two planes of digits with a matrix of digits: sums of whole numbers.

    Inputs become whole numbers u from 1 on, and those two digits in base b. What a row of noughts would come
    to is taken off the sums, which costs less than to do so in each:

        x = step * (u - b * b / 2)        u = b * high + low        0 <= high, low < b
    """

    digits: ClassVar[int]  # of a weight, 8 bits each
    bits: int
    scale: Tensor
    zeros: Tensor
    shifts: Tensor
    middle: Tensor
    noughts: Tensor

    def prepare(self) -> None:
        """Raises RuntimeError on a device other than a CPU."""
        weight = self.get_parameter("weight").data
        self.weight = None
        largest = sum(127 << 8 * place for place in range(self.digits))
        scale = weight.abs().amax(1).div_(largest).clamp_(min=_TINY)
        whole = weight.div(scale[:, None]).round_().to(torch.int32)
        self.matrix = torch.ops.onednn.qlinear_prepack(_weight_digits(whole, self.digits), None)
        self.scale = torch.cat([scale * 256**place for place in range(self.digits)])
        self.zeros = torch.zeros(len(self.scale), dtype=torch.int32)
        self.bits = _digit_bits()
        self.shifts = torch.tensor([self.bits, 0], dtype=torch.int32)[:, None, None]
        self.middle = torch.tensor((1 << 2 * self.bits) / 2 + 0.5)  # cut off afterwards, so rounded
        self.noughts = self._sums(self._planes(torch.zeros(1, weight.shape[1]))[0])

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs) float32 -> (..., outputs) float32."""
        if not x.numel():
            return x.new_empty(*x.shape[:-1], self.noughts.shape[1])
        planes, step = self._planes(x.reshape(-1, x.shape[-1]))
        product = self._sums(planes).sub_(self.noughts)
        product = product.mul_(step) if self.bias is None else torch.addcmul(self.bias, product, step)
        return product.view(*x.shape[:-1], -1)

    def _planes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K) float32 -> high digits of all rows, then low ones, (2 * B, K) uint8, and steps (B, 1)."""
        base = 1 << self.bits
        step = rows.abs().amax(-1, keepdim=True).div_(base * base // 2 - 1).clamp_(min=_TINY)
        whole = torch.addcdiv(self.middle, rows, step).to(torch.int32)
        planes = (whole >> self.shifts).bitwise_and_(base - 1).to(torch.uint8)
        return planes.flatten(0, 1), step

    def _sums(self, planes: Tensor) -> Tensor:
        """(2 * B, K) uint8 -> (B, N) float32."""
        # The overload by its name: to look for it takes as long as a small product.
        high, low = torch.ops.onednn.qlinear_pointwise.default(
            planes, 1.0, 0, self.matrix, self.scale, self.zeros,
            None, 1.0, 0, torch.float32, "none", [], "",
        ).chunk(2)  # fmt: skip
        sums = torch.add(low, high, alpha=1 << self.bits)
        return sums if self.digits == 1 else sums.view(len(sums), self.digits, -1).sum(1)


class _Int8Linear(_WholeLinear):
    digits = 1


class _Int16Linear(_WholeLinear):
    digits = 2


def _digit_bits() -> int:
    # Without VNNI two products of 8 bits are added in 16, where those of full size saturate.
    return 8 if torch.cpu._is_vnni_supported() else 7


def _weight_digits(whole: Tensor, digits: int) -> Tensor:
    """(N, K) int32 -> (digits * N, K) int8, the lowest digits first."""
    parts = []
    for _ in range(digits):
        higher = (whole + 128) >> 8
        parts.append((whole - (higher << 8)).to(torch.int8))
        whole = higher
    return torch.cat(parts)


_LINEARS: Mapping[Precision, type[Linear]] = {
    Precision.FP32: Linear,
    Precision.BF16: _Bf16Linear,
    Precision.FP16: _Fp16Linear,
    Precision.INT8: _Int8Linear,
}
