"""The networks that the vocoder is trained against: they tell recorded speech from rendered speech.

    PeriodDiscriminator     samples folded to rows of 2, 3, 5, 7 or 11: what repeats
    SpectrumDiscriminator   magnitudes at one of three resolutions: how it sounds

A judgement is a score for each place, near 1 for recorded speech, and the outputs of all layers, which
recorded and rendered speech should share. No bundle has them; they begin with random weights.

Source: jik876/hifi-gan models.py (as matcha/hifigan/models.py@dd9105b), FunAudioLLM/CosyVoice@ace7c47
hifigan/discriminator.py (MultiResSpecDiscriminator).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ..flow_loss import in_full_precision

PERIODS = (2, 3, 5, 7, 11)
RESOLUTIONS = ((1024, 120, 600), (2048, 240, 1200), (512, 50, 240))  # transform, hop, window
_SLOPE = 0.1


@dataclass(frozen=True, slots=True)
class DiscriminatorWidths:
    """Channels of the layers."""

    period: tuple[int, ...] = (32, 128, 512, 1024, 1024)
    spectrum: int = 32


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one discriminator on a batch."""

    scores: Tensor  # (B, places)
    layers: tuple[Tensor, ...]  # outputs of all layers, the scores last


class PeriodDiscriminator(nn.Module):
    """Judges every ``period``-th sample, at each offset."""

    def __init__(self, period: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.period = period
        strides = [3] * (len(widths) - 1) + [1]
        self.convs = nn.ModuleList(
            [
                _conv(before, width, (5, 1), (stride, 1))
                for before, width, stride in zip((1, *widths), widths, strides, strict=False)
            ]
        )
        self.conv_post = _conv(widths[-1], 1, (3, 1))

    def forward(self, samples: Tensor) -> Judgement:
        """samples: (B, N)."""
        padded = F.pad(samples[:, None], (0, -samples.shape[1] % self.period), mode="reflect")
        folded = padded.view(len(samples), 1, -1, self.period)
        return _judge(folded, self.convs, self.conv_post)


class SpectrumDiscriminator(nn.Module):
    """Judges magnitudes of short spectra."""

    def __init__(self, transform: int, hop: int, window: int, width: int) -> None:
        super().__init__()
        self._sizes = (transform, hop, window)
        shapes = (((3, 9), 1), ((3, 9), 2), ((3, 9), 2), ((3, 9), 2), ((3, 3), 1))
        self.discriminators = nn.ModuleList(
            [
                _conv(width if place else 1, width, kernel, (1, stride))
                for place, (kernel, stride) in enumerate(shapes)
            ]
        )
        self.out = _conv(width, 1, (3, 3))

    def forward(self, samples: Tensor) -> Judgement:
        """samples: (B, N)."""
        transform, hop, window = self._sizes
        shape = torch.hann_window(window, device=samples.device)
        spectrum = torch.stft(samples, transform, hop, window, shape, return_complex=True)
        return _judge(spectrum.abs().mT[:, None], self.discriminators, self.out)


class Discriminators(nn.Module):
    """All discriminators. Attribute names are upstream's."""

    def __init__(self, widths: DiscriminatorWidths | None = None) -> None:
        super().__init__()
        widths = widths or DiscriminatorWidths()
        self.mpd = nn.ModuleList([PeriodDiscriminator(period, widths.period) for period in PERIODS])
        self.mrd = nn.ModuleList([SpectrumDiscriminator(*sizes, widths.spectrum) for sizes in RESOLUTIONS])

    def forward(self, samples: Tensor) -> list[Judgement]:
        """samples: (B, N), at least 1025 of them. A judgement of each discriminator."""
        return [judge(in_full_precision(samples)) for judge in (*self.mpd, *self.mrd)]


def _conv(inputs: int, outputs: int, kernel: tuple[int, int], stride: tuple[int, int] = (1, 1)) -> nn.Module:
    padding = (kernel[0] // 2, kernel[1] // 2)
    return weight_norm(nn.Conv2d(inputs, outputs, kernel, stride, padding))  # type: ignore[no-any-return]


def _judge(x: Tensor, convs: nn.ModuleList, last: nn.Module) -> Judgement:
    layers = []
    for conv in convs:
        x = F.leaky_relu(conv(x), _SLOPE)
        layers.append(x)
    scores = last(x)
    return Judgement(scores.flatten(1), (*layers, scores))
