"""Layers of the networks, channels-last: products, causal convolution, joined projections, time features.

Parameters carry upstream's names and shapes; ``prepare`` lays them out for the products that they are used
in, once the weights are in, and drops them, so that nothing is held twice. On a CPU that layout is oneDNN's:
with a few rows to a product, as here, it takes 0.6 to 0.8 of the time of torch's own. Six rows take it
0.8 of the time of one, or of two: it is given six at least.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/decoder.py (CausalConv1d),
matcha/models/components/decoder.py@dd9105b.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEWEST_ROWS = 6


class Prepared(nn.Module):
    """A module that computes something from its weights once."""

    def prepare(self) -> None:
        """Compute it; called by ``load``, for inner modules first."""
        raise NotImplementedError


def laid_out(weight: Tensor) -> Tensor:
    """A matrix (outputs, inputs) as ``product`` takes it; the one given is not needed any more."""
    has_blocks = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if has_blocks and weight.device.type == "cpu" and _has_layout(weight.dtype):
        return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())  # type: ignore[no-any-return]
    return weight.contiguous()


def _has_layout(dtype: torch.dtype) -> bool:
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def product(x: Tensor, matrix: Tensor | None, bias: Tensor | None) -> Tensor:
    """x: (..., inputs), a laid out matrix -> (..., outputs)."""
    if matrix is None:
        raise RuntimeError("prepare() has not been called after the weights were loaded")
    if not matrix.is_mkldnn:
        return F.linear(x, matrix, bias)
    if not x.numel():
        return x.new_empty(*x.shape[:-1], matrix.shape[0])
    rows = x.numel() // x.shape[-1]
    if rows >= FEWEST_ROWS:
        return _blocked_product(x, matrix, bias)
    more = F.pad(x.reshape(rows, -1), (0, 0, 0, FEWEST_ROWS - rows))
    return _blocked_product(more, matrix, bias)[:rows].view(*x.shape[:-1], -1)


def _blocked_product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, matrix, bias, "none", [], "")  # type: ignore[no-any-return]


class Linear(Prepared):
    """A matrix product, with a bias unless there is none."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.register_buffer("matrix", None, persistent=False)
        self.matrix: Tensor | None

    def prepare(self) -> None:
        self.matrix = laid_out(_taken(self, "weight"))

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs) -> (..., outputs)."""
        return product(x, self.matrix, self.bias)


class Pointwise(Linear):
    """A convolution of kernel 1, channels-last."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 1))

    def prepare(self) -> None:
        self.matrix = laid_out(_taken(self, "weight").flatten(1))


class CausalConv(Prepared):
    """A convolution over time that looks ``kernel - 1`` frames back, as one matrix product.

    kernel 3     context  |c c|          frames   |x x x x x|
                          |----|                   output t sees t-2, t-1, t
    """

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.inputs, self.kernel = inputs, kernel
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.register_buffer("matrix", None, persistent=False)
        self.matrix: Tensor | None

    def prepare(self) -> None:
        """Lay the weight out as (outputs, kernel * inputs)."""
        self.matrix = laid_out(_taken(self, "weight").permute(0, 2, 1).flatten(1))

    def context(self, rows: int) -> Tensor:
        """The silence before a beginning: (rows, kernel - 1, inputs)."""
        return self.bias.new_zeros(rows, self.kernel - 1, self.inputs)

    def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """x: (N, T, inputs) -> (N, T, outputs) and the next context."""
        seen = torch.cat([context, x], 1)
        length = x.shape[1]
        columns = torch.cat([seen[:, lag : lag + length] for lag in range(self.kernel)], 2)
        return product(columns, self.matrix, self.bias), seen[:, length:].contiguous()


class JoinedProjection(Prepared):
    """Query, key and value projections of a self-attention: the first by itself, the others in one."""

    def __init__(self, width: int, inner: int, bias: bool, names: tuple[str, str, str]) -> None:
        super().__init__()
        self.names = names
        for name in names:
            self.add_module(name, nn.Linear(width, inner, bias=bias))
        for name in ("query_matrix", "query_bias", "pair_matrix", "pair_bias"):
            self.register_buffer(name, None, persistent=False)
        self.query_matrix: Tensor | None
        self.query_bias: Tensor | None
        self.pair_matrix: Tensor | None
        self.pair_bias: Tensor | None

    def prepare(self) -> None:
        """Join the matrices of keys and values, in this order, and drop the three modules."""
        query, *others = [self.get_submodule(name) for name in self.names]
        self.query_matrix = laid_out(_taken(query, "weight"))
        self.pair_matrix = laid_out(torch.cat([_taken(part, "weight") for part in others]))
        if query.bias is not None:
            self.query_bias = _taken(query, "bias")
            self.pair_bias = torch.cat([_taken(part, "bias") for part in others])
        for name in self.names:
            delattr(self, name)

    def queries(self, x: Tensor) -> Tensor:
        """(N, T, width) -> (N, T, inner)."""
        return product(x, self.query_matrix, self.query_bias)

    def keys_values(self, x: Tensor) -> Tensor:
        """(N, T, width) -> (N, T, 2 * inner)."""
        return product(x, self.pair_matrix, self.pair_bias)


def _taken(module: nn.Module, name: str) -> Tensor:
    """A parameter's numbers, the module left without it."""
    parameter = module.get_parameter(name)
    setattr(module, name, None)
    return parameter.data


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


def load(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Take the weights over, out of ``weights``, without a copy, and lay them out.

    Raises RuntimeError that names missing and unknown keys.
    The network may have been built under ``torch.device("meta")``; it computes where the weights are.
    """
    network.load_state_dict(weights, strict=True, assign=True)
    weights.clear()
    network.requires_grad_(False)
    network.eval()
    prepare(network)


def prepare(network: nn.Module) -> None:
    """Prepare every module that has something to prepare."""
    for module in reversed(list(network.modules())):
        if isinstance(module, Prepared):
            module.prepare()
