"""The losses of the vocoder and of its discriminators, which take turns.

    discriminators   (1 - D(recorded))^2 + D(rendered)^2, and TPR
    vocoder          (1 - D(rendered))^2, distance of the discriminators' layers, distance of mels, TPR,
                     distance of the pitch in Hz

TPR (truncated pointwise relativistic) counts places that are scored less ahead than the median: of recorded
speech before rendered speech for the discriminators, of rendered before recorded speech for the vocoder.
Each loss is a mean over the batch.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/hifigan.py, utils/losses.py:6-11 (TPR);
matcha/hifigan/models.py@dd9105b (least squares, distance of layers).
"""

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ...config import MEL_BANDS, SAMPLE_RATE
from ...front_end.features import MEL_HOP, MEL_WINDOW, slaney_filters
from .discriminators import Judgement

_MEL_WEIGHT, _LAYERS_WEIGHT, _TPR_BOUND = 45.0, 2.0, 0.04
_MEL_FLOOR = 1e-5


def discriminator_loss(recorded: Sequence[Judgement], rendered: Sequence[Judgement]) -> Tensor:
    """The loss of the discriminators, ()."""
    squares = [
        (1 - real.scores).square().mean() + made.scores.square().mean()
        for real, made in zip(recorded, rendered, strict=True)
    ]
    return torch.stack(squares).sum() + tpr_loss(recorded, rendered)


def adversarial_loss(recorded: Sequence[Judgement], rendered: Sequence[Judgement]) -> Tensor:
    """What the vocoder is to make small of the discriminators' judgement, ()."""
    squares = torch.stack([(1 - made.scores).square().mean() for made in rendered]).sum()
    return squares + _LAYERS_WEIGHT * layer_distance(recorded, rendered) + tpr_loss(rendered, recorded)


def vocoder_loss(adversarial: Tensor, mel: Tensor, pitch: Tensor) -> Tensor:
    """The loss of the vocoder, () of its parts; pitch: mean distance in Hz."""
    return adversarial + _MEL_WEIGHT * mel + pitch


def layer_distance(recorded: Sequence[Judgement], rendered: Sequence[Judgement]) -> Tensor:
    """Twice the sum of mean distances of all layers' outputs, ()."""
    distances = [
        F.l1_loss(made_layer, real_layer)
        for real, made in zip(recorded, rendered, strict=True)
        for real_layer, made_layer in zip(real.layers, made.layers, strict=True)
    ]
    return 2 * torch.stack(distances).sum()


def tpr_loss(ahead: Sequence[Judgement], behind: Sequence[Judgement]) -> Tensor:
    """Truncated pointwise relativistic loss, (), of judgements that are to be ahead of others."""
    total = ahead[0].scores.new_zeros(())
    for one, other in zip(ahead, behind, strict=True):
        lead = one.scores - other.scores
        beyond = lead - lead.median()
        short = beyond[beyond < 0]
        if short.numel():  # else all leads are equal
            total = total + short.square().mean().clamp(max=_TPR_BOUND)
    return total


def mel_distance(rendered: Tensor, recorded: Tensor) -> Tensor:
    """Mean distance of the log mels of samples, (B, N) each, up to half the rate: ()."""
    return F.l1_loss(_log_mel(rendered), _log_mel(recorded))


def _log_mel(samples: Tensor) -> Tensor:
    """As ``features.mel_spectrogram``, with a gradient: (B, N) -> (B, 80, N // 480)."""
    edge = (MEL_WINDOW - MEL_HOP) // 2
    padded = F.pad(samples[:, None], (edge, edge), mode="reflect")[:, 0]
    window = torch.hann_window(MEL_WINDOW, device=samples.device)
    spectrum = torch.stft(padded, MEL_WINDOW, MEL_HOP, window=window, center=False, return_complex=True)
    magnitude = (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()
    return (_filters().to(samples.device) @ magnitude).clamp(min=_MEL_FLOOR).log()


@cache
def _filters() -> Tensor:
    filters = slaney_filters(SAMPLE_RATE, MEL_WINDOW, MEL_BANDS, SAMPLE_RATE / 2)
    return torch.from_numpy(filters).float()
