"""In which numbers the language model's matrices are kept: what a step reads, and so what a token costs.

Only the matrices change. Activations between them, norms, attention and its memory stay float32, so that a
state means the same in every precision and an error is the weights' own.

    fp32    as published
    bf16    matrices and what goes into and comes out of them in bfloat16; half the memory
    fp16    the same in float16; for a graphics card: on a CPU several rows at once take longer than in fp32
    int8    matrices in 8 bits, a scale for each output; attention's in 16; 0.29 of the memory; CPU only

Attention's projections are an eighth of the numbers and made two thirds of the error when they were in 8
bits.

An int8 product takes its input in two planes of 8 bits, the second with what the first leaves over. A row
with one channel a hundred times as large as the others, as Qwen has them, keeps the small ones that way,
and the second plane is free: a product of few rows takes as long as its matrix takes to be read. Sums are of
whole numbers, so that a row's product is the same to the bit in any company.

Source: LLM.int8() (arXiv:2208.07339) for scales by row and output, and for what outliers do to 8 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from torch import Tensor, nn

from .layers import Linear

_TINY = torch.finfo(torch.float32).tiny

_FINE = 254  # of a unit, so that half a unit is 127


class Precision(StrEnum):
    """What the language model's matrices are kept in."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class Products:
    """What a decoder's matrices are. attention: of its projections. other: of all else."""

    attention: type[Linear] = Linear
    other: type[Linear] = Linear


def products_of(precision: Precision) -> Products:
    """The matrix products of a precision."""
    return _PRODUCTS[precision]


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
        scale = weight.abs().amax(1).clamp(min=_TINY) / 127
        whole, scale = self._whole(weight / scale[:, None], scale)
        self.matrix = torch.ops.onednn.qlinear_prepack(whole.to(torch.int8), None)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("zeros", torch.zeros(len(scale), dtype=torch.int32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs) float32 -> (..., outputs) float32."""
        rows = x.reshape(-1, x.shape[-1])
        base = _base()
        planes, step = _planes(rows, base)
        high, low = self._whole_product(planes, base // 2).chunk(2)
        product = torch.add(low, high, alpha=base).mul_(step)
        if self.bias is not None:
            product += self.bias
        return product.view(*x.shape[:-1], -1)

    def _whole(self, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Whole numbers up to 127 and their scales, from a weight in these units."""
        return weight.round_(), scale

    def _whole_product(self, planes: Tensor, nought: int) -> Tensor:
        if not planes.numel():
            return self.scale.new_empty(len(planes), len(self.scale))
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            planes, 1.0, nought, self.matrix, self.scale, self.zeros,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


class _Int16Linear(_Int8Linear):
    """The same with what 8 bits leave over of the matrix in 8 more, as further outputs."""

    def _whole(self, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        coarse = weight.round()
        fine = weight.sub_(coarse).mul_(_FINE).round_()
        return torch.cat((coarse, fine)), torch.cat((scale, scale / _FINE))

    def _whole_product(self, planes: Tensor, nought: int) -> Tensor:
        coarse, fine = super()._whole_product(planes, nought).chunk(2, -1)
        return coarse + fine


def _base() -> int:
    # Without VNNI two products of 8 bits are added in 16, where those of full size saturate.
    return 256 if torch.cpu._is_vnni_supported() else 128


def _planes(rows: Tensor, base: int) -> tuple[Tensor, Tensor]:
    """(B, K) float32 -> high digits of all rows, then the low ones, (2 * B, K) uint8, and steps (B, 1)."""
    middle = base * (base // 2) + base // 2
    largest = torch.linalg.vector_norm(rows, torch.inf, -1, keepdim=True)
    step = largest.clamp_(min=_TINY).div_(base * base - 1 - middle)
    whole = rows.div(step).round_().add_(middle)
    high = whole.div(base).floor_()
    return torch.cat((high, whole.sub_(high, alpha=base))).to(torch.uint8), step


_PRODUCTS: Mapping[Precision, Products] = {
    Precision.FP32: Products(),
    Precision.BF16: Products(_Bf16Linear, _Bf16Linear),
    Precision.FP16: Products(_Fp16Linear, _Fp16Linear),
    Precision.INT8: Products(_Int16Linear, _Int8Linear),
}
