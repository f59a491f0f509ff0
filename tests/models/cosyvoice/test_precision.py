"""The language model in 16 and 8 bits: error against float32, alone and in a batch, and memory."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shared.runtimes.logit_error import logit_error  # noqa: E402
from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_lm  # noqa: E402
from vivavoce.models.devices.execution import Precision  # noqa: E402
from vivavoce.models.networks.layers import Linear, load_weights  # noqa: E402
from vivavoce.models.networks.precision import MatrixRole, linear_class  # noqa: E402

WITH_TORCH = [each for each in Precision if each is each.of_lm and each is not Precision.INT4]
LOWER = [precision for precision in WITH_TORCH if precision is not Precision.FP32]
# Error of a product, root mean square, as a share of its own.
MAX_ERROR = {Precision.BF16: 4e-3, Precision.FP16: 6e-4, Precision.INT8: 1.1e-2}


@pytest.fixture(scope="module", params=[CosyVoiceVersion.V2, CosyVoiceVersion.V3])
def lms(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Precision, SpeechLm]:
    folder: Path = tmp_path_factory.mktemp("precision") / "bundle"
    write_random_bundle(folder, request.param, BundleSize.TINY, seed=5)
    bundle = open_bundle(folder)
    return {precision: load_lm(bundle, precision) for precision in WITH_TORCH}


@torch.inference_mode()
def logits(lm: SpeechLm, ids: "torch.Tensor") -> "torch.Tensor":
    hidden, _ = lm.step(lm.embed_speech(ids), lm.init_state(*ids.shape))
    return lm.logits(hidden)


def product(precision: Precision, weight: "torch.Tensor", x: "torch.Tensor") -> "torch.Tensor":
    """The product with a bias of 0, 1, 2, ..."""
    linear = linear_class(precision, MatrixRole.OTHER, 1)(weight.shape[1], weight.shape[0])
    load_weights(linear, {"weight": weight.clone(), "bias": torch.arange(len(weight)).float()})
    return linear(x)


def multiply(kind: type[Linear], weight: "torch.Tensor", x: "torch.Tensor") -> "torch.Tensor":
    linear = kind(weight.shape[1], weight.shape[0], bias=False)
    load_weights(linear, {"weight": weight.clone()})
    return linear(x)


def noise(*shape: int) -> "torch.Tensor":
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("precision", LOWER)
def test_a_product_is_near_the_one_in_float32(precision: Precision) -> None:
    weight, x = noise(96, 128), noise(3, 5, 128)
    exact = product(Precision.FP32, weight, x)
    error = product(precision, weight, x) - exact
    assert error.dtype == torch.float32
    assert error.square().mean().sqrt() < MAX_ERROR[precision] * (exact - exact.mean(-1)[..., None]).std()


@pytest.mark.parametrize("precision", LOWER)
def test_one_large_channel_leaves_the_error_of_the_others_small(precision: Precision) -> None:
    weight, x = noise(96, 128), noise(4, 128)
    weight[:, 7], x[:, 7] = 0, 300
    exact = product(Precision.FP32, weight, x)
    assert (product(precision, weight, x) - exact).std() < 2 * MAX_ERROR[precision] * (weight @ x.T).std()


@pytest.mark.parametrize("depth", [0, 1])
def test_an_int8_product_of_a_row_is_bit_equal_in_any_batch(depth: int) -> None:
    kind, weight, x = linear_class(Precision.INT8, MatrixRole.OTHER, depth), noise(96, 128), noise(9, 128)
    together = multiply(kind, weight, x)
    for row in range(len(x)):
        assert torch.equal(multiply(kind, weight, x[row : row + 1])[0], together[row])


def test_a_processor_without_vnni_uses_digits_of_7_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vivavoce.models.networks.precision._bits_per_digit", lambda: 7)
    weight, x = noise(96, 128), noise(3, 128)
    linear = linear_class(Precision.INT8, MatrixRole.OTHER, 1)(128, 96, bias=False)
    load_weights(linear, {"weight": weight.clone()})
    assert int(linear._digit_planes(x, x.abs().amax(-1, keepdim=True)).max()) == 127
    exact = x @ weight.T
    assert (linear(x) - exact).std() < MAX_ERROR[Precision.INT8] * exact.std()


@pytest.mark.parametrize("precision", WITH_TORCH)
def test_zero_rows_and_zero_values_give_zero_products(precision: Precision) -> None:
    assert product(precision, torch.zeros(8, 16), torch.zeros(0, 16)).shape == (0, 8)
    assert torch.equal(product(precision, noise(8, 16), torch.zeros(1, 16))[0], torch.arange(8.0))
    assert torch.equal(product(precision, torch.zeros(8, 16), noise(1, 16))[0], torch.arange(8.0))


@pytest.mark.parametrize(("precision", "max_error"), list(zip(LOWER, (2e-3, 1e-4, 2e-2), strict=True)))
def test_the_distribution_of_the_next_id_is_nearly_that_of_float32(
    lms: dict[Precision, SpeechLm], precision: Precision, max_error: float
) -> None:
    ids = torch.randint(6561, (4, 50), generator=torch.Generator().manual_seed(2))
    exact = logits(lms[Precision.FP32], ids).flatten(0, 1)
    error = logit_error(logits(lms[precision], ids).flatten(0, 1), exact)
    assert 0 < error.kl < max_error
    assert error.agreement >= 0.99


@pytest.mark.parametrize(("precision", "max_error"), list(zip(LOWER, (0.1, 0.02, 1e-3), strict=True)))
def test_a_row_in_a_batch_has_nearly_the_logits_of_the_row_alone(
    lms: dict[Precision, SpeechLm], precision: Precision, max_error: float
) -> None:
    ids = torch.randint(6561, (8, 20), generator=torch.Generator().manual_seed(3))
    together = logits(lms[precision], ids)
    assert torch.allclose(logits(lms[precision], ids[2:3])[0], together[2], atol=max_error)


@pytest.mark.parametrize("precision", LOWER)
def test_no_float32_matrix_is_kept(lms: dict[Precision, SpeechLm], precision: Precision) -> None:
    exact, lower = lms[Precision.FP32], lms[precision]
    for kept, tensor in lower.head.named_buffers():
        assert kept != "matrix" or tensor.element_size() < 4
    assert lower.head.weight is None
    assert lower.head.matrix.shape.numel() == exact.head.matrix.shape.numel()


@pytest.mark.parametrize(("role", "first"), [(MatrixRole.ATTENTION, 6), (MatrixRole.OTHER, 1)])
def test_the_first_matrices_are_finer_in_int8(role: MatrixRole, first: int) -> None:
    finer, coarser = linear_class(Precision.INT8, role, 0), linear_class(Precision.INT8, role, 1)
    kinds = [linear_class(Precision.INT8, role, layer / 24) for layer in range(24)]
    assert kinds == [finer] * first + [coarser] * (24 - first)
    weight, x = noise(96, 128), noise(3, 128)
    exact = x @ weight.T
    errors = [(multiply(linear, weight, x) - exact).std() / exact.std() for linear in (finer, coarser)]
    # Inputs have 14 bits without VNNI, where the factor is 57, and 16 with it.
    assert 40 * errors[0] < errors[1] < MAX_ERROR[Precision.INT8]
