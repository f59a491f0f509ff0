"""Products of 8-bit integers whose sums are exact on every processor.

Without VNNI, x86 processors add two products of uint8 and int8 in 16 bits, which saturates: 2 * 255 * 127 is
more than 32,767. ONNX Runtime adds products of uint8 and uint8 in 32 bits there, which takes longer. So a
weight w with the zero point z becomes the uint8 weight w + 128 with the zero point z + 128: the same numbers.
ONNX Runtime's own option for that (``exact_integer_options``) needs weights that one node each uses.

Source: MlasGemmU8S8DispatchAvx2 and MlasGemmU8U8DispatchAvx2 in qgemm_kernel_avx2.cpp, and
kOrtSessionOptionsAvx2PrecisionMode in onnxruntime_session_options_config_keys.h, of
microsoft/onnxruntime v1.24.
"""

from functools import cache
from typing import Final

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from ..devices.onnx_sessions import session_options, sums_are_exact

# Operators with a product of integers, and their inputs with the weight and with its zero point.
_WEIGHT_INPUTS: Final = {
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
}
_TRIAL_ROWS, _TRIAL_INPUTS, _TRIAL_OUTPUTS = 4, 64, 32


@cache
def signed_products_are_exact() -> bool:
    """Whether this processor adds products with int8 weights without saturating."""
    return sums_are_exact(saturating_product())


def exact_integer_options(threads: int = 1) -> onnxruntime.SessionOptions:
    """Options of a session whose sums of 8-bit products never saturate.

    Each int8 weight must have one consumer. threads: that compute.
    """
    options = session_options(threads)
    if not signed_products_are_exact():  # elsewhere uint8 weights take longer for the same sums
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def use_unsigned_weights(model: onnx.ModelProto) -> int:
    """Replace the int8 weights of a model's products by uint8 ones; returns the number of weights.

    Products whose weight or zero point is computed by other nodes stay as they are.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    signed: set[str] = set()
    for node in model.graph.node:
        weight, zero_point = _WEIGHT_INPUTS.get(node.op_type, (0, 0))
        if not weight or _data_type(stored, node.input[weight]) != TensorProto.INT8:
            continue
        if zero_point >= len(node.input) or not node.input[zero_point]:
            _add_zero_point(model, node, zero_point)
        elif _data_type(stored, node.input[zero_point]) == TensorProto.INT8:
            signed.add(node.input[zero_point])
        else:
            continue
        signed.add(node.input[weight])
    for name in signed:
        shifted = numpy_helper.to_array(stored[name]).astype(np.int16) + 128
        stored[name].CopyFrom(numpy_helper.from_array(shifted.astype(np.uint8), name))
    return sum(len(stored[name].dims) == 2 for name in signed)


def with_unsigned_weights(serialized: bytes) -> bytes:
    """Return a serialized model with uint8 weights in place of int8 ones; see ``use_unsigned_weights``."""
    model = onnx.load_from_string(serialized)
    use_unsigned_weights(model)
    return bytes(model.SerializeToString())


def saturating_product() -> bytes:
    """A serialized product x (4, 64) uint8 -> y (4, 32) int32, whose sums need more than 16 bits.

    Its weights are 127, so that x of 255 gives 64 * 255 * 127 where int8 weights are exact.
    """
    weight = np.full((_TRIAL_INPUTS, _TRIAL_OUTPUTS), 127, np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [_TRIAL_ROWS, _TRIAL_INPUTS])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [_TRIAL_ROWS, _TRIAL_OUTPUTS])
    graph = helper.make_graph([node], "product", [x], [y], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _data_type(stored: dict[str, TensorProto], name: str) -> int | None:
    return stored[name].data_type if name in stored else None


def _add_zero_point(model: onnx.ModelProto, node: onnx.NodeProto, index: int) -> None:
    """Give a node without a zero point, which means 0, that of the uint8 weight."""
    name = f"{node.output[0]}/zero_point"
    model.graph.initializer.append(numpy_helper.from_array(np.array(128, np.uint8), name))
    node.input.extend([""] * (index + 1 - len(node.input)))
    node.input[index] = name
