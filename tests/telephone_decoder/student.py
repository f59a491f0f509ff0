"""The student: a decoder for telephones at half the frame rate, in torch.

    hidden (B, T, 130) -> pairs of frames (B, T / 2, 260) -> convolution -> blocks -> (B, T - 40, 6, 200)

A block is a convolution of each channel, a norm, and two products with a GELU between (ConvNeXt). No
convolution is padded, so the spectrum begins 26 frames after the input and ends 14 before it. The six parts
of a frame are log magnitude, cosine and sine of the angle (of any length) of the harmonic part, and the same
of the part of free phase.

Source: Liu et al. 2022, A ConvNet for the 2020s, arXiv:2201.03545.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vivavoce.models.hibari.decoder import HIDDEN_CHANNELS

PAIR = 2
STUDENT_PARTS = 6


@dataclass(frozen=True, slots=True)
class StudentSize:
    """Widths of the network, and pairs of frames that its convolutions reach back and ahead."""

    channels: int = 192
    blocks: int = 5
    expansion: int = 3
    input_reach: tuple[int, int] = (3, 2)
    block_reach: tuple[int, int] = (2, 1)
    bins: int = 200

    @property
    def reach(self) -> tuple[int, int]:
        """Pairs of frames before and after one that its spectrum depends on."""
        before, after = (
            own + self.blocks * block for own, block in zip(self.input_reach, self.block_reach, strict=True)
        )
        return before, after

    @property
    def products_per_frame(self) -> int:
        """Multiplications, half a pair's."""
        width = self.channels
        first = PAIR * HIDDEN_CHANNELS * (sum(self.input_reach) + 1) * width
        block = 2 * width * width * self.expansion + (sum(self.block_reach) + 1) * width
        return (first + self.blocks * block + width * PAIR * STUDENT_PARTS * self.bins) // PAIR


class StudentBlock(nn.Module):
    """One block; its input is longer than its output by the reach of its convolution."""

    def __init__(self, size: StudentSize) -> None:
        super().__init__()
        width, inner = size.channels, size.channels * size.expansion
        self._reach = size.block_reach
        self.taps = nn.Parameter(torch.randn(sum(self._reach) + 1, width) * 0.3)
        self.bias = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)
        nn.init.normal_(self.widen.weight, std=width**-0.5)
        nn.init.normal_(self.narrow.weight, std=0.5 * inner**-0.5)
        nn.init.zeros_(self.widen.bias)
        nn.init.zeros_(self.narrow.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, U, C) -> (B, U - reach, C)."""
        before, after = self._reach
        length = x.shape[1] - before - after
        y = self.bias.expand(x.shape[0], length, -1)
        for at in range(before + after + 1):
            y = y + x[:, at : at + length] * self.taps[at]
        residual: Tensor = self.narrow(F.gelu(self.widen(self.norm(y))))
        return x[:, before : before + length] + residual


class Student(nn.Module):
    """The network. Its input is standardized by buffers, which the exported weights absorb."""

    def __init__(self, size: StudentSize) -> None:
        super().__init__()
        self.size = size
        pair = PAIR * HIDDEN_CHANNELS
        self.register_buffer("mean", torch.zeros(pair))
        self.register_buffer("scale", torch.ones(pair))
        self.first = nn.Linear((sum(size.input_reach) + 1) * pair, size.channels)
        self.blocks = nn.ModuleList(StudentBlock(size) for _ in range(size.blocks))
        self.norm = nn.LayerNorm(size.channels, elementwise_affine=False)
        self.head = nn.Linear(size.channels, PAIR * STUDENT_PARTS * size.bins)
        nn.init.normal_(self.head.weight, std=0.5 * size.channels**-0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, 130) -> (B, T - 40, 6, bins), T even: of frames 26 to T - 15."""
        batch, frames, _ = hidden.shape
        mean, scale = self.get_buffer("mean"), self.get_buffer("scale")
        pairs = (hidden.reshape(batch, frames // PAIR, -1) - mean) * scale
        length = pairs.shape[1] - sum(self.size.input_reach)
        taps = sum(self.size.input_reach) + 1
        x = self.first(torch.cat([pairs[:, at : at + length] for at in range(taps)], 2))
        for block in self.blocks:
            x = block(x)
        parts: Tensor = self.head(self.norm(x))
        return parts.reshape(batch, -1, STUDENT_PARTS, self.size.bins)

    @torch.no_grad()
    def standardize(self, hidden: Tensor, means: Tensor) -> None:
        """Take mean and deviation of hidden frames (N, 130), and begin with mean parts (6, bins)."""
        deviation = hidden.std(0).clamp(min=1e-3)
        self.get_buffer("mean").copy_(hidden.mean(0).repeat(PAIR))
        self.get_buffer("scale").copy_((1 / deviation).repeat(PAIR))
        self.head.bias.copy_(means.reshape(-1).repeat(PAIR))
