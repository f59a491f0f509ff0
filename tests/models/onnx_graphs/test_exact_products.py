"""Products of 8-bit integers: the same numbers with int8 and with uint8 weights, on every processor."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS, session_options, sums_are_exact
from vivavoce.models.onnx_graphs import exact_products
from vivavoce.models.onnx_graphs.exact_products import (
    exact_integer_options,
    saturating_product,
    signed_products_are_exact,
    use_unsigned_weights,
)

INPUTS, OUTPUTS = 48, 24
X = np.random.default_rng(1).integers(0, 256, (5, INPUTS), np.uint8)
PRECISION_OPTION = "session.x64quantprecision"


def product(weight: np.ndarray, zero_point: np.ndarray | None, count: int = 1) -> onnx.ModelProto:
    """x (T, 48) uint8 -> y_0, y_1, ... (T, 24) int32, products of one weight."""
    inputs = ["x", "w"] if zero_point is None else ["x", "w", "", "z"]
    nodes = [helper.make_node("MatMulInteger", inputs, [f"y_{index}"]) for index in range(count)]
    weights = [numpy_helper.from_array(weight, "w")]
    if zero_point is not None:
        weights.append(numpy_helper.from_array(zero_point, "z"))
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, ["T", INPUTS])
    outputs = [
        helper.make_tensor_value_info(f"y_{index}", TensorProto.INT32, ["T", OUTPUTS])
        for index in range(count)
    ]
    graph = helper.make_graph(nodes, "product", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: bytes, options: onnxruntime.SessionOptions | None = None) -> list[np.ndarray]:
    results: list[np.ndarray] = CPU_SESSIONS.open(model, options).run(None, {"x": X})
    return results


def full_range_weight() -> np.ndarray:
    return np.random.default_rng(2).choice(np.array([-127, 126, 127], np.int8), (INPUTS, OUTPUTS))


@pytest.mark.parametrize(
    "zero_point",
    [None, np.array(3, np.int8), np.arange(-12, 12).astype(np.int8)],
    ids=["no zero point", "one", "one an output"],
)
def test_unsigned_weights_give_the_exact_sums(zero_point: np.ndarray | None) -> None:
    weight = full_range_weight()
    model = product(weight, zero_point, count=2)
    assert use_unsigned_weights(model) == 1
    assert {tensor.data_type for tensor in model.graph.initializer} == {TensorProto.UINT8}
    expected = X.astype(int) @ (weight.astype(int) - (0 if zero_point is None else zero_point.astype(int)))
    for result in run(model.SerializeToString()):
        assert (result == expected).all()


def test_unsigned_weights_stay_as_they_are() -> None:
    model = product(np.full((INPUTS, OUTPUTS), 200, np.uint8), np.array(128, np.uint8))
    before = model.SerializeToString()
    assert use_unsigned_weights(model) == 0
    assert model.SerializeToString() == before


def test_a_session_with_exact_options_gives_the_exact_sums() -> None:
    weight = full_range_weight()
    (found,) = run(product(weight, None).SerializeToString(), exact_integer_options())
    assert (found == X.astype(int) @ weight.astype(int)).all()


def test_signed_sums_are_exact_exactly_where_the_trial_says_so() -> None:
    weight = full_range_weight()
    (found,) = run(product(weight, None).SerializeToString(), session_options())
    assert (found == X.astype(int) @ weight.astype(int)).all() == signed_products_are_exact()


def test_the_trial_finds_sums_that_saturate() -> None:
    model = onnx.load_from_string(saturating_product())
    (weight,) = model.graph.initializer
    halved = numpy_helper.to_array(weight) // 2  # as saturated sums, these are less than the true ones
    weight.CopyFrom(numpy_helper.from_array(halved, weight.name))
    assert not sums_are_exact(model.SerializeToString())
    exact = onnx.load_from_string(saturating_product())
    use_unsigned_weights(exact)
    assert sums_are_exact(exact.SerializeToString())


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_slower_products_are_used_only_where_sums_saturate(
    is_exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_products, "signed_products_are_exact", lambda: is_exact)
    options = exact_integer_options()
    if is_exact:
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(PRECISION_OPTION)
    else:
        assert options.get_session_config_entry(PRECISION_OPTION) == "1"
