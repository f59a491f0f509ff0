"""Splits the ONNX graph of the packaged voice into an encoder and a streaming decoder. No inference here.

The graph as shipped (hibari-tts 0.2.1) maps phoneme ids to the spectrum of a whole sentence. Its encoder
attends over all phonemes and is cheap (``encoder_graph``). Its decoder is a ConvNeXt stack of nine
convolutions of width 7 over 12.5 ms frames, so a frame depends on 27 frames to either side and on no others.
The split gives

    encoder(ids, speed)                       -> hidden (1, 130, F), durations (L), f0 (1, F)
    decoder(hidden, edge, edge_in, context_*) -> spectrum (1, 1, T', 3005), next_context_*

Each convolution runs without padding over  context | new frames | edge :

    first step    |000|new ......|           context: 3 zero frames, the left padding       T' = T - 27
                  |new ..........|           or none, of n layers from the last: 3 n frames fewer
    later steps   |last 6|new ...|           context: the last 6 input frames               T' = T
    last step     |last 6|new ...|000|       edge: 3 zero frames, the right padding         T' = T + 27

so that every split into steps gives the same spectrum. As shipped, activations are quantized by the range of
the call's own values (DynamicQuantizeLinear), which would make the result depend on the split. Here each
activation has a fixed range, measured once on call-centre text (``ACTIVATION_RANGES``).

Source: graph of hibari-tts 0.2.1 (Apache-2.0); streaming convolution state as in
Kyutai pocket-tts@9514983efd, modules/conv.py.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from ..onnx_graphs.onnx_parts import assemble_part, constant, nodes_between
from .decoder import CHANNELS, CONTEXT_FRAMES, EDGE_FRAMES, HIDDEN_CHANNELS, KERNEL, LAYERS
from .encoder_graph import HIDDEN, make_encoder

_SPECTRUM = "/head/Add_output_0"


@dataclass(frozen=True, slots=True)
class HibariGraphs:
    """Serialized encoder and decoder, ready for an inference session."""

    encoder: bytes
    decoder: bytes


def split_graph(model: bytes) -> HibariGraphs:
    """Split the shipped graph."""
    graph = onnx.load_from_string(model)
    return HibariGraphs(encoder=make_encoder(graph), decoder=_decoder(graph))


def _decoder(model: onnx.ModelProto) -> bytes:
    nodes = nodes_between(model, inputs={HIDDEN}, outputs=[_SPECTRUM])
    streaming = _StreamingRewrite(nodes)
    inputs = [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, HIDDEN_CHANNELS, "T"])]
    for layer in range(LAYERS):
        shape = [1, 1, f"K{layer}", CHANNELS] if layer else [1, HIDDEN_CHANNELS, "K0"]
        inputs.append(helper.make_tensor_value_info(f"context_{layer}", TensorProto.FLOAT, shape))
    inputs.append(helper.make_tensor_value_info("edge_in", TensorProto.FLOAT, [1, HIDDEN_CHANNELS, "E"]))
    inputs.append(helper.make_tensor_value_info("edge", TensorProto.FLOAT, [1, 1, "E", CHANNELS]))
    outputs = [_SPECTRUM, *(f"next_context_{layer}" for layer in range(LAYERS))]
    return assemble_part(model, streaming.nodes, inputs, outputs, extra=streaming.constants)


class _StreamingRewrite:
    """Rewrites the decoder: context and edge for each convolution, a fixed range for each activation.

    Attributes:
        nodes, constants: of the rewritten graph.
    """

    def __init__(self, nodes: list[NodeProto]) -> None:
        self.constants = [
            constant("three", np.array([EDGE_FRAMES], np.int64)),
            constant("minus_three", np.array([-EDGE_FRAMES], np.int64)),
            constant("minus_six", np.array([-CONTEXT_FRAMES], np.int64)),
            constant("to_the_end", np.array([np.iinfo(np.int64).max], np.int64)),
            constant("row_axis", np.array([1], np.int64)),
            constant("time_axis", np.array([2], np.int64)),
        ]
        self.nodes: list[NodeProto] = []
        self._untransposed: dict[str, str] = {}  # output of a transposition that is left out -> its input
        self._residual: dict[str, str] = {}  # input of the latest convolution -> the frames its output covers
        self._products: dict[str, NodeProto] = {}  # value being converted to float -> its integer product
        self._unbiased: dict[str, NodeProto] = {}  # by output, fused products
        self._scales: set[str] = set()  # of activations
        self._convolutions = 0
        for node in nodes:
            self._rewrite(node)

    def _rewrite(self, node: NodeProto) -> None:
        match node.op_type:
            case "Conv":
                self._stream(node)
            case "Transpose":
                self._untransposed[node.output[0]] = node.input[0]
            case "DynamicQuantizeLinear":
                self._fix_range(node)
            case "MatMulInteger" | "Cast":
                self._products[node.output[0]] = self._products.get(node.input[0], node)
            case "Mul" if node.input[0] in self._scales:
                pass  # activation scale x weight scale: the fused product includes it
            case "Mul" if node.input[0] in self._products:
                self._fuse(node)
            case "Add" if node.input[1] in self._unbiased:
                product = self._unbiased.pop(node.input[1])
                product.input.append(node.input[0])
                product.output[:] = node.output
            case "Add" if any(name in self._residual for name in node.input):
                inputs = [self._residual.get(name, self._untransposed.get(name, name)) for name in node.input]
                self.nodes.append(helper.make_node("Add", inputs, node.output, name=node.name))
            case _:
                same = NodeProto()
                same.CopyFrom(node)
                same.input[:] = [self._untransposed.get(name, name) for name in node.input]
                self.nodes.append(same)

    def _stream(self, node: NodeProto) -> None:
        """Replace a padded convolution by an unpadded one over context, new frames and edge.

        joined   |context|new ........|edge|        its last 6 frames are the next context, without edge
        middle      |.................|             one frame for each output; the residual adds these
        """
        layer = self._convolutions
        self._convolutions += 1
        new, weight, bias = node.input if layer else ("hidden", *node.input[1:])
        joined, middle = f"joined_{layer}", f"middle_{layer}"
        edge = "edge" if layer else "edge_in"
        make_node = helper.make_node
        self.nodes += [
            make_node("Concat", [f"context_{layer}", new, edge], [joined], axis=2),
            make_node("Slice", [joined, "minus_six", "to_the_end", "time_axis"], [f"next_context_{layer}"]),
        ]
        if layer:
            self.nodes.append(make_node("Slice", [joined, "three", "minus_three", "time_axis"], [middle]))
            self._residual = {new: middle}
            self._convolve_each_channel(joined, weight, bias, node.output[0])
        else:
            self.nodes += [
                make_node("Conv", [joined, weight, bias], ["convolved_0"], kernel_shape=[KERNEL]),
                make_node("Transpose", ["convolved_0"], ["convolved_row"], perm=[0, 2, 1]),
                make_node("Unsqueeze", ["convolved_row", "row_axis"], node.output),  # (1, 1, T, 256)
            ]

    def _convolve_each_channel(self, joined: str, weight: str, bias: str, output: str) -> None:
        """Convolve the channels, (1, 1, T + 6, 256) -> (1, 1, T, 256): an image of one row, channels last.

        For images ONNX Runtime has a fast kernel, and merges the transpositions with it on most processors.
        """
        make_node = helper.make_node
        self.nodes += [
            make_node("Transpose", [joined], [f"{joined}_image"], perm=[0, 3, 1, 2]),
            make_node("Unsqueeze", [weight, "time_axis"], [f"{weight}_image"]),  # (256, 1, 1, 7)
            make_node(
                "Conv",
                [f"{joined}_image", f"{weight}_image", bias],
                [f"{output}_image"],
                group=CHANNELS,
                kernel_shape=[1, KERNEL],
            ),
            make_node("Transpose", [f"{output}_image"], [output], perm=[0, 2, 3, 1]),
        ]

    def _fix_range(self, node: NodeProto) -> None:
        """Replace dynamic quantization to uint8 by quantization with the fixed range."""
        low, high = ACTIVATION_RANGES[len(self._scales)]
        quantized, scale, zero_point = node.output
        step = (high - low) / 255
        self.constants += [
            constant(scale, np.array(step, np.float32)),
            constant(zero_point, np.array(round(-low / step), np.uint8)),
        ]
        inputs = [node.input[0], scale, zero_point]
        self._scales.add(scale)
        self.nodes.append(helper.make_node("QuantizeLinear", inputs, [quantized], name=node.name))

    def _fuse(self, node: NodeProto) -> None:
        """Merge integer product, cast, scaling and bias into one node, in under half the time."""
        activation, weight, zero_point, weight_zero_point = self._products[node.input[0]].input
        scale = zero_point.replace("_zero_point", "_scale")
        weight_scale = weight_zero_point.replace("_zero_point", "_scale")
        inputs = [activation, weight, scale, weight_scale, zero_point, weight_zero_point]
        fused = helper.make_node(
            "MatMulIntegerToFloat", inputs, node.output, name=node.name, domain="com.microsoft"
        )
        self.nodes.append(fused)
        self._unbiased[node.output[0]] = fused


# (min, max) of each quantized activation: input and hidden layer of each block in turn, then of the head.
ACTIVATION_RANGES: tuple[tuple[float, float], ...] = (
    (-6.5, 6.0),
    (-0.17, 10.7),
    (-6.2, 6.3),
    (-0.17, 8.4),
    (-6.2, 6.8),
    (-0.17, 8.9),
    (-6.0, 6.3),
    (-0.17, 7.7),
    (-7.7, 7.1),
    (-0.17, 9.1),
    (-9.4, 7.5),
    (-0.17, 13.8),
    (-9.3, 8.1),
    (-0.17, 11.5),
    (-10.0, 11.0),
    (-0.17, 28.1),
    (-5.8, 9.3),
)
