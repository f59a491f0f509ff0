"""Layers of the networks, channels-last: products, causal convolution, joined projections, time features.

Parameters have upstream's names and shapes. After loading, ``prepare_modules`` packs each weight for the
product that uses it and deletes the original, so that no weight is held twice. Layers that are not prepared
compute with their parameters, so that gradients reach them; only training does so. On a CPU the packing is
oneDNN's: with a few rows in a product, as here, it takes 0.6 to 0.8 of the time of torch's own. Six rows take
0.8 of the time of one or two, so every product gets at least six.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/decoder.py (CausalConv1d),
matcha/models/components/decoder.py@dd9105b.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_PRODUCT_ROWS = 6


class PreparedModule(nn.Module):
    """A module that derives something from its weights once, after loading."""

    def prepare(self) -> None:
        """Derive it. ``load_weights`` calls this, for inner modules first."""
        raise NotImplementedError


def new_embedding(rows: int, width: int) -> nn.Embedding:
    """An embedding of zeros. To draw weights on the device "meta", torch imports its compiler, 1 to 2 s."""
    return nn.Embedding(rows, width, _weight=torch.zeros(rows, width))


def pack_matrix(weight: Tensor) -> Tensor:
    """Pack a weight (outputs, inputs) for ``packed_linear``. The weight given is no longer needed."""
    has_blocks = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if has_blocks and weight.device.type == "cpu" and _onednn_packs(weight.dtype):
        return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())  # type: ignore[no-any-return]
    return weight.contiguous()


def _onednn_packs(dtype: torch.dtype) -> bool:
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def packed_linear(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """x: (..., inputs) and a matrix, packed or not -> (..., outputs)."""
    if not matrix.is_mkldnn:
        return F.linear(x, matrix, bias)
    if not x.numel():
        return x.new_empty(*x.shape[:-1], matrix.shape[0])
    rows = x.numel() // x.shape[-1]
    if rows >= MIN_PRODUCT_ROWS:
        return _onednn_linear(x, matrix, bias)
    padded_rows = F.pad(x.reshape(rows, -1), (0, 0, 0, MIN_PRODUCT_ROWS - rows))
    return _onednn_linear(padded_rows, matrix, bias)[:rows].view(*x.shape[:-1], -1)


def present(part: Tensor | None) -> Tensor:
    """A tensor that the module has, after ``has_fused_kernels`` of a network has said so."""
    assert part is not None
    return part


def _prepared(matrix: Tensor | None) -> Tensor:
    if matrix is None:
        raise RuntimeError("prepare() has not been called after the weights were loaded")
    return matrix


def _onednn_linear(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, matrix, bias, "none", [], "")  # type: ignore[no-any-return]


class Linear(PreparedModule):
    """A matrix product with an optional bias."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.register_buffer("matrix", None, persistent=False)
        self.matrix: Tensor | None
        self.halves: Tensor | None = None  # of ``whole_matrix``, see ``precision.split_matrix``

    def prepare(self) -> None:
        """Pack the weight."""
        self.matrix = pack_matrix(self.as_matrix(_take_parameter(self, "weight")))

    def as_matrix(self, weight: Tensor) -> Tensor:
        """The weight as (outputs, inputs)."""
        return weight

    def whole_matrix(self) -> Tensor:
        """(outputs, inputs), after ``prepare``."""
        return _prepared(self.matrix)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs) -> (..., outputs)."""
        matrix = self.as_matrix(self.get_parameter("weight")) if self.matrix is None else self.matrix
        return packed_linear(x, matrix, self.bias)

    def halves_and_bias(self) -> tuple[Tensor, Tensor]:
        """For the kernels, after ``split_matrices``."""
        return present(self.halves), present(self.bias)


def join_matrices(layers: Sequence[Linear]) -> Tensor:
    """(layers, outputs, inputs), after ``prepare``. The layers' matrices become its parts."""
    whole = torch.stack([_prepared(layer.matrix) for layer in layers])
    for layer, part in zip(layers, whole, strict=True):
        layer.matrix = part
    return whole


class PointwiseConv(Linear):
    """A convolution with kernel 1, channels-last."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 1))

    def as_matrix(self, weight: Tensor) -> Tensor:
        """The weight as (outputs, inputs)."""
        return weight.flatten(1)


class CausalConv(PreparedModule):
    """A convolution over time that looks ``kernel - 1`` frames back, as one matrix product.

    kernel 3      context   frames
                  |c0 c1|x0 x1 x2 x3 x4|
    output 0      |-- -- --|                  output t depends on t-2, t-1, t
    next context                |x3 x4|
    """

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.inputs, self.kernel = inputs, kernel
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.register_buffer("matrix", None, persistent=False)
        self.matrix: Tensor | None
        self.halves: Tensor | None = None  # of ``whole_matrix``, see ``precision.split_matrix``

    def prepare(self) -> None:
        """Pack the weight as (outputs, kernel * inputs)."""
        self.matrix = pack_matrix(_kernel_matrix(_take_parameter(self, "weight")))

    def whole_matrix(self) -> Tensor:
        """(outputs, kernel * inputs), after ``prepare``."""
        return _prepared(self.matrix)

    def initial_context(self, rows: int) -> Tensor:
        """The zeros before the first frame: (rows, kernel - 1, inputs)."""
        return self.bias.new_zeros(rows, self.kernel - 1, self.inputs)

    def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """x: (N, T, inputs) -> (N, T, outputs), and the next context, (N, kernel - 1, inputs)."""
        with_context = torch.cat([context, x], 1)
        length = x.shape[1]
        # (N, T, kernel * inputs): each frame beside the ones before it
        columns = torch.cat([with_context[:, lag : lag + length] for lag in range(self.kernel)], 2)
        matrix = _kernel_matrix(self.get_parameter("weight")) if self.matrix is None else self.matrix
        return packed_linear(columns, matrix, self.bias), with_context[:, length:].contiguous()


def _kernel_matrix(weight: Tensor) -> Tensor:
    """(outputs, inputs, kernel) -> (outputs, kernel * inputs)."""
    return weight.permute(0, 2, 1).flatten(1)


class QkvProjection(PreparedModule):
    """Projections of a self-attention: queries in one product, keys and values in another."""

    def __init__(self, width: int, inner: int, bias: bool, names: tuple[str, str, str]) -> None:
        super().__init__()
        self.names = names
        for name in names:
            self.add_module(name, nn.Linear(width, inner, bias=bias))
        for name in ("query_matrix", "query_bias", "key_value_matrix", "key_value_bias"):
            self.register_buffer(name, None, persistent=False)
        self.query_matrix: Tensor | None
        self.query_bias: Tensor | None
        self.key_value_matrix: Tensor | None
        self.key_value_bias: Tensor | None
        self.halves: Tensor | None = None  # of ``whole_matrix``, see ``precision.split_matrix``
        self.whole_bias: Tensor | None = None  # set with ``halves``

    def prepare(self) -> None:
        """Join the weights of keys and values, in this order, and delete the three original modules."""
        query, *others = [self.get_submodule(name) for name in self.names]
        self.query_matrix = pack_matrix(_take_parameter(query, "weight"))
        self.key_value_matrix = pack_matrix(torch.cat([_take_parameter(part, "weight") for part in others]))
        if query.bias is not None:
            self.query_bias = _take_parameter(query, "bias")
            self.key_value_bias = torch.cat([_take_parameter(part, "bias") for part in others])
        for name in self.names:
            delattr(self, name)

    def whole_matrix(self) -> Tensor:
        """(3 * inner, width), of queries, keys and values, after ``prepare``."""
        return torch.cat([_prepared(self.query_matrix), _prepared(self.key_value_matrix)])

    def join_biases(self) -> Tensor | None:
        """(3 * inner,), of queries, keys and values; None without biases."""
        if self.query_bias is None or self.key_value_bias is None:
            return None
        return torch.cat([self.query_bias, self.key_value_bias])

    def project_queries(self, x: Tensor) -> Tensor:
        """(N, T, width) -> (N, T, inner)."""
        if self.query_matrix is None:
            return self.get_submodule(self.names[0])(x)  # type: ignore[no-any-return]
        return packed_linear(x, self.query_matrix, self.query_bias)

    def project_keys_values(self, x: Tensor) -> Tensor:
        """(N, T, width) -> (N, T, 2 * inner)."""
        if self.key_value_matrix is None:
            return torch.cat([self.get_submodule(name)(x) for name in self.names[1:]], -1)
        return packed_linear(x, self.key_value_matrix, self.key_value_bias)


def _take_parameter(module: nn.Module, name: str) -> Tensor:
    """The data of a parameter, which is removed from the module."""
    parameter = module.get_parameter(name)
    setattr(module, name, None)
    return parameter.data


def split_keys_values(keys_values: Tensor) -> Tensor:
    """(N, T, 2 * D) -> (N, 2, T, D), a view."""
    N, T, width = keys_values.shape
    return keys_values.view(N, T, 2, width // 2).transpose(1, 2)


_TIME_SCALE = 1000.0  # of solver times, 0 to 1


def sinusoidal_time_features(t: Tensor, width: int) -> Tensor:
    """Sines, then cosines of solver times at geometrically spaced rates: (N,) -> (N, width)."""
    half = width // 2
    rates = torch.exp(
        torch.arange(half, device=t.device, dtype=torch.float32) * -(math.log(10000) / (half - 1))
    )
    angles = _TIME_SCALE * t[:, None] * rates[None]
    return torch.cat([angles.sin(), angles.cos()], -1)


def load_weights(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Move the weights into the network without a copy, and prepare its modules. Empties ``weights``.

    The network may have been built under ``torch.device("meta")``; it computes on the device of the weights.
    Raises RuntimeError that names missing and unknown keys.
    """
    network.load_state_dict(weights, strict=True, assign=True)
    weights.clear()
    network.requires_grad_(False)
    network.eval()
    prepare_modules(network)


def prepare_modules(network: nn.Module) -> None:
    """Call ``prepare`` of every PreparedModule, inner modules first."""
    for module in reversed(list(network.modules())):
        if isinstance(module, PreparedModule):
            module.prepare()
