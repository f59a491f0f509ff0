"""Cuts the ONNX graph of a Piper voice into an encoder and a decoder that renders any range of frames.

The graph as exported maps phoneme ids to the samples of a clause. Its text encoder and flow (VITS) take a
quarter of the time; its decoder (HiFi-GAN) is a stack of convolutions, so a sample depends on few frames to
either side and on no others. The cut is at the decoder's first convolution:

    encoder(input, input_lengths, scales, [sid], noise, noise_start) -> latent (1, C, F), [durations], [g]
    decoder(latent, [g])                                             -> samples

A frame is one column of the latent. ``context_frames`` to both sides make a range of frames exact.

    latent   |context|  frames  |context|
    samples          |  frames  |

Two rewrites: random numbers come from a table that the caller gives, so that equal seeds give equal samples;
and the decoder's convolutions have two dimensions of which one is 1, which ONNX Runtime computes in half
the time. A graph without the expected parts is not cut.

Source: graphs exported by rhasspy/piper; Kim et al. 2021 (VITS); Kong et al. 2020 (HiFi-GAN).
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ..onnx_parts import assemble_part, constant, nodes_between
from .config import PiperVoiceError

NOISE, NOISE_START = "noise", "noise_start"

_REQUIRED_INPUTS = {"input", "input_lengths", "scales"}
_CONVOLUTIONS = ("Conv", "ConvTranspose")
# Of a decoder that may be cut and given a second dimension.
_DECODER_OPERATORS = {*_CONVOLUTIONS, "Add", "Mul", "Div", "LeakyRelu", "Tanh", "Unsqueeze", "Constant"}


@dataclass(frozen=True, slots=True)
class PiperGraphs:
    """Serialized parts of a voice."""

    encoder: bytes  # the whole graph where it is not cut
    decoder: bytes | None
    latent: str  # the encoder's output: the decoder's input, or samples
    condition: str | None  # the speaker's, from encoder to decoder
    durations: str | None  # (1, 1, L) frames of each id
    has_speakers: bool  # whether the encoder takes "sid"
    context_frames: int
    hop: int  # samples of a frame


def split_graph(path: Path) -> PiperGraphs:
    """Read a model file and cut it. Raises PiperVoiceError if it is no graph of a Piper voice."""
    try:
        model = onnx.load(path)
    except OSError as error:
        raise PiperVoiceError(f"{path}: cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise PiperVoiceError(f"{path}: is no ONNX model: {error}") from error
    inputs = {each.name for each in model.graph.input}
    if not inputs >= _REQUIRED_INPUTS or len(model.graph.output) != 1:
        raise PiperVoiceError(f"{path}: has the inputs {sorted(inputs)}; a Piper voice has input, scales ...")
    _feed_noise(model)
    output = model.graph.output[0].name
    durations = next((node.output[0] for node in model.graph.node if node.op_type == "Ceil"), None)
    decoder = _Decoder.find(model, output)
    outputs = [decoder.latent if decoder else output]
    outputs += [decoder.condition] if decoder and decoder.condition else []
    outputs += [durations] if durations else []
    nodes = nodes_between(model, inputs=(), outputs=outputs)
    return PiperGraphs(
        encoder=assemble_part(model, nodes, list(model.graph.input), outputs),
        decoder=decoder.rewritten(model, output) if decoder else None,
        latent=outputs[0],
        condition=decoder.condition if decoder else None,
        durations=durations,
        has_speakers="sid" in inputs,
        context_frames=decoder.context_frames() if decoder else 0,
        hop=decoder.hop() if decoder else 1,
    )


def _feed_noise(model: onnx.ModelProto) -> None:
    """Replace each random node by values of the table ``noise`` (N,) from ``noise_start`` (1,) on.

    They are taken in a circle, and the second node begins elsewhere in the table than the first.
    """
    nodes: list[NodeProto] = []
    count = 0
    for node in model.graph.node:
        if node.op_type == "RandomNormalLike":
            nodes += _table_noise(node, count)
            count += 1
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(
        constant(f"noise_offset_{index}", np.array([index * 7919], np.int64)) for index in range(count)
    )
    model.graph.initializer.append(constant("noise_one", np.array(1, np.int64)))
    model.graph.initializer.append(constant("noise_zero", np.array(0, np.int64)))
    model.graph.input.append(helper.make_tensor_value_info(NOISE, TensorProto.FLOAT, ["N"]))
    model.graph.input.append(helper.make_tensor_value_info(NOISE_START, TensorProto.INT64, [1]))


def _table_noise(node: NodeProto, index: int) -> list[NodeProto]:
    at = f"noise_{index}_"
    make_node = helper.make_node
    return [
        make_node("Shape", [node.input[0]], [at + "shape"]),
        make_node("ReduceProd", [at + "shape"], [at + "size"], keepdims=0),
        make_node("Range", ["noise_zero", at + "size", "noise_one"], [at + "range"]),
        make_node("Add", [at + "range", NOISE_START], [at + "shifted"]),
        make_node("Add", [at + "shifted", f"noise_offset_{index}"], [at + "positions"]),
        make_node("Shape", [NOISE], [at + "table_size"]),
        make_node("Mod", [at + "positions", at + "table_size"], [at + "wrapped"]),
        make_node("Gather", [NOISE, at + "wrapped"], [at + "values"]),
        make_node("Reshape", [at + "values", at + "shape"], node.output),
    ]


class _Decoder:
    """The decoder inside the whole graph.

    Attributes:
        latent, condition: values at which it is cut.
    """

    def __init__(self, nodes: Sequence[NodeProto], latent: str, condition: str | None) -> None:
        self.latent, self.condition = latent, condition
        self._nodes = nodes
        self._weights: Mapping[str, TensorProto] = {}

    @classmethod
    def find(cls, model: onnx.ModelProto, output: str) -> "_Decoder | None":
        """The decoder by the names of its weights; None if it has operators of another kind."""
        by_weight = {node.input[1]: node for node in model.graph.node if node.op_type == "Conv"}
        first, speaker = by_weight.get("dec.conv_pre.weight"), by_weight.get("dec.cond.weight")
        if first is None:
            return None
        latent, condition = first.input[0], speaker.input[0] if speaker else None
        cuts = [latent, *([condition] if condition else [])]
        decoder = cls(nodes_between(model, inputs=cuts, outputs=[output]), latent, condition)
        decoder._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        return decoder if decoder._can_be_cut() else None

    def _can_be_cut(self) -> bool:
        convolutions = [node for node in self._nodes if node.op_type in _CONVOLUTIONS]
        return {node.op_type for node in self._nodes} <= _DECODER_OPERATORS and all(
            name in self._weights for node in convolutions for name in node.input[1:]
        )

    def hop(self) -> int:
        """Samples of a frame."""
        return math.prod(_ints(node, "strides")[0] for node in self._nodes if node.op_type == "ConvTranspose")

    def context_frames(self) -> int:
        """Frames to either side on which a frame's samples may depend."""
        reach = {self.latent: 0.0, self.condition or "": 0.0}
        rates = {self.latent: 1, self.condition or "": 1}
        for node in self._nodes:
            known = [name for name in node.input if name in reach]
            here = max((reach[name] for name in known), default=0.0)
            rate = max((rates[name] for name in known), default=1)
            if node.op_type == "Conv":
                kernel, dilation = _ints(node, "kernel_shape")[0], _ints(node, "dilations")[0]
                here += (kernel - 1) * dilation / 2 / rate
            elif node.op_type == "ConvTranspose":
                kernel, stride = _ints(node, "kernel_shape")[0], _ints(node, "strides")[0]
                here += (kernel + stride) / (2 * stride) / rate
                rate *= stride
            reach[node.output[0]], rates[node.output[0]] = here, rate
        return math.ceil(max(reach.values()))

    def rewritten(self, model: onnx.ModelProto, output: str) -> bytes:
        """The decoder with convolutions of two dimensions, (1, C, 1, T) instead of (1, C, T)."""
        widened = {self.latent: "latent_2d", self.condition or "": "condition_2d"}
        nodes = [helper.make_node("Unsqueeze", [self.latent, "row_axis"], ["latent_2d"])]
        if self.condition:
            nodes.append(helper.make_node("Unsqueeze", [self.condition, "row_axis"], ["condition_2d"]))
        weights = {"row_axis": constant("row_axis", np.array([2], np.int64))}
        for original in self._nodes:
            node = copy.deepcopy(original)
            node.input[:] = [widened.get(name, name) for name in node.input]
            if node.op_type in _CONVOLUTIONS:
                weight = numpy_helper.to_array(self._weights[node.input[1]])[:, :, None, :]
                weights[node.input[1]] = constant(node.input[1], np.ascontiguousarray(weight))
                _add_row(node)
            nodes.append(node)
        inputs = [helper.make_tensor_value_info(self.latent, TensorProto.FLOAT, [1, "C", "T"])]
        if self.condition:
            inputs.append(helper.make_tensor_value_info(self.condition, TensorProto.FLOAT, [1, "G", "ONE"]))
        return assemble_part(model, nodes, inputs, [output], extra=list(weights.values()))


def _ints(node: NodeProto, name: str) -> Sequence[int]:
    return next((attribute.ints for attribute in node.attribute if attribute.name == name), (1,))


def _add_row(node: NodeProto) -> None:
    """Give a convolution of one dimension a second one, before its own, in which nothing happens."""
    neutral = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
    for attribute in node.attribute:
        if attribute.name in neutral:
            values = list(attribute.ints)
            each = len(values) // (2 if attribute.name == "pads" else 1)
            parts = [values[start : start + each] for start in range(0, len(values), each)]
            attribute.ints[:] = [value for part in parts for value in (neutral[attribute.name], *part)]
