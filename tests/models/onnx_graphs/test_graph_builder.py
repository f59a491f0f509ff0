"""Graphs with their weights in memory, beside the same in a file."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from vivavoce.models.onnx_graphs.graph_builder import OnnxGraphBuilder, OnnxGraphFile, OnnxMemoryGraph
from vivavoce.models.onnx_graphs.matrix_products import MatrixFormat, add_product

FORMATS = [MatrixFormat(32), MatrixFormat(8, 64), MatrixFormat(4, 32)]

INPUTS, OUTPUTS = 128, 512


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def add_products(graph: OnnxGraphBuilder, bias: np.ndarray, matrices: MatrixFormat) -> None:
    x = graph.input("x", np.float32, ("rows", INPUTS))
    add_product(graph, x, noise(OUTPUTS, INPUTS), bias, matrices, "y")
    graph.output("y", np.float32, ("rows", OUTPUTS))


@pytest.mark.parametrize("matrices", FORMATS, ids=lambda matrices: f"{matrices.bits} bits")
def test_a_graph_in_memory_keeps_its_weights_and_computes_as_one_on_file(
    matrices: MatrixFormat, tmp_path: Path
) -> None:
    bias, x = noise(OUTPUTS), noise(5, INPUTS)
    exact = x @ noise(OUTPUTS, INPUTS).T + bias
    with OnnxGraphFile(tmp_path / "product.onnx") as file:
        add_products(file, bias, matrices)
        file.save({"about": "a product"})
    memory = OnnxMemoryGraph("product")
    add_products(memory, bias, matrices)
    in_memory = memory.open_session(1)
    bias.fill(np.nan)
    [found] = in_memory.run(["y"], {"x": x})
    [expected] = onnxruntime.InferenceSession(str(tmp_path / "product.onnx")).run(["y"], {"x": x})
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found - exact).std() < {32: 1e-5, 8: 0.02, 4: 0.2}[matrices.bits] * exact.std()
