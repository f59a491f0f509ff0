"""Layers of the flow networks, channels-last: causal convolution, joined projections, time features.

Parameters carry upstream's names and shapes; ``prepare`` lays them out for one matrix product each and makes
the parameters views of that layout, so that nothing is held twice. Call it once after the weights are in.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/decoder.py (CausalConv1d),
matcha/models/components/decoder.py@dd9105b.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Prepared(nn.Module):
    """A module that computes something from its weights once."""

    def prepare(self) -> None:
        """Compute it; called by ``load``, for inner modules first."""
        raise NotImplementedError


class CausalConv(Prepared):
    """A convolution over time that looks ``kernel - 1`` frames back, as one matrix product.

    kernel 3     context  |c c|          frames   |x x x x x|
                          |----|                   output t sees t-2, t-1, t
    """

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.register_buffer("matrix", None, persistent=False)
        self.matrix: Tensor | None

    @property
    def kernel(self) -> int:
        return self.weight.shape[2]

    def prepare(self) -> None:
        """Lay the weight out as (outputs, kernel * inputs)."""
        outputs, inputs, kernel = self.weight.shape
        self.matrix = self.weight.data.permute(0, 2, 1).reshape(outputs, kernel * inputs).contiguous()
        self.weight.data = self.matrix.view(outputs, kernel, inputs).permute(0, 2, 1)

    def context(self, rows: int) -> Tensor:
        """The silence before a beginning: (rows, kernel - 1, inputs)."""
        return self.bias.new_zeros(rows, self.kernel - 1, self.weight.shape[1])

    def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """x: (N, T, inputs) -> (N, T, outputs) and the next context."""
        if self.matrix is None:
            raise RuntimeError("prepare() has not been called after the weights were loaded")
        seen = torch.cat([context, x], 1)
        length = x.shape[1]
        columns = torch.cat([seen[:, lag : lag + length] for lag in range(self.kernel)], 2)
        return F.linear(columns, self.matrix, self.bias), seen[:, length:].contiguous()


class JoinedProjection(Prepared):
    """Query, key and value projections of a self-attention, computed in one product."""

    def __init__(self, width: int, inner: int, bias: bool, names: tuple[str, str, str]) -> None:
        super().__init__()
        self.names = names
        for name in names:
            self.add_module(name, nn.Linear(width, inner, bias=bias))
        self.register_buffer("matrix", None, persistent=False)
        self.register_buffer("offset", None, persistent=False)
        self.matrix: Tensor | None
        self.offset: Tensor | None

    def prepare(self) -> None:
        """Join the three matrices, rows in the order query, key, value."""
        parts = [self.get_submodule(name) for name in self.names]
        self.matrix = _join(parts, "weight")
        self.offset = None if parts[0].bias is None else _join(parts, "bias")

    def queries_keys_values(self, x: Tensor) -> Tensor:
        """(N, T, width) -> (N, T, 3 * inner)."""
        if self.matrix is None:
            raise RuntimeError("prepare() has not been called after the weights were loaded")
        return F.linear(x, self.matrix, self.offset)

    def keys_values(self, x: Tensor) -> Tensor:
        """(N, T, width) -> (N, T, 2 * inner)."""
        if self.matrix is None:
            raise RuntimeError("prepare() has not been called after the weights were loaded")
        inner = self.matrix.shape[0] // 3
        return F.linear(x, self.matrix[inner:], None if self.offset is None else self.offset[inner:])


def _join(parts: list[nn.Module], name: str) -> Tensor:
    joined = torch.cat([part.get_parameter(name).data for part in parts])
    for part, rows in zip(parts, joined.chunk(len(parts)), strict=True):
        part.get_parameter(name).data = rows
    return joined


def pair(keys_values: Tensor) -> Tensor:
    """(N, T, 2 * D) -> (N, 2, T, D), a view."""
    N, T, width = keys_values.shape
    return keys_values.view(N, T, 2, width // 2).transpose(1, 2)


def time_features(t: Tensor, width: int, scale: float = 1000.0) -> Tensor:
    """Sines, then cosines of a solver time at geometric rates: (N,) -> (N, width)."""
    half = width // 2
    rates = torch.exp(
        torch.arange(half, device=t.device, dtype=torch.float32) * -(math.log(10000) / (half - 1))
    )
    angles = scale * t[:, None] * rates[None]
    return torch.cat([angles.sin(), angles.cos()], -1)


def load(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Take the weights over, without a copy, and lay them out.

    Raises RuntimeError that names missing and unknown keys.
    The network may have been built under ``torch.device("meta")``.
    """
    network.load_state_dict(weights, strict=True, assign=True)
    network.requires_grad_(False)
    network.eval()
    prepare(network)


def prepare(network: nn.Module) -> None:
    """Prepare every module that has something to prepare."""
    for module in reversed(list(network.modules())):
        if isinstance(module, Prepared):
            module.prepare()
