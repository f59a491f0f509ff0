"""The v2 vocoder in steps: one source for any split, equal-gain fades, rows in a batch."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference import upstream_vocoder  # noqa: E402
from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from golden.reference.upstream_vocoder import interpolated_phase_sines, render_whole  # noqa: E402
from golden.reference.vocoder import load_vocoder_v2  # noqa: E402
from shared.engine.session_states import scatter  # noqa: E402
from vivavoce.models.cosyvoice.config import HiftConfig  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v2 import (  # noqa: E402
    HiftV2,
    HiftV2Policy,
    HiftV2State,
    continued_phase_sines,
    cross_fade,
    equal_gain_weights,
)
from vivavoce.models.networks.layers import load_weights  # noqa: E402
from vivavoce.models.networks.state import gather, join_states, tensors  # noqa: E402

DATA = Path(__file__).parents[3] / "golden" / "data"
CONFIG = HiftConfig(base_channels=16, f0_channels=12)
RULE = WeightRule(
    "", (("f0_predictor.classifier.weight", 150.0), ("conv_post.parametrizations.weight.original0", 0.1))
)
WAVES, SIZE, FRAMES = CONFIG.sine_count, CONFIG.samples_per_frame, 120
MAX_SEAM_DB = -60.0


def make_vocoder() -> HiftV2:
    vocoder = HiftV2(CONFIG)
    shapes = {key: tuple(tensor.shape) for key, tensor in vocoder.state_dict().items()}
    load_weights(vocoder, {key: torch.from_numpy(value) for key, value in rule_weights(shapes, RULE).items()})
    return vocoder


def random_inputs(seed: int = 0, frames: int = FRAMES) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mel = torch.randn(1, 80, frames, generator=generator)
    return mel, torch.randn(1, frames * SIZE, WAVES, generator=generator)


def render_in_steps(
    vocoder: HiftV2,
    mel: torch.Tensor,
    noise: torch.Tensor,
    edges: tuple[int, ...],
    state: HiftV2State,
    begin: int = 0,
) -> torch.Tensor:
    pieces = []
    for end in edges:
        samples, state = vocoder.step(mel[..., begin:end], noise[:, begin * SIZE : end * SIZE], state)
        pieces.append(samples)
        begin = end
    pieces.append(vocoder.finish(mel[..., begin:], noise[:, begin * SIZE :], state))
    return torch.cat(pieces, 1)


@pytest.mark.parametrize("edges", [(60,), (50, 100), (10, 20, 30, 40, 90), (3, 60, 119)])
def test_any_split_gives_the_samples_of_the_whole_mel(edges: tuple[int, ...]) -> None:
    vocoder, (mel, noise) = make_vocoder(), random_inputs()
    expected = vocoder.finish(mel, noise, vocoder.init_state(1))
    streamed = render_in_steps(vocoder, mel, noise, edges, vocoder.init_state(1))
    assert torch.allclose(streamed, expected, atol=2e-5)


def seam_db(streamed: torch.Tensor, whole: torch.Tensor, edge: int) -> float:
    """Deviation around the seam of a chunk that ends at mel frame ``edge``, relative to the signal there."""
    near = slice((edge - 24) * SIZE, (edge + 4) * SIZE)
    deviation, signal = (streamed - whole)[:, near], whole[:, near]
    return float(10 * torch.log10(deviation.square().mean() / signal.square().mean()))


@pytest.mark.parametrize("edges", [(44,), (44, 94), (50, 80)])
@pytest.mark.parametrize("network", ["rule weights", "golden"])
def test_seams_deviate_by_less_than_minus_60_db_from_the_whole_mel(
    edges: tuple[int, ...], network: str
) -> None:
    vocoder = make_vocoder() if network == "rule weights" else load_vocoder_v2(DATA)
    mel, _ = random_inputs()
    noise = torch.randn(1, FRAMES * SIZE, vocoder.config.sine_count)
    whole = vocoder.finish(mel, noise, vocoder.init_state(1))
    streamed = render_in_steps(vocoder, mel, noise, edges, vocoder.init_state(1))
    assert max(seam_db(streamed, whole, edge) for edge in edges) < MAX_SEAM_DB


def test_a_seam_deviates_less_from_the_whole_mel_than_upstreams() -> None:
    vocoder, (mel, noise) = make_vocoder(), random_inputs()
    streamed = render_in_steps(vocoder, mel, noise, (60,), vocoder.init_state(1))
    samples, cache = upstream_vocoder.step(
        vocoder, mel[..., :60], noise[:, : 60 * SIZE], upstream_vocoder.init_state(vocoder, 1)
    )
    last = upstream_vocoder.finish(vocoder, mel[..., 60:], noise[:, 52 * SIZE :], cache)
    upstream = torch.cat([samples, last], 1)
    whole = render_whole(vocoder, mel, noise)[1]
    assert upstream.shape == whole.shape
    distance = [float((wave - whole)[:, 50 * SIZE :].square().mean()) for wave in (streamed, upstream)]
    assert distance[0] < 0.1 * distance[1]


def test_the_carried_phase_gives_the_samples_of_upstreams_phase_over_a_whole_mel() -> None:
    vocoder, (mel, noise) = make_vocoder(), random_inputs()
    carried = vocoder.finish(mel, noise, vocoder.init_state(1))
    assert torch.allclose(carried, render_whole(vocoder, mel, noise)[1], atol=2e-3)


def test_the_source_is_the_same_for_any_split() -> None:
    f0 = 100 + 50 * torch.rand(1, 40, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(1, WAVES, dtype=torch.float64)
    whole, phases = continued_phase_sines(f0, zero, CONFIG, beginning=True)
    # The first part includes the frame after the cut, because its last half frame depends on it.
    first, _ = continued_phase_sines(f0[:, :21], zero, CONFIG, beginning=True)
    second, _ = continued_phase_sines(f0[:, 20:], phases[:, 20], CONFIG, beginning=False)
    joined = torch.cat([first[:, : 20 * SIZE], second], 1)
    assert torch.allclose(joined, whole, atol=1e-5)


def test_the_source_is_upstreams_except_for_rounding() -> None:
    f0 = 100 + 50 * torch.rand(1, 40, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(1, WAVES, dtype=torch.float64)
    assert torch.allclose(
        continued_phase_sines(f0, zero, CONFIG, beginning=True)[0],
        interpolated_phase_sines(f0, CONFIG),
        atol=5e-3,
    )


def test_a_row_in_a_batch_equals_the_row_alone() -> None:
    vocoder = make_vocoder()
    rows = [random_inputs(seed) for seed in range(3)]
    alone, states = [], []
    for mel, noise in rows:
        _, state = vocoder.step(mel[..., :60], noise[:, : 60 * SIZE], vocoder.init_state(1))
        states.append(state)
        alone.append(vocoder.step(mel[..., 60:90], noise[:, 60 * SIZE : 90 * SIZE], state)[0])
    mel = torch.cat([mel[..., 60:90] for mel, _ in rows])
    noise = torch.cat([noise[:, 60 * SIZE : 90 * SIZE] for _, noise in rows])
    together, _ = vocoder.step(mel, noise, join_states(states))
    assert torch.allclose(together, torch.cat(alone), atol=2e-5)


def test_a_state_stored_in_a_pool_continues_and_keeps_its_size() -> None:
    vocoder = make_vocoder()
    (mel, noise), (other_mel, other_noise) = random_inputs(), random_inputs(1)
    _, pool = vocoder.step(
        other_mel[..., :60].expand(4, -1, -1),
        other_noise[:, : 60 * SIZE].expand(4, -1, -1),
        vocoder.init_state(4),
    )
    _, state = vocoder.step(mel[..., :60], noise[:, : 60 * SIZE], vocoder.init_state(1))
    scatter(pool, [2], state)
    row = gather(pool, [2])
    _, later = vocoder.step(mel[..., 60:90], noise[:, 60 * SIZE : 90 * SIZE], row)
    assert [tensor.shape for tensor in tensors(later)] == [tensor.shape for tensor in tensors(state)]
    rest = render_in_steps(vocoder, mel, noise, (90,), gather(pool, [2]), begin=60)
    whole = vocoder.finish(mel, noise, vocoder.init_state(1))
    assert torch.allclose(rest, whole[:, (60 - vocoder.policy.overlap_frames) * SIZE :], atol=2e-5)


def test_the_fade_weights_add_up_to_one_and_upstreams_to_1_08() -> None:
    rise, fall = equal_gain_weights(3840, torch.device("cpu"))
    assert torch.allclose(rise + fall, torch.ones(3840), atol=1e-6)
    steady = torch.full((1, 5000), 0.5)
    assert torch.allclose(cross_fade(steady[:, :3840], steady, (rise, fall)), steady, atol=1e-6)
    hamming = torch.hamming_window(7680, periodic=False)
    assert float((hamming[:3840] + hamming[3840:]).mean()) == pytest.approx(1.08, abs=1e-3)


def test_a_fade_longer_than_the_overlap_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fade_frames is 9; allowed: 0\.\.8"):
        HiftV2Policy(overlap_frames=8, fade_frames=9)


def test_the_network_has_the_keys_and_shapes_of_the_released_checkpoint() -> None:
    manifest = json.loads((DATA / "manifest_cosyvoice2_0.5b.json").read_text("utf-8"))
    with torch.device("meta"):
        vocoder = HiftV2(HiftConfig())
    built = {key: list(tensor.shape) for key, tensor in vocoder.state_dict().items()}
    assert built == {key: shape for key, (shape, _) in manifest["hift.pt"]["tensors"].items()}
