"""Layers equal torch's own, and packed weights are not held twice."""

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from torch import nn  # noqa: E402

from vivavoce.models.networks.layers import (  # noqa: E402
    CausalConv,
    Linear,
    PointwiseConv,
    QkvProjection,
    load_weights,
    prepare_modules,
    sinusoidal_time_features,
    split_keys_values,
)


def random_weights(network: nn.Module) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        key: torch.randn(tensor.shape, generator=generator) for key, tensor in network.state_dict().items()
    }


def test_a_causal_convolution_equals_torchs_padded_on_the_left() -> None:
    conv, x = CausalConv(3, 5, 4), torch.randn(2, 9, 3)
    weights = random_weights(conv)
    padded = torch.nn.functional.pad(x.transpose(1, 2), (3, 0))
    expected = torch.nn.functional.conv1d(padded, **weights).transpose(1, 2)
    load_weights(conv, weights)
    y, _ = conv(x, conv.initial_context(2))
    assert torch.allclose(y, expected, atol=1e-5)


@pytest.mark.parametrize("edge", [1, 2, 5])
def test_a_causal_convolution_continues_from_its_context(edge: int) -> None:
    conv, x = CausalConv(3, 5, 4), torch.randn(2, 9, 3)
    load_weights(conv, random_weights(conv))
    whole, _ = conv(x, conv.initial_context(2))
    first, context = conv(x[:, :edge], conv.initial_context(2))
    second, _ = conv(x[:, edge:], context)
    assert torch.allclose(torch.cat([first, second], 1), whole, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_a_joined_projection_equals_its_three_parts(bias: bool) -> None:
    joined, x = QkvProjection(6, 4, bias, ("q", "k", "v")), torch.randn(2, 3, 6)
    weights = random_weights(joined)
    query, key, value = (
        torch.nn.functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
        for name in "qkv"
    )
    load_weights(joined, weights)
    assert torch.allclose(joined.project_queries(x), query, atol=1e-5)
    assert torch.allclose(joined.project_keys_values(x), torch.cat([key, value], 2), atol=1e-5)


@pytest.mark.parametrize("blocked", [True, False])
def test_a_product_equals_torchs_in_either_layout(blocked: bool) -> None:
    dtype = torch.float32 if blocked else torch.float64
    linear, x = Linear(70, 130), torch.randn(3, 2, 70, dtype=dtype)
    weights = {key: tensor.to(dtype) for key, tensor in random_weights(linear).items()}
    expected = torch.nn.functional.linear(x, **weights)
    load_weights(linear, weights)
    assert linear.matrix is not None and linear.matrix.is_mkldnn == blocked
    assert torch.allclose(linear(x), expected, atol=1e-4)
    assert linear(x[:, :0]).shape == (3, 0, 130)


@pytest.mark.parametrize("rows", [1, 2, 5, 6])
def test_the_product_of_a_row_is_bit_equal_alone_and_among_a_few(rows: int) -> None:
    linear, x = Linear(2000, 64), torch.randn(rows, 1, 2000)
    weights = random_weights(linear)
    expected = torch.nn.functional.linear(x, **weights)
    load_weights(linear, weights)
    assert torch.allclose(linear(x), expected, atol=1e-3)
    assert torch.equal(linear(x), torch.cat([linear(row[None]) for row in x]))


def test_a_convolution_with_kernel_1_is_a_product() -> None:
    pointwise, x = PointwiseConv(7, 5), torch.randn(2, 3, 7)
    weights = random_weights(pointwise)
    expected = torch.nn.functional.conv1d(x.transpose(1, 2), **weights).transpose(1, 2)
    load_weights(pointwise, weights)
    assert torch.allclose(pointwise(x), expected, atol=1e-5)


def test_no_weight_is_stored_twice() -> None:
    network = nn.ModuleList(
        [Linear(3, 2), CausalConv(3, 5, 4), QkvProjection(6, 4, True, ("q", "k", "v")), PointwiseConv(3, 2)]
    )
    weights = random_weights(network)
    numbers = sum(tensor.numel() for tensor in weights.values())
    load_weights(network, weights)
    assert not weights
    held = [*network.parameters(), *network.buffers()]
    assert sum(tensor.numel() for tensor in held) == numbers


def test_loading_names_missing_and_unknown_keys() -> None:
    conv = CausalConv(3, 5, 4)
    with pytest.raises(RuntimeError, match=r"Missing key.*bias[\s\S]*Unexpected key.*other"):
        load_weights(conv, {"weight": torch.zeros(5, 3, 4), "other": torch.zeros(1)})


def test_an_unprepared_layer_computes_as_a_prepared_one_and_gives_gradients() -> None:
    layers = (CausalConv(6, 5, 4), QkvProjection(6, 4, True, ("q", "k", "v")), PointwiseConv(6, 3))

    def outputs() -> list[torch.Tensor]:
        conv, projection, pointwise = layers
        x = torch.linspace(-1, 1, 7 * 6).view(1, 7, 6)
        parts = (projection.project_queries(x), projection.project_keys_values(x), pointwise(x))
        return [conv(x, conv.initial_context(1))[0], *parts]

    generator = torch.Generator().manual_seed(3)
    for parameter in (parameter for layer in layers for parameter in layer.parameters()):
        torch.nn.init.normal_(parameter, generator=generator)
    trained = outputs()
    sum(output.sum() for output in trained).backward()
    gradients = [parameter.grad for layer in layers for parameter in layer.parameters()]
    assert all(gradient is not None and bool(gradient.any()) for gradient in gradients)
    for layer in layers:
        layer.requires_grad_(False)
        prepare_modules(layer)
    for before, after in zip(trained, outputs(), strict=True):
        torch.testing.assert_close(before.detach(), after)


def test_split_keys_values_gives_keys_then_values() -> None:
    x = torch.arange(2 * 3 * 8).view(2, 3, 8)
    assert torch.equal(split_keys_values(x)[:, 0], x[..., :4])
    assert torch.equal(split_keys_values(x)[:, 1], x[..., 4:])


def test_time_features_are_sines_then_cosines() -> None:
    features = sinusoidal_time_features(torch.tensor([0.0, 0.001]), 8)
    assert features[0].tolist() == [0.0] * 4 + [1.0] * 4
    assert features[1, 0].item() == pytest.approx(0.841471, abs=1e-5)
    assert features[1, 3].item() == pytest.approx(1e-4, abs=1e-7)
