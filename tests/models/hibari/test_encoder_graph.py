"""The rewritten encoder of the packaged voice, against the same part of the graph as shipped."""

from pathlib import Path

import hibari
import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS
from vivavoce.models.hibari.encoder_graph import HIDDEN, make_encoder
from vivavoce.models.onnx_graphs.onnx_parts import assemble_part, constant, nodes_between

OUTPUTS = [HIDDEN, "/Round_output_0", "f0"]


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(Path(hibari.__file__).parent / "assets" / "hibari.onnx")


def without_quantization(serialized: bytes) -> bytes:
    """The graph with products in float32 of its dequantized weights.

    With 8 bits, float32 rounding, which differs between processors, moves some numbers to the next integer.
    """
    model = onnx.load_from_string(serialized)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            values, scale, _ = node.output
            nodes.append(helper.make_node("Identity", [node.input[0]], [values]))
            model.graph.initializer.append(constant(scale, np.array(1, np.float32)))
        elif node.op_type == "MatMulInteger":
            x, weight, _, zero_point = node.input
            dequantized = stored[weight].astype(np.float32) - stored[zero_point].astype(np.float32)
            model.graph.initializer.append(constant(f"{node.output[0]}/weight", dequantized))
            nodes.append(helper.make_node("MatMul", [x, f"{node.output[0]}/weight"], list(node.output)))
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("phonemes", [1, 2, 5, 17, 60])
def test_the_encoder_gives_the_results_of_the_shipped_graph(model: onnx.ModelProto, phonemes: int) -> None:
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "L"]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ]
    nodes = nodes_between(model, inputs={"ids", "speed"}, outputs=OUTPUTS)
    ids = np.random.default_rng(phonemes).integers(20, 60, (1, phonemes + 2))
    feed = {"ids": ids, "speed": np.ones(1, np.float32)}
    found, expected = (
        CPU_SESSIONS.open(without_quantization(graph)).run(None, feed)
        for graph in (make_encoder(model), assemble_part(model, nodes, inputs, OUTPUTS))
    )
    for result, shipped_result in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, shipped_result, rtol=1e-5, atol=2e-5)


def test_each_layer_has_one_operator_of_attention(model: onnx.ModelProto) -> None:
    operators = [node.op_type for node in onnx.load_from_string(make_encoder(model)).graph.node]
    assert operators.count("MultiHeadAttention") == 10
    assert "Softmax" not in operators
