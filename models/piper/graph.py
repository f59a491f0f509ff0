"""Cuts the ONNX graph of a Piper voice into an encoder, and parts that compute any range of their output.

The graph as exported maps phoneme ids to the samples of a clause. Its text encoder (VITS) attends over the
whole clause. Its flow and its decoder (HiFi-GAN) take most of the time and are stacks of convolutions: a
frame depends on few frames to either side and on no others. The flow is cut after each coupling layer and
the decoder before each upsampling convolution, because the context of a short part is short.

    encoder(input, input_lengths, scales, [sid], noise, noise_start) -> prior (1, C, F), [durations], ...
    each part of the flow(..., mask, [speaker])                      -> (1, C, 1, F)
    first part of the decoder(latent, [speaker])                     -> (1, C, 1, F)
    each further part of the decoder(...)                            -> (1, C, 1, 8 F), for example

    in    |context|  positions  |context|
    out           |  positions  |         times the part's rate, equal to those of the whole up to rounding

Two rewrites: random numbers come from a table that the caller gives, so that equal seeds give equal samples;
and the parts' convolutions have two dimensions of which one is 1, which ONNX Runtime computes in as little
as half the time. A graph without the expected parts is not cut.

Source: graphs exported by rhasspy/piper; Kim et al. 2021 (VITS); Kong et al. 2020 (HiFi-GAN).
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ..onnx_graphs.onnx_parts import assemble_part, constant, nodes_between
from .config import PiperVoiceError

NOISE, NOISE_START = "noise", "noise_start"

_REQUIRED_INPUTS = {"input", "input_lengths", "scales"}
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_LEAST_FLOW_STEP = 128  # some 1.5 s: a part's context is 8 frames on either side
# Operators that mix no frames; a part with others is not cut.
_FLOW_OPERATORS = {
    *("Conv", "Add", "Sub", "Mul", "Neg", "Exp", "Tanh", "Sigmoid", "Split", "Slice", "Concat"),
    *("Shape", "ConstantOfShape", "Constant", "Gather", "Unsqueeze"),
}
_DECODER_OPERATORS = {*_CONVOLUTIONS, "Add", "Mul", "Div", "LeakyRelu", "Tanh", "Unsqueeze", "Constant"}


@dataclass(frozen=True, slots=True)
class LocalGraph:
    """A part that computes any range of positions."""

    model: bytes
    inputs: tuple[str, ...]  # the first one has the positions
    context: int  # positions of the input needed on either side
    rate: int  # positions of the output for one of the input
    least_step: int = 1  # positions of the input worth computing at once after the first time


@dataclass(frozen=True, slots=True)
class PiperGraphs:
    """Serialized parts of a voice."""

    encoder: bytes  # the whole graph where it is not cut
    output: str  # of the encoder, with frames: input of the first part, or the samples
    parts: tuple[LocalGraph, ...]  # from the encoder's output to the samples; none where it is not cut
    durations: str | None  # (1, 1, L) frames of each id
    has_speakers: bool  # whether the encoder takes "sid"
    hop: int  # samples of a frame; 1 where it is not cut


def split_graph(path: Path, *, cut: bool = True) -> PiperGraphs:
    """Read a model file and cut it. Raises PiperVoiceError if it is no graph of a Piper voice."""
    try:
        model = onnx.load(path)
    except OSError as error:
        raise PiperVoiceError(f"{path}: cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise PiperVoiceError(f"{path}: is no ONNX model: {error}") from error
    inputs = {each.name for each in model.graph.input}
    if not inputs >= _REQUIRED_INPUTS or len(model.graph.output) != 1:
        raise PiperVoiceError(
            f"{path}: is no Piper voice: its inputs are {', '.join(sorted(inputs)) or 'none'}; "
            "a voice has input, input_lengths and scales"
        )
    prior = _find_prior(model)
    _feed_noise(model)
    samples = model.graph.output[0].name
    durations = next((node.output[0] for node in model.graph.node if node.op_type == "Ceil"), None)
    decoder = _find_decoder(model, samples) if cut else None
    flow = _find_flow(model, prior, decoder.inputs[0]) if decoder and prior else None
    made = flow.outputs if flow else ()
    outputs = [name for part in (flow, decoder) if part for name in part.inputs if name not in made] or [
        samples
    ]
    outputs = list(dict.fromkeys([*outputs, *([durations] if durations else [])]))
    return PiperGraphs(
        encoder=assemble_part(
            model, nodes_between(model, inputs=(), outputs=outputs), list(model.graph.input), outputs
        ),
        output=outputs[0],
        parts=(
            *(part.widened(model, _LEAST_FLOW_STEP) for part in (flow.couplings(model) if flow else ())),
            *(part.widened(model) for part in (decoder.upsamplings(model) if decoder else ())),
        ),
        durations=durations,
        has_speakers="sid" in inputs,
        hop=decoder.rate() if decoder else 1,
    )


def _find_decoder(model: onnx.ModelProto, samples: str) -> "_LocalPart | None":
    """The decoder, by the names of its weights."""
    by_weight = {node.input[1]: node for node in model.graph.node if node.op_type == "Conv"}
    first, speaker = by_weight.get("dec.conv_pre.weight"), by_weight.get("dec.cond.weight")
    if first is None:
        return None
    inputs = (first.input[0], *([speaker.input[0]] if speaker else []))
    nodes = nodes_between(model, inputs=inputs, outputs=[samples])
    return _LocalPart.of(model, nodes, inputs, (samples,), _DECODER_OPERATORS)


def _find_prior(model: onnx.ModelProto) -> str | None:
    """The flow's input: the sum to which the last random numbers are added."""
    users: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    names = [node.output[0] for node in model.graph.node if node.op_type == "RandomNormalLike"]
    name = names[-1] if names else ""
    while len(users.get(name, ())) == 1:
        (node,) = users[name]
        name = node.output[0]
        if node.op_type == "Add":
            return str(name)
    return None


def _find_flow(model: onnx.ModelProto, prior: str, latent: str) -> "_LocalPart | None":
    """What lies between prior and latent. Its other inputs are the mask and the speaker."""
    dependent = {prior}
    for node in model.graph.node:
        if dependent & set(node.input):
            dependent.update(node.output)
    nodes = [
        node
        for node in nodes_between(model, inputs=[prior], outputs=[latent])
        if dependent & set(node.output) or node.op_type == "Constant"
    ]
    inside = {name for node in nodes for name in node.output}
    inside |= {tensor.name for tensor in model.graph.initializer}
    given = {name: None for node in nodes for name in node.input if name and name not in inside}
    inputs = (prior, *(name for name in given if name != prior))
    return _LocalPart.of(model, nodes, inputs, (latent,), _FLOW_OPERATORS) if prior in given else None


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


@dataclass(frozen=True, slots=True)
class _LocalPart:
    """Nodes of the whole graph that mix frames by convolutions only."""

    nodes: Sequence[NodeProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, TensorProto]

    @classmethod
    def of(
        cls,
        model: onnx.ModelProto,
        nodes: Sequence[NodeProto],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        operators: set[str],
    ) -> "_LocalPart | None":
        """The part; None if it has other operators, or convolutions whose weights are computed."""
        weights = {tensor.name: tensor for tensor in model.graph.initializer}
        convolutions = [node for node in nodes if node.op_type in _CONVOLUTIONS]
        if not {node.op_type for node in nodes} <= operators:
            return None
        if not all(name in weights for node in convolutions for name in node.input[1:]):
            return None
        return cls(nodes, inputs, outputs, weights)

    def rate(self) -> int:
        """Positions of the output for one of the input."""
        return math.prod(_ints(node, "strides")[0] for node in self.nodes if node.op_type == "ConvTranspose")

    def couplings(self, model: onnx.ModelProto) -> "Sequence[_LocalPart]":
        """The flow, cut after each coupling layer, which joins its two halves."""
        return self._cut(model, [node.output[0] for node in self.nodes if node.op_type == "Concat"][:-1])

    def upsamplings(self, model: onnx.ModelProto) -> "Sequence[_LocalPart]":
        """The decoder, cut before each upsampling convolution."""
        return self._cut(model, [node.input[0] for node in self.nodes if node.op_type == "ConvTranspose"])

    def _cut(self, model: onnx.ModelProto, ends: Sequence[str]) -> "Sequence[_LocalPart]":
        """The part in a row of parts; as it is if one would need more than the one before gives."""
        parts, (first, *others) = [], self.inputs
        for end in (*ends, *self.outputs):
            nodes = nodes_between(model, inputs=(first, *others), outputs=[end])
            used = {name for node in nodes for name in node.input}
            inputs = (first, *(name for name in others if name in used))
            parts.append(_LocalPart(nodes, inputs, (end,), self.weights))
            first = end
        return parts if all(part.is_closed() for part in parts) else [self]

    def is_closed(self) -> bool:
        """Whether the nodes take nothing but the part's inputs and weights."""
        known = {*self.inputs, *self.weights, *(name for node in self.nodes for name in node.output)}
        return all(name in known for node in self.nodes for name in node.input if name)

    def context(self) -> int:
        """Positions of the input to either side on which a position's output may depend."""
        reach, rates = {self.inputs[0]: 0.0}, {self.inputs[0]: 1}
        for node in self.nodes:
            known = [name for name in node.input if name in reach]
            if not known:
                continue
            here, rate = max(reach[name] for name in known), max(rates[name] for name in known)
            kernel, stride = _ints(node, "kernel_shape")[0], _ints(node, "strides")[0]
            if node.op_type == "Conv":
                here += (kernel - 1) * _ints(node, "dilations")[0] / 2 / rate
            elif node.op_type == "ConvTranspose":
                padding = _ints(node, "pads")[0]
                here += max((kernel - 1 - padding) // stride, (stride - 1 + padding) // stride) / rate
                rate *= stride
            for name in node.output:
                reach[name], rates[name] = here, rate
        return math.ceil(reach[self.outputs[0]])

    def widened(self, model: onnx.ModelProto, least_step: int = 1) -> LocalGraph:
        """The part with convolutions of two dimensions, (1, C, 1, T) instead of (1, C, T)."""
        wide = {name: f"{name}_2d" for name in self.inputs}
        nodes = [helper.make_node("Unsqueeze", [name, "row_axis"], [wide[name]]) for name in self.inputs]
        weights = {"row_axis": constant("row_axis", np.array([2], np.int64))}
        for original in self.nodes:
            node = copy.deepcopy(original)
            node.input[:] = [wide.get(name, name) for name in node.input]
            if node.op_type in _CONVOLUTIONS:
                weight = numpy_helper.to_array(self.weights[node.input[1]])[:, :, None, :]
                weights[node.input[1]] = constant(node.input[1], np.ascontiguousarray(weight))
                _add_row(node)
            nodes.append(node)
        part = assemble_part(model, nodes, _inputs(self.inputs), self.outputs, list(weights.values()))
        return LocalGraph(part, self.inputs, self.context(), self.rate(), least_step)


def _inputs(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, f"C{index}", f"T{index}"])
        for index, name in enumerate(names)
    ]


def _ints(node: NodeProto, name: str) -> Sequence[int]:
    found = (attribute.ints for attribute in node.attribute if attribute.name == name)
    return next(found, (0,) if name == "pads" else (1,))


def _add_row(node: NodeProto) -> None:
    """Give a convolution of one dimension a second one, before its own, in which nothing happens."""
    neutral = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
    for attribute in node.attribute:
        if attribute.name in neutral:
            values = list(attribute.ints)
            each = len(values) // (2 if attribute.name == "pads" else 1)
            parts = [values[start : start + each] for start in range(0, len(values), each)]
            attribute.ints[:] = [value for part in parts for value in (neutral[attribute.name], *part)]
