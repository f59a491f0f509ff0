"""Cuts ONNX graphs into parts. No inference here."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper


def nodes_between(
    model: onnx.ModelProto, *, inputs: Iterable[str], outputs: Iterable[str]
) -> list[NodeProto]:
    """The nodes between inputs and outputs, in the graph's own (topological) order."""
    return needed_nodes(model.graph.node, outputs, given=inputs)


def needed_nodes(
    nodes: Sequence[NodeProto], outputs: Iterable[str], *, given: Iterable[str] = ()
) -> list[NodeProto]:
    """The nodes, in topological order, without those that no output needs; the given values need none."""
    known, kept = set(given), []
    needed = set(outputs) - known
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed.update(name for name in node.input if name not in known)
    return kept[::-1]


def assemble_part(
    model: onnx.ModelProto,
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    extra: Sequence[TensorProto] = (),
) -> bytes:
    """A serialized model of the nodes, with the weights of the original that they use.

    extra: further weights; one with the name of an original weight replaces it.
    """
    used = {name for node in nodes for name in node.input}
    replaced = {tensor.name for tensor in extra}
    weights = [tensor for tensor in model.graph.initializer if tensor.name in used - replaced]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "vivavoce", inputs, results, [*weights, *extra])
    opsets = [each for each in model.opset_import if each.domain != "com.microsoft"]
    opsets.append(helper.make_opsetid("com.microsoft", 1))
    part = helper.make_model(graph, opset_imports=opsets)
    part.ir_version = model.ir_version
    return bytes(part.SerializeToString())


def constant(name: str, value: np.ndarray) -> TensorProto:
    """A weight with a value."""
    return numpy_helper.from_array(value, name)
