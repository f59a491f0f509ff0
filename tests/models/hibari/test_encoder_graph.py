"""The rewritten encoder of the packaged voice, against the same part of the graph as shipped."""

from pathlib import Path

import hibari
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from vivavoce.models.hibari.encoder_graph import HIDDEN, make_encoder
from vivavoce.models.onnx_parts import assemble_part, nodes_between
from vivavoce.models.onnx_sessions import CPU_SESSIONS

OUTPUTS = [HIDDEN, "/Round_output_0", "f0"]


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(Path(hibari.__file__).parent / "assets" / "hibari.onnx")


# In longer lines rounding moves some numbers to the next one of the 8 bits that follow.
@pytest.mark.parametrize("phonemes", [1, 2, 5, 17])
def test_the_encoder_gives_the_results_of_the_shipped_graph(model: onnx.ModelProto, phonemes: int) -> None:
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "L"]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ]
    nodes = nodes_between(model, inputs={"ids", "speed"}, outputs=OUTPUTS)
    shipped = CPU_SESSIONS.open(assemble_part(model, nodes, inputs, OUTPUTS))
    ids = np.random.default_rng(phonemes).integers(20, 60, (1, phonemes + 2))
    feed = {"ids": ids, "speed": np.ones(1, np.float32)}
    found, expected = CPU_SESSIONS.open(make_encoder(model)).run(None, feed), shipped.run(None, feed)
    for result, shipped_result in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, shipped_result, rtol=1e-5, atol=2e-5)


def test_each_layer_has_one_operator_of_attention(model: onnx.ModelProto) -> None:
    operators = [node.op_type for node in onnx.load_from_string(make_encoder(model)).graph.node]
    assert operators.count("MultiHeadAttention") == 10
    assert "Softmax" not in operators
