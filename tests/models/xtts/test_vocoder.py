"""The streamed vocoder: the samples of the whole utterance, for any split, at any place of a batch."""

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vivavoce.models.networks.state import gather, join_states
from vivavoce.models.xtts.config import VOCODER_HOP
from vivavoce.models.xtts.latent_resampler import LatentResampler
from vivavoce.models.xtts.networks import XttsNetworks
from vivavoce.models.xtts.vocoder import XttsVocoder, XttsVocoderState

TOLERANCE = 1e-4
FRAMES = 40
WIDTH = 64


@pytest.fixture(scope="module")
def vocoder(networks: XttsNetworks) -> XttsVocoder:
    return networks.vocoder


def frames(rows: int = 1, count: int = FRAMES) -> Tensor:
    return torch.randn(rows, WIDTH, count, generator=torch.Generator().manual_seed(1))


def speakers(rows: int = 1) -> Tensor:
    return torch.nn.functional.normalize(
        torch.randn(rows, 512, generator=torch.Generator().manual_seed(2)), dim=1
    )


def whole(vocoder: XttsVocoder, z: Tensor, speaker: Tensor) -> list[Tensor]:
    return vocoder.finish(z, vocoder.init_state(speaker))


def feed(vocoder: XttsVocoder, z: Tensor, state: XttsVocoderState) -> tuple[Tensor, XttsVocoderState]:
    """The samples of one row that belong to the utterance, and the next state."""
    samples, following = vocoder.step(z, state)
    return samples[0, vocoder.utterance_part(state, 0, samples.shape[1])], following


@settings(max_examples=15)
@given(sizes=st.lists(st.integers(1, 9), max_size=6))
def test_any_split_gives_the_samples_of_the_whole(vocoder: XttsVocoder, sizes: list[int]) -> None:
    z, speaker = frames(), speakers()
    state, start, pieces = vocoder.init_state(speaker), 0, []
    for size in sizes:
        if start + size > FRAMES:
            break
        samples, state = feed(vocoder, z[:, :, start : start + size], state)
        pieces.append(samples)
        start += size
    pieces += vocoder.finish(z[:, :, start:], state)
    streamed = torch.cat(pieces)
    assert len(streamed) == FRAMES * VOCODER_HOP
    assert torch.allclose(streamed, whole(vocoder, z, speaker)[0], atol=TOLERANCE)


def test_a_prefix_is_final_but_for_the_delay(vocoder: XttsVocoder) -> None:
    z, speaker = frames(), speakers()
    samples, _ = feed(vocoder, z[:, :, :30], vocoder.init_state(speaker))
    assert len(samples) == 30 * VOCODER_HOP - vocoder.delay_samples
    assert torch.allclose(samples, whole(vocoder, z, speaker)[0][: len(samples)], atol=TOLERANCE)


def test_an_utterance_shorter_than_the_delay_is_whole(vocoder: XttsVocoder) -> None:
    z, speaker = frames(count=2), speakers()
    first, state = feed(vocoder, z[:, :, :1], vocoder.init_state(speaker))
    (rest,) = vocoder.finish(z[:, :, 1:], state)
    assert len(first) == 0
    assert torch.allclose(rest, whole(vocoder, z, speaker)[0], atol=TOLERANCE)


def test_rows_at_other_places_do_not_change_a_row(vocoder: XttsVocoder) -> None:
    z, speaker = frames(3), speakers(3)
    begun, states = [], []
    for row, fed in enumerate((0, 5, 20)):
        state = vocoder.init_state(speaker[row : row + 1])
        if fed:
            samples, state = feed(vocoder, z[row : row + 1, :, :fed], state)
            begun.append(samples)
        states.append(state)
    together = gather(join_states(states), [2, 0, 1])
    following = torch.stack([z[2, :, 20:30], z[0, :, :10], z[1, :, 5:15]])
    rest = vocoder.finish(following, together)
    alone = whole(vocoder, z[2:, :, :30], speaker[2:])[0]
    assert torch.allclose(torch.cat([begun[1], rest[0]]), alone, atol=TOLERANCE)
    alone = whole(vocoder, z[:1, :, :10], speaker[:1])[0]
    assert torch.allclose(rest[1], alone, atol=TOLERANCE)


def test_the_cost_of_a_step_does_not_grow(vocoder: XttsVocoder) -> None:
    state = vocoder.init_state(speakers())
    sizes = set()
    for _ in range(4):
        _, state = vocoder.step(frames(count=7), state)
        sizes.add(sum(context.numel() for context in state.contexts))
    assert len(sizes) == 1


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(0, 9), max_size=6), speed=st.sampled_from([0.5, 0.8, 1.0, 1.37, 2.0]))
def test_frames_do_not_depend_on_the_split_of_latents(sizes: list[int], speed: float) -> None:
    latents = torch.randn(sum(sizes) + 3, 4, generator=torch.Generator().manual_seed(3))
    resampler, start, pieces = LatentResampler(speed), 0, []
    for size in sizes:
        pieces.append(resampler.push(latents[start : start + size]))
        start += size
    pieces.append(resampler.finish(latents[start:]))
    assert torch.equal(torch.cat(pieces), LatentResampler(speed).finish(latents))


def test_columns_before_the_utterance_are_not_computed(vocoder: XttsVocoder) -> None:
    widths: list[int] = []
    hook = vocoder.conv_post.register_forward_hook(
        lambda _module, inputs, _y: widths.append(len(inputs[0][0, 0]))
    )
    state = vocoder.init_state(speakers(2))
    for _ in range(2):
        samples, state = vocoder.step(frames(2, count=30), state)
        assert samples.shape == (2, 30 * VOCODER_HOP)
    hook.remove()
    before = vocoder.delay_samples - 3  # the last convolution adds 3
    assert widths == [30 * VOCODER_HOP + 6 - before, 30 * VOCODER_HOP + 6]
