"""The language model of XTTS in ONNX Runtime: beside upstream and torch, in parts, in a batch, its memory."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the XTTS networks need torch: EXTRAS=dev,stt,cosyvoice")

from golden.reference.xtts.language_model import compare_gpt  # noqa: E402
from golden.reference.xtts.networks import read_network_config, read_text_ends, rule_weights  # noqa: E402
from vivavoce.models.decoding.kv_memory import SpeechLmState  # noqa: E402
from vivavoce.models.onnx_graphs.matrix_products import MatrixFormat  # noqa: E402
from vivavoce.models.xtts.checkpoint.random_bundle import random_tensor  # noqa: E402
from vivavoce.models.xtts.checkpoint.tensor_shapes import model_tensors  # noqa: E402
from vivavoce.models.xtts.config import (  # noqa: E402
    ConditioningConfig,
    XttsConfig,
    XttsGptConfig,
    XttsVocoderConfig,
)
from vivavoce.models.xtts.gpt import TorchXttsGpt, XttsGpt  # noqa: E402
from vivavoce.models.xtts.onnx_gpt import OnnxXttsGpt  # noqa: E402

GOLDEN = Path(__file__).parents[2] / "golden" / "xtts_data"
FLOAT32 = MatrixFormat(32)
ENDS = (3, 0)  # ids of [START] and [STOP]
# Several blocks of inputs in every product.
SIZES = XttsGptConfig(layers=3, hidden=256, heads=4, text_vocab_size=120)


def gpt_weights() -> "dict[str, torch.Tensor]":
    config = XttsConfig(
        SIZES, ConditioningConfig(SIZES.hidden, SIZES.heads), vocoder=XttsVocoderConfig(SIZES.hidden, 32)
    )
    shapes = {key: shape for key, (shape, _) in model_tensors(config).items() if key.startswith("gpt.")}
    return {
        key: random_tensor(key, shape, "7/") for key, shape in shapes.items() if "conditioning" not in key
    }


@pytest.fixture(scope="module")
def exact() -> TorchXttsGpt:
    return TorchXttsGpt.load(SIZES, gpt_weights(), *ENDS)


@pytest.fixture(scope="module")
def gpt() -> OnnxXttsGpt:
    return OnnxXttsGpt.load(SIZES, gpt_weights(), *ENDS)


def noise(*shape: int) -> "torch.Tensor":
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@torch.inference_mode()
def scores_of(gpt: XttsGpt) -> "torch.Tensor":
    """Of the last of 40 columns, and of an id after them."""
    hidden, state = gpt.step(noise(1, 40, SIZES.hidden), gpt.init_state(1, 60))
    following, _ = gpt.step(gpt.embed_speech(torch.tensor([[5]]), torch.tensor([[0]])), state)
    return gpt.logits(gpt.latents(torch.cat([hidden[:, -1:], following], 1)))


def test_the_graphs_in_float32_give_upstreams_vectors() -> None:
    config = read_network_config(GOLDEN).gpt
    gpt = OnnxXttsGpt.load(config, rule_weights(GOLDEN), *read_text_ends(GOLDEN), FLOAT32)
    comparisons = list(compare_gpt(GOLDEN, gpt))
    assert len(comparisons) == 6
    assert [found for found in comparisons if not found.passed] == []


def test_int8_is_near_float32(gpt: OnnxXttsGpt, exact: TorchXttsGpt) -> None:
    expected = scores_of(exact)
    error = (scores_of(gpt) - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert 1e-4 < error < 0.02


def test_a_prompt_in_parts_gives_the_scores_of_the_whole() -> None:
    gpt = OnnxXttsGpt.load(SIZES, gpt_weights(), *ENDS, FLOAT32)
    x = noise(1, 20, SIZES.hidden)
    whole, _ = gpt.step(x, gpt.init_state(1, 20))
    state, parts = gpt.init_state(1, 20), []
    for part in x.split([7, 1, 12], 1):
        hidden, state = gpt.step(part, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)


def assert_same_row(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=0.0, rtol=0.0)


def test_a_row_is_the_same_alone_and_among_others(gpt: OnnxXttsGpt) -> None:
    """And a row without inputs keeps what it was fed."""
    lengths = [[4, 1, 1, 1, 1], [6, 0, 1, 0, 1], [9, 1, 0, 1, 1]]
    x = [noise(3, max(columns), SIZES.hidden) for columns in zip(*lengths, strict=True)]
    together, outputs = gpt.init_state(3, 20), []
    for columns, valid in zip(x, zip(*lengths, strict=True), strict=True):
        hidden, together = gpt.step(columns, together, torch.tensor(valid))
        outputs.append(gpt.logits(gpt.latents(hidden)))
    for row, valid_steps in enumerate(lengths):
        alone = gpt.init_state(1, 20)
        for columns, output, count in zip(x, outputs, valid_steps, strict=True):
            if count:
                hidden, alone = gpt.step(columns[row : row + 1, :count], alone)
                assert_same_row(output[row, :count], gpt.logits(gpt.latents(hidden))[0])
        assert together.lengths[row] == alone.lengths[0] == sum(valid_steps)
        fed = slice(0, sum(valid_steps))
        assert_same_row(together.kv[row, ..., fed, :], alone.kv[0, ..., fed, :])


def test_a_full_row_is_kept_and_cannot_grow(gpt: OnnxXttsGpt) -> None:
    _, state = gpt.step(noise(3, 5, SIZES.hidden), gpt.init_state(3, 5), torch.tensor([1, 5, 1]))
    before = state.kv[1, ..., :5, :].clone()
    _, state = gpt.step(noise(3, 1, SIZES.hidden), state, torch.tensor([1, 0, 1]))
    assert torch.equal(state.kv[1, ..., :5, :], before)
    with pytest.raises(ValueError, match="would hold 6 ids; its memory was made for 5"):
        gpt.step(noise(3, 1, SIZES.hidden), state)


def test_a_cleared_row_begins_anew_and_leaves_the_others(gpt: OnnxXttsGpt) -> None:
    state = SpeechLmState(gpt.init_state(3, 400).kv, torch.tensor([300, 400, 399]))
    state.kv.fill_(1)
    state.clear_row(1)
    assert state.lengths.tolist() == [300, 0, 399]
    assert bool((state.kv[[0, 2]] == 1).all())
    x = noise(1, 1, SIZES.hidden)
    alone, _ = gpt.step(x, gpt.init_state(1, 5))
    hidden, _ = gpt.step(x.expand(3, -1, -1), state, torch.tensor([0, 1, 0]))
    assert_same_row(hidden[1], alone[0])
