"""Convolutions whose weights are stored weight-normed, as every vocoder here has them.

On a CPU a float32 convolution is computed channels-last, as one of images of one row: with the widths and
lengths of a vocoder it takes 0.7 of the time of a one-dimensional one. Tensors keep the shape (B, C, T), in
memory (B, T, C) from the first such convolution on; ``join_columns`` keeps it so.

Source: T. Salimans and D. P. Kingma, Weight Normalization (2016); torch.nn.utils.parametrizations.weight_norm
(the keys).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import PreparedModule


class WeightNorm(nn.Module):
    """A weight stored as a length and a direction for each row of its first axis."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.original0 = nn.Parameter(torch.empty(shape[0], *(1 for _ in shape[1:])))
        self.original1 = nn.Parameter(torch.empty(shape))

    def weight(self, dtype: torch.dtype) -> Tensor:
        """The product of both parts, in the shape of the direction."""
        length, direction = self.original0.data.to(dtype), self.original1.data.to(dtype)
        norm: Tensor = torch.linalg.vector_norm(direction.flatten(1), dim=1).view_as(length)
        return direction * (length / norm)


class WeightNormConv(PreparedModule):
    """A one-dimensional convolution; its weight is stored weight-normed and multiplied out once."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, dilation: int = 1, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.dilation = dilation
        self.dtype = dtype
        self.is_channels_last = False
        self.kernel = kernel
        self.inputs = inputs
        self.bias = nn.Parameter(torch.empty(outputs))
        self.parametrizations: nn.ModuleDict = nn.ModuleDict({"weight": WeightNorm(outputs, inputs, kernel)})
        self.register_buffer("weight", None, persistent=False)
        self.weight: Tensor

    def prepare(self) -> None:
        weight = fold_weight_norm(self, self.dtype)
        self.bias = nn.Parameter(self.bias.data.to(self.dtype), requires_grad=False)
        self.is_channels_last = weight.device.type == "cpu" and self.dtype == torch.float32
        if self.is_channels_last:
            weight = weight[:, :, None].contiguous(memory_format=torch.channels_last)
        self.weight = weight

    @property
    def context_size(self) -> int:
        """Number of inputs beside its own that an output depends on."""
        return (self.kernel - 1) * self.dilation

    def forward(self, x: Tensor, padding: int = 0) -> Tensor:
        """x: (B, inputs, T) -> (B, outputs, T + 2 padding - context_size)."""
        if self.is_channels_last:
            image = x[:, :, None]
            return F.conv2d(image, self.weight, self.bias, padding=(0, padding), dilation=(1, self.dilation))[
                :, :, 0
            ]
        return F.conv1d(x, self.weight, self.bias, padding=padding, dilation=self.dilation)

    def same_padded(self, x: Tensor) -> Tensor:
        """Convolve with zeros beyond both ends: (B, inputs, T) -> (B, outputs, T)."""
        return self(x, self.context_size // 2)  # type: ignore[no-any-return]


class WeightNormTransposedConv(PreparedModule):
    """A transposed convolution, ``stride`` outputs for each input; its weight is stored weight-normed."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = (kernel - stride) // 2
        self.bias = nn.Parameter(torch.empty(outputs))
        self.parametrizations: nn.ModuleDict = nn.ModuleDict({"weight": WeightNorm(inputs, outputs, kernel)})
        self.register_buffer("weight", None, persistent=False)
        self.weight: Tensor

    def prepare(self) -> None:
        self.weight = fold_weight_norm(self, torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose1d(x, self.weight, self.bias, self.stride, self.padding)


def join_columns(earlier: Tensor, x: Tensor) -> Tensor:
    """Join (B, C, n) and (B, C, T) to (B, C, n + T); the memory of the result is channels-last."""
    return torch.cat([earlier.mT, x.mT], 1).mT


def fold_weight_norm(module: nn.Module, dtype: torch.dtype) -> Tensor:
    """The weight of a weight-normed module, whose two parts are then deleted to save memory."""
    parts = module.get_submodule("parametrizations.weight")
    assert isinstance(parts, WeightNorm)
    weight = parts.weight(dtype)
    del module.parametrizations
    return weight
