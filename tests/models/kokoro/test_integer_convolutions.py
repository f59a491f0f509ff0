"""Quantized convolutions as products: the same numbers as ONNX Runtime's ConvInteger."""

import numpy as np
import onnx
import pytest

from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS
from vivavoce.models.kokoro.integer_convolutions import (
    ConvolutionForm,
    fastest_form,
    quantized_convolution,
    replace_convolutions,
)

# Weights with which a form is exact on every processor: without VNNI, int8 ones add two products in 16 bits.
EXACT_WEIGHTS = {ConvolutionForm.SIGNED_PRODUCT: (64, 192), ConvolutionForm.UNSIGNED_PRODUCT: (0, 256)}
SHAPES = pytest.mark.parametrize(("taps", "dilation"), [(1, 1), (3, 1), (7, 3), (11, 5)])
BIASES = pytest.mark.parametrize("has_bias", [True, False])


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    output: np.ndarray = CPU_SESSIONS.open(model.SerializeToString()).run(None, {"x": x})[0]
    return output


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def random_weight(taps: int, outputs: int = 24, values: tuple[int, int] = (0, 256)) -> np.ndarray:
    return np.random.default_rng(taps).integers(*values, (outputs, 20, taps), np.uint8)


def assert_equals_the_convolution(
    form: ConvolutionForm, weight: np.ndarray, dilation: int, has_bias: bool
) -> onnx.ModelProto:
    """Compare a form with ConvInteger; returns the model in the form."""
    generator = np.random.default_rng(1)
    bias = generator.normal(size=24).astype(np.float32) if has_bias else None
    x = generator.normal(size=(1, 20, 61)).astype(np.float32) + 0.5
    model = quantized_convolution(weight, dilation=dilation, bias=bias)
    expected = run(model, x)
    replace_convolutions(model, form)
    step = 0.01 * (x.max() - min(x.min(), 0)) / 255  # to which ConvInteger's bias is rounded
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-5, atol=1.01 * step if has_bias else 1e-4)
    return model


@pytest.mark.parametrize("form", EXACT_WEIGHTS)
@SHAPES
@BIASES
def test_a_product_equals_the_convolution(
    form: ConvolutionForm, taps: int, dilation: int, has_bias: bool
) -> None:
    weight = random_weight(taps, values=EXACT_WEIGHTS[form])
    model = assert_equals_the_convolution(form, weight, dilation, has_bias)
    assert "ConvInteger" not in operators(model) and "MatMulIntegerToFloat" in operators(model)


def test_convolutions_of_one_input_share_its_taps() -> None:
    model = quantized_convolution(random_weight(3), dilation=1)
    second = quantized_convolution(random_weight(3), dilation=1)
    shared = {"x", "x_quantized", "x_scale", "x_zero_point"}
    for node in second.graph.node[1:]:
        for names in (node.input, node.output):
            names[:] = [name if name in shared else f"second_{name}" for name in names]
        model.graph.node.append(node)
    for weight in second.graph.initializer:
        weight.name = f"second_{weight.name}"
        model.graph.initializer.append(weight)
    output = second.graph.output[0]
    output.name = "second_y"
    model.graph.output.append(output)
    x = np.random.default_rng(2).normal(size=(1, 20, 30)).astype(np.float32)
    expected = run(model, x)
    assert replace_convolutions(model, ConvolutionForm.UNSIGNED_PRODUCT) == 2
    assert operators(model).count("Concat") == operators(model).count("Pad") == 1
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        quantized_convolution(random_weight(3), dilation=1, stride=2),
        quantized_convolution(random_weight(3, outputs=1), dilation=1),
    ],
    ids=["stride", "one output"],
)
def test_other_convolutions_stay_as_they_are(model: onnx.ModelProto) -> None:
    before = model.SerializeToString()
    assert replace_convolutions(model, ConvolutionForm.SIGNED_PRODUCT) == 0
    assert "ConvInteger" in operators(model)
    assert operators(model) == operators(onnx.load_from_string(before))


@SHAPES
@BIASES
def test_the_form_of_a_trial_is_exact_here(taps: int, dilation: int, has_bias: bool) -> None:
    form = fastest_form(threads=1)
    assert_equals_the_convolution(form, random_weight(taps), dilation, has_bias)
