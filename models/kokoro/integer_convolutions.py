"""Quantized convolutions as products of matrices, which ONNX Runtime computes with instructions for 8 bits.

    x (B, C, T) uint8 -> (B, T, C), padded with its zero point -> the taps of the kernel side by side,
    (B, T', taps * C) -> times the weights (taps * C, O), scaled, plus the bias -> (B, O, T')

ONNX Runtime takes as long for ConvInteger as for the same convolution in float32. The product has the same
integers; only the bias is added in float32 instead of being rounded to them. Signed weights are fastest on
processors with VNNI; on others their sums may saturate, so a trial chooses the form.

Source: the nodes that onnxruntime/python/tools/quantization/operators/conv.py of microsoft/onnxruntime v1.24
writes for a convolution; MatMulIntegerToFloat in docs/ContribOperators.md.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ..devices.onnx_sessions import CPU_SESSIONS, session_options
from ..onnx_graphs.graph_builder import CONTRIB_DOMAIN
from ..onnx_graphs.onnx_parts import needed_nodes

_MIN_OUTPUTS = 16  # channels; fewer are no work for a product
_TO_THE_END = np.iinfo(np.int64).max
_TRIAL_CHANNELS, _TRIAL_TAPS, _TRIAL_TIME, _TRIAL_RUNS = 128, 7, 2_000, 3


class ConvolutionForm(Enum):
    """How quantized convolutions are computed."""

    CONV_INTEGER = "ConvInteger"
    SIGNED_PRODUCT = "product with int8 weights"
    UNSIGNED_PRODUCT = "product with uint8 weights"


@dataclass(frozen=True, slots=True)
class _QuantizedConvolution:
    """A convolution as the quantizer writes it: ConvInteger, Add of the bias, Cast, Mul with the scales."""

    node: NodeProto
    output: str  # of the Mul
    input_scale: str
    weight_scale: str
    bias: str  # (O,) float32; "" without one
    weight: NDArray[np.uint8]  # (O, C, taps)
    zero_point: int  # of the weight
    dilation: int
    pads: tuple[int, int]


def replace_convolutions(model: onnx.ModelProto, form: ConvolutionForm) -> int:
    """Compute the quantized convolutions of a model in a form; returns how many were replaced.

    Those of other ranks than 3, strides, groups or few outputs stay as they are.
    """
    if form is ConvolutionForm.CONV_INTEGER:
        return 0
    found = {each.output: each for each in _find_convolutions(model.graph)}
    products = _Products(model.graph, signed=form is ConvolutionForm.SIGNED_PRODUCT)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        convolution = found.get(node.output[0])
        nodes += [node] if convolution is None else products.nodes(convolution)
    _keep_used(model.graph, nodes)
    if all(each.domain != CONTRIB_DOMAIN for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid(CONTRIB_DOMAIN, 1))
    return len(found)


def fastest_form(threads: int) -> ConvolutionForm:
    """Return the form that is fastest on this processor, of those that are exact there; takes some 50 ms."""
    samples = np.full((1, _TRIAL_CHANNELS, _TRIAL_TIME), 2.0, np.float32)
    samples[0, ::3] = 0.0  # zeros and the largest value: sums of 16 bits would overflow
    times: dict[ConvolutionForm, float] = {}
    right = np.empty(0, np.float32)
    for form in ConvolutionForm:
        model = quantized_convolution(_trial_weight(), dilation=1)
        replace_convolutions(model, form)
        session = CPU_SESSIONS.open(model.SerializeToString(), session_options(threads))
        output = session.run(None, {"x": samples})[0]
        if form is ConvolutionForm.CONV_INTEGER:
            right = output
        elif not np.allclose(output, right, rtol=1e-4, atol=1e-3):
            continue
        durations = []
        for _ in range(_TRIAL_RUNS):
            started = time.perf_counter()
            session.run(None, {"x": samples})
            durations.append(time.perf_counter() - started)
        times[form] = min(durations)
    return min(times, key=lambda form: times[form])


def quantized_convolution(
    weight: NDArray[np.uint8], *, dilation: int, stride: int = 1, bias: NDArray[np.float32] | None = None
) -> onnx.ModelProto:
    """Return a model of one convolution as the quantizer writes it: x (1, C, T) float32 -> y (1, O, T').

    weight: (O, C, taps), with the zero point 128 and the scale 0.01.
    """
    taps = weight.shape[2]
    pad = dilation * (taps - 1) // 2
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["x_quantized", "x_scale", "x_zero_point"]),
        helper.make_node("Mul", ["x_scale", "w_scale"], ["scale"]),
        helper.make_node(
            "ConvInteger",
            ["x_quantized", "w", "x_zero_point", "w_zero_point"],
            ["sums"],
            kernel_shape=[taps],
            dilations=[dilation],
            strides=[stride],
            pads=[pad, pad],
        ),
    ]
    weights = [
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(np.array(128, np.uint8), "w_zero_point"),
        numpy_helper.from_array(np.array(0.01, np.float32), "w_scale"),
    ]
    sums = "sums"
    if bias is not None:
        weights += [
            numpy_helper.from_array(bias, "bias"),
            numpy_helper.from_array(np.array([1, -1, 1], np.int64), "bias_shape"),
        ]
        nodes += [
            helper.make_node("Div", ["bias", "scale"], ["bias_steps"]),
            helper.make_node("Floor", ["bias_steps"], ["bias_floor"]),
            helper.make_node("Cast", ["bias_floor"], ["bias_integers"], to=TensorProto.INT32),
            helper.make_node("Reshape", ["bias_integers", "bias_shape"], ["bias_column"]),
            helper.make_node("Add", [sums, "bias_column"], ["biased"]),
        ]
        sums = "biased"
    nodes += [
        helper.make_node("Cast", [sums], ["sums_float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["sums_float", "scale"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, weight.shape[1], "time"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, weight.shape[0], "frames"])
    graph = helper.make_graph(nodes, "convolution", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _trial_weight() -> NDArray[np.uint8]:
    weight = np.full((_TRIAL_CHANNELS, _TRIAL_CHANNELS, _TRIAL_TAPS), 255, np.uint8)
    weight[::2] = 0
    return weight


class _Products:
    """Writes the nodes of products; convolutions of one input share its taps."""

    def __init__(self, graph: onnx.GraphProto, *, signed: bool) -> None:
        self._graph, self._signed = graph, signed
        self._made: set[str] = set()

    def nodes(self, convolution: _QuantizedConvolution) -> Iterator[NodeProto]:
        """Yield the nodes that compute a convolution's output, without those that were made before."""
        node, weight = convolution.node, convolution.weight
        matrix = weight.transpose(2, 1, 0).reshape(-1, weight.shape[0])
        zero_point = np.array(convolution.zero_point, np.uint8)
        if self._signed:
            matrix = (matrix.astype(np.int16) - 128).astype(np.int8)
            zero_point = np.array(convolution.zero_point - 128, np.int8)
        taps = yield from self._taps(convolution)
        inputs = [
            taps,
            self._constant(f"{node.input[1]}/matrix", np.ascontiguousarray(matrix)),
            convolution.input_scale,
            convolution.weight_scale,
            node.input[2],
            self._constant(f"{node.input[1]}/zero_point", zero_point),
            convolution.bias,
        ]
        product = f"{convolution.output}/product"
        yield helper.make_node("MatMulIntegerToFloat", inputs, [product], domain=CONTRIB_DOMAIN)
        yield helper.make_node("Transpose", [product], [convolution.output], perm=[0, 2, 1])

    def _taps(self, convolution: _QuantizedConvolution) -> Generator[NodeProto, None, str]:
        """Yield the nodes that lay the taps of the input side by side; returns the name of the result."""
        x, taps, dilation = convolution.node.input[0], convolution.weight.shape[2], convolution.dilation
        rows = f"{x}/rows"
        yield from self._once(helper.make_node("Transpose", [x], [rows], perm=[0, 2, 1]))
        if any(convolution.pads):
            before, after = convolution.pads
            padded = f"{x}/padded_{before}_{after}"
            pads = self._constant(f"pads_{before}_{after}", np.array([0, before, 0, 0, after, 0]))
            yield from self._once(helper.make_node("Pad", [rows, pads, convolution.node.input[2]], [padded]))
            rows = padded
        if taps == 1:
            return rows
        beside = f"{rows}/taps_{taps}_{dilation}"
        if beside not in self._made:
            names = []
            axis = self._constant("axis_1", np.array([1]))
            for tap in range(taps):
                left = dilation * (taps - 1 - tap)
                start = self._constant(f"start_{dilation * tap}", np.array([dilation * tap]))
                stop = self._constant(f"stop_{left}", np.array([-left if left else _TO_THE_END]))
                names.append(f"{beside}/{tap}")
                yield helper.make_node("Slice", [rows, start, stop, axis], names[-1:])
            yield from self._once(helper.make_node("Concat", names, [beside], axis=2))
        return beside

    def _once(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.output[0] not in self._made:
            self._made.add(node.output[0])
            yield node

    def _constant(self, name: str, array: NDArray[np.generic]) -> str:
        name = f"convolutions/{name}"
        if name not in self._made:
            self._made.add(name)
            self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name


def _find_convolutions(graph: onnx.GraphProto) -> Iterator[_QuantizedConvolution]:
    weights = {each.name: each for each in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    users: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    for node in graph.node:
        if node.op_type != "ConvInteger" or not {node.input[1], node.input[3]} <= weights.keys():
            continue
        chain = _chain(node, users)
        quantizer = makers.get(node.input[0])
        if chain is None or quantizer is None or quantizer.op_type != "DynamicQuantizeLinear":
            continue
        add, multiply = chain
        scales = _maker_of_other(multiply, makers, "Mul")
        weight_scale = next((name for name in scales.input if name in weights), "") if scales else ""
        bias = _float_bias(add, makers, weights) if add else ""
        weight = numpy_helper.to_array(weights[node.input[1]])
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        is_plain = (
            weight.ndim == 3
            and weight.dtype == np.uint8
            and weight.shape[0] >= _MIN_OUTPUTS
            and attributes.get("group", 1) == 1
            and list(attributes.get("strides", [1])) == [1]
            and attributes.get("auto_pad", b"NOTSET") == b"NOTSET"
        )
        if not is_plain or not weight_scale or bias is None:
            continue
        before, after = attributes.get("pads", (0, 0))
        yield _QuantizedConvolution(
            node=node,
            output=multiply.output[0],
            input_scale=quantizer.output[1],
            weight_scale=weight_scale,
            bias=bias,
            weight=weight,
            zero_point=int(numpy_helper.to_array(weights[node.input[3]]).item()),
            dilation=int(attributes.get("dilations", [1])[0]),
            pads=(int(before), int(after)),
        )


def _chain(node: NodeProto, users: dict[str, list[NodeProto]]) -> tuple[NodeProto | None, NodeProto] | None:
    """Return the Add of the bias, if there is one, and the Mul behind a ConvInteger; None for other nodes."""
    add, following = None, _only_user(node, users)
    if following is not None and following.op_type == "Add":
        add, following = following, _only_user(following, users)
    if following is None or following.op_type != "Cast":
        return None
    multiply = _only_user(following, users)
    return (add, multiply) if multiply is not None and multiply.op_type == "Mul" else None


def _only_user(node: NodeProto, users: dict[str, list[NodeProto]]) -> NodeProto | None:
    found = users.get(node.output[0], [])
    return found[0] if len(found) == 1 else None


def _maker_of_other(node: NodeProto, makers: dict[str, NodeProto], kind: str) -> NodeProto | None:
    """Return the node of a kind that makes one of the inputs of a node."""
    found = [makers[name] for name in node.input if name in makers]
    return next((each for each in found if each.op_type == kind), None)


def _float_bias(add: NodeProto, makers: dict[str, NodeProto], weights: dict[str, TensorProto]) -> str | None:
    """Return the bias in float32 before it was divided by the scale and rounded; None if it is not found."""
    node = _maker_of_other(add, makers, "Reshape")
    for kind in ("Cast", "Floor", "Div"):
        node = _maker_of_other(node, makers, kind) if node is not None else None
    return next((name for name in node.input if name in weights), None) if node is not None else None


def _keep_used(graph: onnx.GraphProto, nodes: Sequence[NodeProto]) -> None:
    """Make ``nodes`` the graph's, without those and the weights that no output needs."""
    kept = needed_nodes(nodes, [each.name for each in graph.output])
    used = {name for node in kept for name in node.input}
    del graph.node[:]
    graph.node.extend(kept)
    weights = [each for each in graph.initializer if each.name in used]
    del graph.initializer[:]
    graph.initializer.extend(weights)
