"""Layers of flow and vocoder as parts of an ONNX graph, named and computed as in ``models.networks.layers``.

    graph = NetworkGraph(builder, weights, "decoder.estimator.")
    y = graph.linear(x, "final_proj")           decoder.estimator.final_proj.weight and .bias

Tensors are channels-last, (N, T, C), unless stated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from ...onnx_graphs.graph_builder import OnnxGraphBuilder
from .graph_values import GraphValue, arange, concat, constant, slice_axes
from .products import Product, float32_product


class NetworkGraph:
    """A graph, the tensors of a weight file, and the prefix of the keys that are read.

    product: computes ``linear``; convolutions are computed in float32.
    """

    def __init__(
        self,
        builder: OnnxGraphBuilder,
        weights: Mapping[str, Tensor],
        prefix: str = "",
        product: Product = float32_product,
    ) -> None:
        self.builder, self._weights, self._prefix, self._product = builder, weights, prefix, product

    def part(self, prefix: str) -> "NetworkGraph":
        """The same graph; keys begin with a longer prefix."""
        return NetworkGraph(self.builder, self._weights, f"{self._prefix}{prefix}.", self._product)

    @property
    def exact(self) -> "NetworkGraph":
        """The same graph with every product in float32."""
        return NetworkGraph(self.builder, self._weights, self._prefix)

    @property
    def is_exact(self) -> bool:
        """Whether every product is computed in float32."""
        return self._product is float32_product

    def input(
        self, name: str, shape: Sequence[int | str], dtype: type[np.generic] = np.float32
    ) -> GraphValue:
        """Declare an input; a dimension that is a name is dynamic."""
        return GraphValue(self.builder, self.builder.input(name, dtype, shape), dtype)

    def number(self, name: str) -> GraphValue:
        """Declare an input of one whole number, () int64; the value has the shape (1,)."""
        return self.input(name, (), np.int64).reshape(1)

    def output(self, name: str, value: GraphValue, shape: Sequence[int | str]) -> GraphValue:
        """Declare a value as an output. Use the returned value for more of the graph: that saves a copy."""
        self.builder.output(name, value.dtype.type, shape)
        return value.named(name)

    def array(self, key: str) -> NDArray[Any]:
        """A tensor of the weight file."""
        array: NDArray[Any] = self._weights[f"{self._prefix}{key}"].numpy()
        return array

    def has(self, key: str) -> bool:
        """Whether the weight file has a tensor of that key."""
        return f"{self._prefix}{key}" in self._weights

    def constant(self, array: NDArray[Any] | float, dtype: DTypeLike = np.float32) -> GraphValue:
        """A constant of a type, float32 by default."""
        return constant(self.builder, np.asarray(array, dtype))

    def weight_and_bias(self, name: str) -> tuple[GraphValue, GraphValue]:
        """Both tensors of a layer, as constants."""
        return self.constant(self.array(f"{name}.weight")), self.constant(self.array(f"{name}.bias"))

    def linear(self, x: GraphValue, *names: str) -> GraphValue:
        """x: (..., inputs) -> (..., outputs); the outputs of several matrices one after the other."""
        weight = self._joined(names, "weight")
        bias = self._joined(names, "bias") if self.has(f"{names[0]}.bias") else None
        return self._product(x, weight.reshape(len(weight), -1), bias)

    def _joined(self, names: Sequence[str], kind: str) -> NDArray[np.float32]:
        return np.concatenate([self.array(f"{name}.{kind}") for name in names], dtype=np.float32)

    def layer_norm(self, x: GraphValue, name: str, epsilon: float = 1e-5) -> GraphValue:
        """Layer norm over channels."""
        gain, bias = self.weight_and_bias(name)
        return x.apply("LayerNormalization", gain, bias, axis=-1, epsilon=epsilon)

    def causal_conv(self, x: GraphValue, context: GraphValue, name: str) -> tuple[GraphValue, GraphValue]:
        """x: (N, T, C) -> (N, T, C'), and the next context. context: (N, kernel - 1, C)."""
        weight = self.array(f"{name}.weight")
        outputs, _, kernel = weight.shape
        with_context, length = concat([context, x], 1), x.size(1)
        columns = concat([with_context.slice(1, lag, length + lag) for lag in range(kernel)], 2)
        matrix = self.constant(weight.transpose(2, 1, 0).reshape(-1, outputs))
        y = columns @ matrix + self.constant(self.array(f"{name}.bias"))
        return y, with_context.slice(1, length)

    def lookahead(
        self, x: GraphValue, future: GraphValue, context: GraphValue, name: str
    ) -> tuple[GraphValue, GraphValue]:
        """The layer's output (B, T, C) and its next context; ``LookaheadLayer``."""
        part = self.part(name)
        ahead = part.array("conv1.weight").shape[2] - 1
        # Zeros take the place of ids that are not given, at the end of the utterance.
        zeros = x.constant(0.0).expand(x.size(0), ahead, x.size(2))
        padded = concat([x, future, zeros], 1)
        begin, length = padded.slice(1, 0, ahead), x.size(1)
        h, _ = part.causal_conv(padded.slice(1, ahead, length + ahead), begin, "conv1")
        h, context = part.causal_conv(h.apply("LeakyRelu", alpha=0.01), context, "conv2")
        return x + h, context


class AttentionGraph:
    """Attention of a chunk over the memory before it, block by block, as ``flow.attention``.

    memory: (..., layers, 2, W, D), of which the first ``length`` slots are read, with any axes of rows before
    the layers. A frame attends to its block of ``block`` frames and to everything before.
    """

    def __init__(
        self,
        memory: GraphValue,
        row_axes: int,
        layers: int,
        chunk: GraphValue,
        length: GraphValue,
        block: GraphValue,
    ) -> None:
        self._memory, self._row_axes, self._layers = memory, row_axes, layers
        self.length, self._rows, self.frames = length, chunk.size(0), chunk.size(1)
        self.visible = length + self.frames
        self.mask = block_mask(self.frames, length, block)
        self._new: list[GraphValue] = []

    def attend(
        self,
        query: GraphValue,
        keys: GraphValue,
        values: GraphValue,
        heads: int,
        bias: GraphValue | None = None,
    ) -> GraphValue:
        """Attention output, (N, T, H * d), of the next layer. keys, values: (N, T, H * d) of the chunk.

        bias: added to the scores, (N, H, T, S), the mask included; the mask alone by default.
        """
        layer = len(self._new) // 2
        self._new += [keys, values]
        history = [self._history(layer, part, keys.size(2)) for part in (0, 1)]
        both = [concat([old, new], 1) for old, new in zip(history, (keys, values), strict=True)]
        return query.apply("Attention", *both, bias or self.mask, q_num_heads=heads, kv_num_heads=heads)

    def _history(self, layer: int, part: int, width: GraphValue) -> GraphValue:
        axes = [self._row_axes, self._row_axes + 1, self._row_axes + 2]
        stops: list[GraphValue | int] = [layer + 1, part + 1, self.length]
        return slice_axes(self._memory, axes, [layer, part, 0], stops).reshape(self._rows, self.length, width)

    def new_keys_values(self, rows: Sequence[GraphValue | int]) -> GraphValue:
        """Keys and values of the chunk in all layers, (*rows, layers, 2, T, D), to be kept by the caller."""
        joined = concat([part.unsqueeze(1) for part in self._new], 1)
        return joined.reshape(*rows, self._layers, 2, self.frames, self._new[0].size(2))


def block_mask(frames: GraphValue, length: GraphValue, block: GraphValue) -> GraphValue:
    """What is added to a score: 0 where a frame of a chunk sees a slot, else -inf. (T, S) float32.

    The chunk has ``frames`` frames, behind ``length`` earlier ones; S is their sum.
    """
    horizon = ((arange(frames) / block + 1) * block + length).unsqueeze(1)
    seen = arange(length + frames).unsqueeze(0) < horizon
    zero = constant(frames.graph, np.zeros(1, np.float32))
    return seen.where(zero, zero.constant(-np.inf))
