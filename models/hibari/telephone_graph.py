"""Builds the ONNX graph of the decoder for telephones from its weights. No inference here.

    telephone(hidden, context_*) -> spectrum (2 U', 6, 200), next_context_*

The decoder was trained to make of hidden frames what the packaged voice's own decoder makes of them, for the
200 bins below 4 kHz, with less than a quarter of the products (``tests/telephone_decoder``). Two frames are a
row, at 40 Hz. A convolution over rows is followed by blocks of a convolution of each channel, a norm, and two
products with a GELU between. The last norm and product give the six parts of two spectra.

No convolution is padded. Each runs over  context | new rows  and keeps its last inputs as the next context;
before the first step a context has no rows. Beyond the ends of a line the *input* is zero, for as many rows
as the decoder reaches. So every split into steps gives the same spectrum, bit by bit: a row of a product does
not depend on the rows beside it.

Products are of 8-bit integers: activations have a fixed range, weights are at most 64 in size. Two products
then fit into 16 bits, as which processors without VNNI add them, so the sums are exact on all. A step reads
all weights, 1.9 MB, a quarter of what they take in float32.

Source: Liu et al. 2022, A ConvNet for the 2020s, arXiv:2201.03545.
"""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from ..onnx_graphs.graph_builder import CONTRIB_DOMAIN
from ..onnx_graphs.onnx_parts import constant
from .decoder import HIDDEN_CHANNELS, TelephoneLayout

_OPSET, _IR_VERSION = 17, 8
_EPSILON = 1e-5  # of the norms

Weights = Mapping[str, NDArray[Any]]


def read_weights(content: bytes) -> Weights:
    """The weights of a file's content (npz), float32 if not said otherwise.

    Of a convolution of each channel: taps_b (4, 192), taps_bias_b (192,), of block b. Of a product, with
    inputs and outputs (K, N): NAME_weight (K, N) int8, NAME_scale, NAME_bias (N,). The products are first
    (6 * 260, 192), widen_b (192, 576), narrow_b (576, 192) and head (192, 2400). An input x is quantized to
    the integer x / NAME_step + NAME_zero (uint8); that of the first product, hidden frames of two channels
    times 130, to (x - input_center) / input_step + input_zero (260,) before.
    """
    with np.load(io.BytesIO(content)) as file:
        return dict(file)


def make_telephone_decoder(weights: Weights) -> bytes:
    """The decoder of the weights, serialized, for an inference session."""
    layout = TelephoneLayout
    builder = _TelephoneGraph(weights)
    spectrum = builder.decoder()
    inputs = [_value("hidden", 1, HIDDEN_CHANNELS, "T"), _value("context_0", "K0", layout.ROW_CHANNELS)]
    inputs += [_value(f"context_{b + 1}", f"K{b + 1}", layout.CHANNELS) for b in range(layout.BLOCKS)]
    outputs = [_value(name, None) for name in (spectrum, *builder.next_contexts)]
    graph = helper.make_graph(builder.nodes, "vivavoce", inputs, outputs, list(builder.constants.values()))
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(CONTRIB_DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    return bytes(model.SerializeToString())


def _value(name: str, *shape: int | str | None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None if shape == (None,) else shape)


class _TelephoneGraph:
    """Collects the nodes.

    Attributes:
        nodes, next_contexts: of the graph; the contexts' names.
        constants: by name.
    """

    def __init__(self, weights: Weights) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.next_contexts: list[str] = []
        self._weights = weights

    def decoder(self) -> str:
        """All nodes; the name of the spectrum."""
        layout = TelephoneLayout
        by_frame = self._add("Transpose", "hidden", perm=[0, 2, 1])
        rows = self._add("Reshape", by_frame, self._integers(-1, layout.ROW_CHANNELS))
        joined = self._with_context(rows, layout.INPUT_REACH)
        centred = self._add("Sub", joined, self._constant("input_center"))
        taps = self._taps(self._quantize(centred, "input"), layout.INPUT_REACH)
        x = self._integer_product(self._add("Concat", *taps, axis=1), "first")
        for block in range(layout.BLOCKS):
            x = self._block(x, block)
        parts = self._product(self._norm(x), "head")
        return self._add("Reshape", parts, self._integers(-1, layout.PARTS, layout.BINS))

    def _block(self, x: str, block: int) -> str:
        reach = TelephoneLayout.BLOCK_REACH
        taps = self._taps(self._with_context(x, reach), reach)
        kernel = self._weights[f"taps_{block}"]
        y = self._constant(f"taps_bias_{block}")
        for at, tap in enumerate(taps):
            scaled = self._add("Mul", tap, self._constant(f"taps_{block}_{at}", kernel[at]))
            y = self._add("Add", scaled, y)
        widened = self._product(self._norm(y), f"widen_{block}")
        active = self._add("Gelu", widened, domain=CONTRIB_DOMAIN)
        return self._add("Add", taps[reach[0]], self._product(active, f"narrow_{block}"))

    def _with_context(self, rows: str, reach: tuple[int, int]) -> str:
        """The rows behind those that are kept; the last of them are the next context."""
        index = len(self.next_contexts)
        joined = self._add("Concat", f"context_{index}", rows, axis=0)
        self.next_contexts.append(self._add("Slice", joined, *self._part(-sum(reach), None)))
        return joined

    def _taps(self, joined: str, reach: tuple[int, int]) -> list[str]:
        """The rows that each tap of a convolution takes, from the earliest on."""
        last = sum(reach)
        return [self._add("Slice", joined, *self._part(at, at - last or None)) for at in range(last + 1)]

    def _part(self, start: int, stop: int | None) -> tuple[str, str, str]:
        """Inputs of a Slice of rows."""
        end = np.iinfo(np.int64).max if stop is None else stop
        return self._integers(start), self._integers(end), self._integers(0)

    def _norm(self, x: str) -> str:
        """Without scale and bias, which the next product has."""
        ones = np.ones(TelephoneLayout.CHANNELS, np.float32)
        inputs = [x, self._constant("ones", ones), self._constant("zeros", 0 * ones)]
        return self._add("LayerNormalization", *inputs, axis=-1, epsilon=_EPSILON)

    def _product(self, x: str, name: str) -> str:
        return self._integer_product(self._quantize(x, name), name)

    def _quantize(self, x: str, name: str) -> str:
        """As integers; the channels have one range, or one each."""
        return self._add("QuantizeLinear", x, *map(self._constant, (f"{name}_step", f"{name}_zero")), axis=1)

    def _integer_product(self, integers: str, name: str) -> str:
        weight, step, scale, zero, bias = (
            self._constant(f"{name}_{part}") for part in ("weight", "step", "scale", "zero", "bias")
        )
        inputs = [integers, weight, step, scale, zero, "", bias]
        return self._add("MatMulIntegerToFloat", *inputs, domain=CONTRIB_DOMAIN)

    def _add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _integers(self, *values: int) -> str:
        return self._constant("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def _constant(self, name: str, value: NDArray[Any] | None = None) -> str:
        """A value, else the weight of the name."""
        if name not in self.constants:
            self.constants[name] = constant(name, self._weights[name] if value is None else value)
        return name
