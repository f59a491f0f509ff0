"""Matrices as pairs of float16: which layers get them, and what they hold."""

from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch", reason="needs torch (EXTRAS=cosyvoice)")

from vivavoce.models.networks import layers  # noqa: E402
from vivavoce.models.networks.layers import CausalConv, Linear, QkvProjection  # noqa: E402
from vivavoce.models.networks.precision import drop_low_halves, split_matrices  # noqa: E402


def prepared(layer: layers.PreparedModule) -> layers.PreparedModule:
    layer.requires_grad_(False)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    with patch.object(layers, "pack_matrix", torch.Tensor.contiguous):  # as on a GPU
        layer.prepare()
    return layer


def split(*split_layers: Linear | CausalConv | QkvProjection) -> None:
    with patch("vivavoce.models.networks.precision.has_fused_kernels", return_value=True):
        split_matrices(split_layers)


@pytest.mark.parametrize("make", [lambda: Linear(64, 32), lambda: CausalConv(64, 32, 3)])
def test_the_halves_of_a_layer_are_those_of_its_matrix(make: object) -> None:
    layer = prepared(make())  # type: ignore[operator]
    split(layer)
    high, low = layer.halves.double()
    assert float((high + low / 2048 - layer.whole_matrix().double()).abs().max()) < 1e-6


def test_the_halves_of_a_projection_are_of_queries_keys_and_values_with_their_biases() -> None:
    layer = prepared(QkvProjection(64, 32, True, ("q", "k", "v")))
    x = torch.randn(1, 5, 64)
    split(layer)
    high, low = layer.halves.float()
    joined = torch.nn.functional.linear(x, high + low / 2048, layer.whole_bias)
    expected = torch.cat([layer.project_queries(x), layer.project_keys_values(x)], 2)
    assert torch.allclose(joined, expected, atol=1e-5)


def test_a_projection_without_biases_has_none() -> None:
    layer = prepared(QkvProjection(64, 32, False, ("q", "k", "v")))
    split(layer)
    assert layer.halves is not None and layer.whole_bias is None


def test_a_matrix_that_the_kernels_cannot_multiply_by_stays_whole() -> None:
    large, odd = prepared(Linear(64, 32)), prepared(Linear(64, 33))
    large.matrix[3, 5] = 70_000.0
    split(large, odd)
    assert large.halves is None and odd.halves is None


def test_without_the_low_halves_the_matrix_rounded_to_float16_is_left() -> None:
    network = torch.nn.Sequential(
        prepared(Linear(64, 32)), prepared(CausalConv(64, 32, 3)), prepared(Linear(64, 33))
    )
    split(*network)
    drop_low_halves(network)
    for layer in network[:2]:
        assert torch.equal(layer.halves, layer.whole_matrix().half()[None])
    assert network[2].halves is None


def test_a_device_without_kernels_gets_no_halves() -> None:
    layer = prepared(Linear(64, 32))
    split_matrices([layer])
    assert layer.halves is None
