"""Products of a graph with a matrix of weights, in float32 or in 8 bits.

    float32    x @ weight.T + bias
    int8       whole numbers of 8 bits times a scale, one for x and one for each output of the weight

In int8, all rows of x share a scale: frames of a chunk and rows of a batch influence each other's rounding.
A scale for each row has no smaller error and takes several operators instead of one.

Source: DynamicQuantizeMatMul in docs/ContribOperators.md of microsoft/onnxruntime v1.24.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...devices.execution import Precision
from ...onnx_graphs.graph_builder import CONTRIB_DOMAIN
from .graph_values import GraphValue, constant

Weight = NDArray[np.float32]
# x (..., K), weight (N, K), bias (N,) or None -> (..., N)
Product = Callable[[GraphValue, Weight, Weight | None], GraphValue]

_MAX_INTEGER = 127
_MIN_LARGEST = np.finfo(np.float32).tiny * np.float32(_MAX_INTEGER)


def float32_product(x: GraphValue, weight: Weight, bias: Weight | None) -> GraphValue:
    """The product as published."""
    product = x @ constant(x.graph, weight.T)
    return product if bias is None else product + constant(x.graph, bias)


def int8_product(x: GraphValue, weight: Weight, bias: Weight | None) -> GraphValue:
    """The product of rounded numbers; its matrix takes a quarter of the memory."""
    integers, scales = quantize_outputs(weight)
    product = x.apply(
        "DynamicQuantizeMatMul",
        constant(x.graph, integers),
        constant(x.graph, scales),
        domain=CONTRIB_DOMAIN,
    )
    return product if bias is None else product + constant(x.graph, bias)


def quantize_outputs(weight: Weight) -> tuple[NDArray[np.int8], Weight]:
    """(N, K) -> whole numbers -127..127 (K, N), and the scale of each output (N,)."""
    scales = np.maximum(np.abs(weight).max(1), _MIN_LARGEST) / np.float32(_MAX_INTEGER)
    return np.rint(weight / scales[:, None]).astype(np.int8).T, scales


PRODUCTS: Mapping[Precision, Product] = {Precision.FP32: float32_product, Precision.INT8: int8_product}
