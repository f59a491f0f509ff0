"""Discriminators and losses of the vocoder against upstream's classes, at a sixteenth of their channels."""

import zlib
from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

from golden.reference.comparison import Arrays, read_arrays  # noqa: E402
from golden.reference.golden_config import read_rule  # noqa: E402
from golden.reference.rule_weights import rule_weight  # noqa: E402
from golden.training.vectors import DATA, stored_places  # noqa: E402
from vivavoce.models.cosyvoice.training.vocoder.discriminators import (  # noqa: E402
    Discriminators,
    DiscriminatorWidths,
)
from vivavoce.models.cosyvoice.training.vocoder.losses import (  # noqa: E402
    adversarial_loss,
    discriminator_loss,
    layer_distance,
    mel_distance,
    tpr_loss,
    vocoder_loss,
)

WIDTHS = DiscriminatorWidths((4, 8, 32, 64, 64), 4)
_LAST_LAYERS = {"conv_post.parametrizations.weight.original0": 30, "out.parametrizations.weight.original0": 5}


@dataclass(frozen=True, slots=True)
class VocoderCase:
    """Upstream's numbers, and what they are of: two rows of noise as speech."""

    arrays: Arrays
    discriminators: Discriminators
    recorded: Tensor
    rendered: Tensor
    measured: Tensor
    predicted: Tensor


@pytest.fixture
def case() -> VocoderCase:
    discriminators, rule = Discriminators(WIDTHS), read_rule(DATA)
    with torch.no_grad():
        for key, parameter in discriminators.named_parameters():
            weight = rule_weight(key, parameter.shape, rule)
            factor = next((one for end, one in _LAST_LAYERS.items() if key.endswith(end)), 1)
            parameter.copy_(torch.from_numpy(weight * np.float32(factor)))
    speech = [_drawn(name, (2, 5760), 0.1) for name in ("recorded", "rendered")]
    pitch = [_drawn(name, (2, 12), 100).abs() for name in ("measured", "predicted")]
    speech[1].requires_grad_()
    pitch[1].requires_grad_()
    return VocoderCase(read_arrays(DATA, "vocoder"), discriminators, *speech, *pitch)


def _drawn(name: str, shape: tuple[int, int], scale: float) -> Tensor:
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    return torch.from_numpy((generator.standard_normal(shape) * scale).astype(np.float32))


def test_scores_and_layers_are_those_of_upstream(case: VocoderCase) -> None:
    for place, judgement in enumerate(case.discriminators(case.recorded)):
        torch.testing.assert_close(
            stored_places(judgement.scores), case.arrays[f"scores/{place}"], rtol=1e-4, atol=1e-5
        )
        levels = torch.stack([layer.detach().abs().mean() for layer in judgement.layers])
        torch.testing.assert_close(levels, case.arrays[f"layers/{place}"], rtol=1e-4, atol=0)


def test_the_discriminators_loss_and_gradients_are_those_of_upstream(case: VocoderCase) -> None:
    recorded = case.discriminators(case.recorded)
    rendered = case.discriminators(case.rendered.detach())
    loss = discriminator_loss(recorded, rendered)
    torch.testing.assert_close(loss.detach(), case.arrays["discriminator/loss"], rtol=1e-5, atol=0)
    tpr = case.arrays["discriminator/loss_tpr"]
    torch.testing.assert_close(tpr_loss(recorded, rendered).detach(), tpr, rtol=1e-4, atol=0)
    assert 0.04 < float(tpr) < 8 * 0.04  # some discriminators are at the bound
    loss.backward()
    named = list(case.discriminators.named_parameters())
    found = {key: parameter.grad for key, parameter in named if parameter.grad is not None}
    assert len(found) == len(named)
    norm = torch.stack([gradient.norm() for gradient in found.values()]).norm()
    torch.testing.assert_close(norm, case.arrays["grad_norm"], rtol=1e-4, atol=0)
    for key, gradient in found.items():
        wanted = case.arrays[f"grad/{key}"]
        scale = float(wanted.abs().max())
        torch.testing.assert_close(stored_places(gradient), wanted, rtol=0, atol=1e-3 * scale + 1e-6)


def test_the_vocoders_loss_and_gradients_are_those_of_upstream(case: VocoderCase) -> None:
    recorded, rendered = case.discriminators(case.recorded), case.discriminators(case.rendered)
    mel = mel_distance(case.rendered, case.recorded)
    pitch = F.l1_loss(case.predicted, case.measured)
    loss = vocoder_loss(adversarial_loss(recorded, rendered), mel, pitch)
    parts = {
        "mel": mel,
        "f0": pitch,
        "fm": layer_distance(recorded, rendered),
        "tpr": tpr_loss(rendered, recorded),
    }
    for name, part in parts.items():
        stated = case.arrays[f"generator/loss_{name}"]
        torch.testing.assert_close(part.detach(), stated, rtol=1e-4, atol=0)
    torch.testing.assert_close(loss.detach(), case.arrays["generator/loss"], rtol=1e-5, atol=0)
    loss.backward()
    assert case.rendered.grad is not None and case.predicted.grad is not None
    gradient = case.rendered.grad
    torch.testing.assert_close(gradient.norm(), case.arrays["grad_rendered_norm"], rtol=1e-4, atol=0)
    wanted = case.arrays["grad_rendered"]
    atol = 1e-3 * float(wanted.abs().max())
    torch.testing.assert_close(stored_places(gradient), wanted, rtol=0, atol=atol)
    torch.testing.assert_close(case.predicted.grad, case.arrays["grad_predicted"], rtol=1e-5, atol=1e-9)
