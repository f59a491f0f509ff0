"""The v3 vocoder in steps: exact for any split and in a batch; its noise without a stored table."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from shared.engine.session_states import scatter  # noqa: E402
from vivavoce.models.cosyvoice.config import HiftConfig  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3, HiftV3State  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.noise_table import NoiseTable  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402
from vivavoce.models.networks.state import gather, join_states, tensors  # noqa: E402

DATA = Path(__file__).parents[3] / "golden" / "data"
CONFIG = HiftConfig(base_channels=16, f0_channels=12)
RULE = WeightRule(
    "", (("f0_predictor.classifier.weight", 150.0), ("conv_post.parametrizations.weight.original0", 0.1))
)
WAVES, SIZE, FRAMES = CONFIG.sine_count, CONFIG.samples_per_frame, 60


def make_vocoder() -> HiftV3:
    vocoder = HiftV3(CONFIG)
    shapes = {key: tuple(tensor.shape) for key, tensor in vocoder.state_dict().items()}
    load_weights(vocoder, {key: torch.from_numpy(value) for key, value in rule_weights(shapes, RULE).items()})
    return vocoder


def random_inputs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mel = torch.randn(1, 80, FRAMES, generator=generator)
    return mel, torch.rand(1, FRAMES * SIZE, WAVES, generator=generator)


def render_in_steps(
    vocoder: HiftV3, mel: torch.Tensor, noise: torch.Tensor, edges: tuple[int, ...]
) -> list[torch.Tensor]:
    pieces, state, begin, used = [], vocoder.init_state(1), 0, 0
    for end in (*edges, FRAMES):
        last = end == FRAMES
        count = vocoder.noise_samples(end - begin, state, last=last)
        chunk_noise = noise[:, used : used + count]
        used += count
        if last:
            pieces.append(vocoder.finish(mel[..., begin:], chunk_noise, state))
        else:
            samples, state = vocoder.step(mel[..., begin:end], chunk_noise, state)
            pieces.append(samples)
        begin = end
    assert used == FRAMES * SIZE
    return pieces


@pytest.mark.parametrize("edges", [(30,), (5,), (5, 6, 7, 8), (25, 50), (56,), (59,)])
def test_any_split_gives_the_samples_of_the_whole_mel(edges: tuple[int, ...]) -> None:
    vocoder, (mel, noise) = make_vocoder(), random_inputs()
    expected = vocoder.finish(mel, noise, vocoder.init_state(1))
    assert expected.shape == (1, FRAMES * SIZE)
    assert torch.allclose(torch.cat(render_in_steps(vocoder, mel, noise, edges), 1), expected, atol=2e-5)


def test_the_first_chunk_withholds_four_frames_and_four_samples() -> None:
    vocoder, (mel, noise) = make_vocoder(), random_inputs()
    lengths = [piece.shape[1] for piece in render_in_steps(vocoder, mel, noise, (25, 50))]
    assert lengths == [21 * SIZE - 4, 25 * SIZE, 14 * SIZE + 4]


def test_samples_of_a_chunk_do_not_depend_on_later_frames() -> None:
    vocoder, (mel, noise) = make_vocoder(), random_inputs()
    other = torch.cat([mel[..., :40], mel[..., 40:].flip(2)], 2)
    first, second = (torch.cat(render_in_steps(vocoder, x, noise, (30,)), 1) for x in (mel, other))
    known = 36 * SIZE - 4
    assert torch.allclose(first[:, :known], second[:, :known], atol=1e-6)
    assert not torch.allclose(first[:, known : known + SIZE], second[:, known : known + SIZE], atol=1e-3)


def started(vocoder: HiftV3, seed: int) -> tuple[HiftV3State, torch.Tensor, torch.Tensor]:
    """A state after 30 frames, the mel of the next 20, and their noise."""
    mel, noise = random_inputs(seed)
    state = vocoder.init_state(1)
    count = vocoder.noise_samples(30, state, last=False)
    _, state = vocoder.step(mel[..., :30], noise[:, :count], state)
    return state, mel[..., 30:50], noise[:, count : count + 20 * SIZE]


def test_a_row_in_a_batch_equals_the_row_alone() -> None:
    vocoder = make_vocoder()
    rows = [started(vocoder, seed) for seed in range(3)]
    alone = [vocoder.step(mel, noise, state)[0] for state, mel, noise in rows]
    states, mels, noises = zip(*rows, strict=True)
    together, _ = vocoder.step(torch.cat(mels), torch.cat(noises), join_states(states))
    assert torch.allclose(together, torch.cat(alone), atol=2e-5)


def test_a_state_stored_in_a_pool_continues_and_keeps_its_size() -> None:
    vocoder = make_vocoder()
    state, mel, noise = started(vocoder, 0)
    pool = join_states([started(vocoder, seed)[0] for seed in (5, 6, 7)])
    scatter(pool, [1], state)
    expected, later = vocoder.step(mel, noise, state)
    samples, _ = vocoder.step(mel, noise, gather(pool, [1]))
    assert torch.equal(samples, expected)
    assert [tensor.shape for tensor in tensors(later)] == [tensor.shape for tensor in tensors(state)]


def test_a_first_chunk_within_the_lookahead_is_refused() -> None:
    vocoder, (mel, noise) = make_vocoder(), random_inputs()
    with pytest.raises(ValueError, match="first chunk has 4 frames; allowed: more than 4"):
        vocoder.step(mel[..., :4], noise[:, :SIZE], vocoder.init_state(1))


def test_the_noise_begins_with_the_first_row_of_upstreams_table() -> None:
    first = NoiseTable(9).open_reader().read(1)[0, 0, :3]
    assert first.tolist() == pytest.approx([0.92282599, 0.47744751, 0.82705182], abs=1e-8)


def test_the_noise_is_the_same_for_any_split_and_every_session() -> None:
    table = NoiseTable(WAVES, skipped_draws=100)
    whole = table.open_reader().read(1000)
    reader = table.open_reader()
    assert torch.equal(torch.cat([reader.read(count) for count in (1, 7, 480, 512)], 1), whole)


def test_the_network_has_the_keys_and_shapes_of_the_released_checkpoint() -> None:
    manifest = json.loads((DATA / "manifest_cosyvoice3_0.5b.json").read_text("utf-8"))
    with torch.device("meta"):
        vocoder = HiftV3(HiftConfig())
    built = {key: list(tensor.shape) for key, tensor in vocoder.state_dict().items()}
    assert built == {key: shape for key, (shape, _) in manifest["hift.pt"]["tensors"].items()}
