"""Prepares an exported graph for TensorRT, which computes every value in the type that the graph states.

    fp32         float64 becomes float32, since TensorRT has no float64
    bf16, fp16   also: matrix products, convolutions and attention take 16-bit inputs; between them, and in
                 every input and output of the graph, values stay in float32

Source: NVIDIA TensorRT 11, INetworkDefinition: networks are always strongly typed.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...devices.execution import DeviceError, Precision

TENSORRT_PRECISIONS: Mapping[Precision, int] = {
    Precision.FP32: TensorProto.FLOAT,
    Precision.BF16: TensorProto.BFLOAT16,
    Precision.FP16: TensorProto.FLOAT16,
}
_PRODUCTS = ("MatMul", "Conv", "ConvTranspose", "Attention")


def write_typed_graph(source: Path, target: Path, precision: Precision) -> None:
    """Write an exported graph in a precision. Raises DeviceError for one that TensorRT lacks."""
    if precision not in TENSORRT_PRECISIONS:
        raise DeviceError(
            f"the executor tensorrt has {', '.join(TENSORRT_PRECISIONS)}, and the precision is {precision}"
        )
    model = onnx.load(source)
    _replace_doubles(model.graph)
    if precision is not Precision.FP32:
        _narrow_products(model.graph, TENSORRT_PRECISIONS[precision])
    data = f"{target.name}.data"
    target.with_name(data).unlink(missing_ok=True)
    onnx.save_model(model, target, save_as_external_data=True, location=data, size_threshold=1024)


def structure_digest(path: Path) -> str:
    """32 hexadecimal digits that differ between graphs, but not between weights of one graph."""
    model = onnx.load(path, load_external_data=False)
    del model.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.external_data[:]
        tensor.raw_data = b""
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:32]


def _replace_doubles(graph: Any) -> None:
    for index, tensor in enumerate(graph.initializer):
        if tensor.data_type == TensorProto.DOUBLE:
            narrowed = numpy_helper.to_array(tensor).astype(np.float32)
            graph.initializer[index].CopyFrom(numpy_helper.from_array(narrowed, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.DOUBLE:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.DOUBLE:
                attribute.i = TensorProto.FLOAT


def _narrow_products(graph: Any, narrow: int) -> None:
    """Put casts around every product; a weight is stored narrow."""
    nodes, narrowed = [], dict[str, str]()
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type not in _PRODUCTS:
            nodes.append(node)
            continue
        for index, name in enumerate(node.input):
            if name and name not in narrowed:
                narrowed[name] = f"{name}.narrow"
                if name in weights:
                    graph.initializer.append(_narrow_weight(weights[name], narrow))
                else:
                    nodes.append(helper.make_node("Cast", [name], [narrowed[name]], to=narrow))
            node.input[index] = narrowed.get(name, name)
        (output,) = node.output
        node.output[0] = f"{output}.narrow_product"
        nodes += [node, helper.make_node("Cast", [node.output[0]], [output], to=TensorProto.FLOAT)]
    del graph.node[:]
    graph.node.extend(nodes)
    _drop_unused_weights(graph)


def _narrow_weight(tensor: Any, narrow: int) -> Any:
    values = numpy_helper.to_array(tensor)
    dtype = helper.tensor_dtype_to_np_dtype(narrow)
    return numpy_helper.from_array(values.astype(dtype), f"{tensor.name}.narrow")


def _drop_unused_weights(graph: Any) -> None:
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
