"""In which numbers the language model's matrices are kept: what a step reads, and so what a token costs.

Only the matrices change. Activations between them, norms, attention and its memory stay float32, so that a
state means the same in every precision and an error is the weights' own.

    fp32    as published
    bf16    matrices and what goes into and comes out of them in bfloat16; half the memory
    fp16    the same in float16; for a graphics card: on a CPU several rows at once take longer than in fp32
    int8    matrices in 8 bits, a scale for each output, but for the first ones; a third; CPU only

With int8 the first layer stays float32, and attention's projections in the first quarter of them: what is
wrong there goes through all that follows, and made three quarters of the error.

An int8 product takes its input in two planes of 8 bits, the second with what the first leaves over. A row
with one channel a hundred times as large as the others, as Qwen has them, keeps the small ones that way,
and the second plane is free: a product of few rows takes as long as its matrix takes to be read. Sums are of
whole numbers, so that a row's product is the same to the bit in any company.

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
    """Where in the decoder a matrix is. The value: up to which depth int8 leaves it in float32."""

    ATTENTION = 1 / 4
    OTHER = 1 / 24


def linear_of(precision: Precision, place: Place, depth: float) -> type[Linear]:
    """The matrix product of a precision. depth: 0 in the first layer, below 1 in the last, 1 in the head."""
    if precision is Precision.INT8 and depth < place.value:
        return Linear
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


class _Int8Linear(Linear):
    """A product of two 8 bit planes with an 8 bit matrix.

    An input becomes whole numbers u, and those their digits in base b, of which b / 2 stands for nought:

        x = step * (b * (high - b / 2) + (low - b / 2))         0 <= high, low < b
    """

    scale: Tensor
    zeros: Tensor

    def prepare(self) -> None:
        """Raises ValueError on a device other than a CPU."""
        weight = self.get_parameter("weight").data
        self.weight = None
        if weight.device.type != "cpu":
            raise ValueError(f"int8 is for a CPU, got {weight.device}; take bf16 or fp16")
        scale = weight.abs().amax(1).div_(127).clamp_(min=_TINY)
        whole = weight.div(scale[:, None]).round_().to(torch.int8)
        self.matrix = torch.ops.onednn.qlinear_prepack(whole, None)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("zeros", torch.zeros(len(scale), dtype=torch.int32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs) float32 -> (..., outputs) float32."""
        rows = x.reshape(-1, x.shape[-1])
        bits = _digit_bits()
        planes, step = _planes(rows, bits)
        high, low = self._whole_product(planes, nought=1 << (bits - 1)).chunk(2)
        product = torch.add(low, high, alpha=1 << bits).mul_(step)
        if self.bias is not None:
            product += self.bias
        return product.view(*x.shape[:-1], product.shape[-1])

    def _whole_product(self, planes: Tensor, nought: int) -> Tensor:
        if not planes.numel():
            return self.scale.new_empty(len(planes), len(self.scale))
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            planes, 1.0, nought, self.matrix, self.scale, self.zeros,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


def _digit_bits() -> int:
    # Without VNNI two products of 8 bits are added in 16, where those of full size saturate.
    return 8 if torch.cpu._is_vnni_supported() else 7


def _planes(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """(B, K) float32 -> high digits of all rows, then the low ones, (2 * B, K) uint8, and steps (B, 1)."""
    base = 1 << bits
    middle = (base + 1) * base // 2
    step = rows.abs().amax(-1, keepdim=True).div_(base * base - 1 - middle).clamp_(min=_TINY)
    whole = rows.div(step).add_(middle + 0.5).to(torch.int32)  # cut off, so rounded
    return torch.cat((whole >> bits, whole & (base - 1))).to(torch.uint8), step


_LINEARS: Mapping[Precision, type[Linear]] = {
    Precision.FP32: Linear,
    Precision.BF16: _Bf16Linear,
    Precision.FP16: _Fp16Linear,
    Precision.INT8: _Int8Linear,
}
