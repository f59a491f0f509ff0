"""The vocoder in training: its turns, its crops, its passes with gradients, and measured pitch."""

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")

from shared.training.made_up_dataset import (  # noqa: E402
    ABOUT,
    made_up_utterance,
    random_part,
    write_dataset,
)
from shared.training.short_run import SETTINGS, train  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import tiny_config  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.training.dataset import DatasetWriter, TrainingDataset  # noqa: E402
from vivavoce.models.cosyvoice.training.draws import DrawSeed  # noqa: E402
from vivavoce.models.cosyvoice.training.networks import fold_weights  # noqa: E402
from vivavoce.models.cosyvoice.training.vocoder import losses  # noqa: E402
from vivavoce.models.cosyvoice.training.vocoder.pitch import estimate_pitch  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402
from vivavoce.models.networks.weight_norm import WeightNormConv  # noqa: E402

VERSIONS = pytest.mark.parametrize("version", CosyVoiceVersion)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> TrainingDataset:
    return write_dataset(tmp_path_factory.mktemp("dataset"), 8)


@pytest.fixture
def in_float64() -> Iterator[None]:
    """Windows of spectra that are made in a pass have this type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@VERSIONS
def test_the_whole_mel_with_gradients_is_what_a_server_renders(version: CosyVoiceVersion) -> None:
    part = random_part("vocoder", version)
    config = tiny_config(version).hift
    serving = HiftV2(config) if version is CosyVoiceVersion.V2 else HiftV3(config)
    load_weights(serving, part.weight_tensors(dict(part.network.state_dict())))
    torch.manual_seed(0)
    mel, noise = torch.randn(2, 80, 12) - 4, torch.randn(2, 12 * 480, config.sine_count)
    vocoder = part.network.get_submodule("vocoder")
    fold_weights(vocoder)
    samples, pitch = vocoder.render_whole(mel, noise)  # type: ignore[operator]
    wanted = serving.finish(mel, noise, serving.init_state(2))
    assert float((samples - wanted).detach().norm() / wanted.norm()) < 1e-4
    (samples.square().mean() + pitch.mean()).backward()
    assert all(parameter.grad is not None for parameter in vocoder.parameters())


def test_each_turn_trains_its_own_network(dataset: TrainingDataset) -> None:
    part = random_part("vocoder")
    discriminators, vocoder = part.turns
    for turn in (discriminators, vocoder):
        part.network.zero_grad()
        turn.loss(dataset, [0, 1], DrawSeed(1), 0).mean.backward()
        trained = {
            name.partition(".")[0]
            for name, parameter in part.network.named_parameters()
            if parameter.grad is not None
        }
        assert trained == {turn.trains.rstrip(".")}


def test_gradients_of_both_turns_agree_with_finite_differences(
    dataset: TrainingDataset, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In float64. Not of the pitch predictor, which the source does not train though it follows it."""
    part, filters = random_part("vocoder"), losses._filters().double()
    request.getfixturevalue("in_float64")  # from here on: weights are made in float32
    part.network.double()
    for layer in part.network.modules():
        if isinstance(layer, WeightNormConv):
            layer.dtype = torch.float64
    batch = part._batch(dataset, [0, 1], DrawSeed(1))  # type: ignore[attr-defined]
    exact = type(batch)(*(getattr(batch, field.name).double() for field in fields(batch)))
    monkeypatch.setattr(part, "_batch", lambda *draws: exact)
    monkeypatch.setattr(losses, "_filters", lambda: filters)
    for turn in part.turns:
        part.network.zero_grad()
        turn.loss(dataset, [0, 1], DrawSeed(1), 0).mean.backward()
        named = [(name, one) for name, one in part.network.named_parameters() if one.grad is not None]
        trained = [(name, one) for name, one in named if "f0_predictor" not in name]
        for name, parameter in trained[:: len(trained) // 3]:
            gradient, noise = parameter.grad, torch.randn_like(parameter)
            direction = gradient / gradient.norm() + noise / noise.norm()
            found = []
            for step in (1e-6, -2e-6):
                with torch.no_grad():
                    parameter.add_(direction, alpha=step)
                    found.append(float(turn.loss(dataset, [0, 1], DrawSeed(1), 0).mean))
            with torch.no_grad():
                parameter.add_(direction, alpha=1e-6)
            stated = float((gradient * direction).sum())
            assert (found[0] - found[1]) / 2e-6 == pytest.approx(stated, rel=1e-3, abs=1e-6), name


def test_both_networks_step_and_a_resumed_run_has_the_same_losses(
    dataset: TrainingDataset, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, learning_rate=2e-4, max_frames=26, checkpoint_steps=2, max_steps=4)
    part = random_part("vocoder")
    before = {name: one.detach().clone() for name, one in part.network.named_parameters()}
    whole = train("vocoder", dataset, tmp_path / "whole", settings, part=part)
    changed = [not torch.equal(one, before[name]) for name, one in part.network.named_parameters()]
    assert all(changed)
    train("vocoder", dataset, tmp_path / "halves", replace(settings, max_steps=2))
    rest = train("vocoder", dataset, tmp_path / "halves", settings)
    assert [step.loss for step in rest] == [step.loss for step in whole[2:]]


def test_an_utterance_shorter_than_a_crop_is_followed_by_silence(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path, ABOUT)
    writer.add(made_up_utterance(0, ids=4))
    writer.flush()
    batch = random_part("vocoder")._batch(TrainingDataset(tmp_path), [0], DrawSeed(1))  # type: ignore[attr-defined]
    assert batch.mel.shape == (1, 80, 12) and batch.samples.shape == (1, 12 * 480)
    assert torch.equal(batch.mel[0, :, 8:], torch.full((80, 4), math.log(1e-5)))
    assert batch.samples[0, : 8 * 480].any() and not batch.samples[0, 8 * 480 :].any()


def test_validation_is_the_same_whatever_the_step(dataset: TrainingDataset) -> None:
    part = random_part("vocoder")
    part.network.eval()
    with torch.no_grad():
        losses = [float(part.loss(dataset, [1], DrawSeed(1), step).mean) for step in (0, 5)]
    assert losses[0] == losses[1] > 0


def test_measured_pitch_is_that_of_a_glide_and_0_in_noise() -> None:
    time = np.arange(48_000) / 24_000
    hz = 140 + 60 * np.sin(2 * np.pi * 0.7 * time)
    turns = np.cumsum(hz) / 24_000
    voice = sum(np.sin(2 * np.pi * n * turns) / n for n in range(1, 20)) * 0.1
    draw = np.random.default_rng(0)
    voice += 0.003 * draw.standard_normal(len(voice))
    voice[19_200:28_800] = 0.02 * draw.standard_normal(9_600)  # frames 40 to 59
    found, wanted = estimate_pitch(voice), hz[240::480]
    voiced = np.r_[2:38, 62:98]
    assert np.abs(found[voiced] / wanted[voiced] - 1).max() < 0.03
    assert not found[42:58].any() and len(found) == 100
    assert not estimate_pitch(np.zeros(9_600)).any() and len(estimate_pitch(np.zeros(10))) == 0
