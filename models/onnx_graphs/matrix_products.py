"""Products with a matrix of weights in an ONNX graph, in float32, or in 8 or 4 bits with a scale a block.

In 8 or 4 bits, the inputs of a block are rounded to 8 bits as well, and its products are added as integers.

Source: MatMulNBits in docs/ContribOperators.md of microsoft/onnxruntime v1.24.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .block_quantization import quantize_in_blocks
from .graph_builder import CONTRIB_DOMAIN, OnnxGraphBuilder

_ACCURACY_LEVEL = 4  # inputs of a quantized product are rounded to 8 bits


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """Number format of a matrix. bits: 32 for float32, else 8 or 4 with a scale for each block."""

    bits: int
    block: int = 0  # inputs that share a scale


def add_product(
    graph: OnnxGraphBuilder,
    x: str,
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    matrices: MatrixFormat,
    output: str = "",
) -> str:
    """Add x @ weight.T + bias for a value (..., K), a weight (N, K) and a bias (N,): (..., N).

    output: a name for the value, chosen if empty. Returns the name.
    """
    if matrices.bits == 32:
        product = graph.add("MatMul", [x, graph.weight(weight.T)], output if bias is None else "")
        return product if bias is None else graph.add("Add", [product, graph.weight(bias)], output)
    packed = quantize_in_blocks(weight, matrices.bits, matrices.block)
    inputs = [x, graph.weight(packed.values), graph.weight(packed.scales), graph.weight(packed.zero_points)]
    attributes: dict[str, Any] = {
        "N": weight.shape[0],
        "K": weight.shape[1],
        "bits": packed.bits,
        "block_size": packed.block,
        "accuracy_level": _ACCURACY_LEVEL,
    }
    if bias is not None:
        inputs += ["", graph.weight(bias)]
    output = output or f"{inputs[1]}_product"
    return graph.add_outputs("MatMulNBits", inputs, [output], domain=CONTRIB_DOMAIN, **attributes)[0]
