"""Trains the vocoder: mel to samples, by spectra at several resolutions, without discriminators.

One voice and a known pitch need none: the source has the harmonics, and the network shapes them. The pitch
predictor learns the teacher's f0; the rest is trained with the turns of the teacher's own pulse train, so
that both learn at once. The samples follow the source from the first step on: a network that has to find the
harmonics by itself whispers for hours.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from small_voice.optimise import Losses
from small_voice.teacher import Recording
from vivavoce.models.cosyvoice.config import SAMPLE_RATE, HiftConfig
from vivavoce.models.cosyvoice.front_end.features import MEL_HOP
from vivavoce.models.cosyvoice.training.networks import fold_weights
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2, continued_phase_sines
from vivavoce.models.networks.weight_norm import WeightNorm

CONFIG = HiftConfig(
    base_channels=96,
    f0_channels=64,
    kernels=(3, 7),
    dilations=((1, 3), (1, 3)),
    source_kernels=(7, 7, 7),
    source_dilations=((1, 3), (1, 3), (1, 3)),
)
_CROP, _EDGE = 32, 4  # mel frames of a crop, and at its ends without a loss
_ROWS = 10
_RESOLUTIONS = ((256, 60), (512, 120), (1024, 240), (2048, 480))  # window, hop
_FLOOR = 1e-4  # of a magnitude, under its logarithm
_PASSED = 0.15  # of the source, a channel of the last stage
_HZ = 100.0  # of the pitch, that count as one


def new_network(seed: int) -> HiftV2:
    """A vocoder with first weights, to be trained."""
    torch.manual_seed(seed)
    network = HiftV2(CONFIG)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            gain = 1.0 if "f0_predictor" in name else 0.5  # many of the others are added up
            nn.init.normal_(parameter, std=gain / math.sqrt(parameter[0].numel()))
        else:
            nn.init.constant_(parameter, 1.0 if name.endswith("alpha") else 0.0)
    for part in network.modules():
        if isinstance(part, WeightNorm):
            directions = part.original1.detach()
            part.original0.data = directions.flatten(1).norm(dim=1).view_as(part.original0)
    # Else the source is so faint that the network learns to whisper without it.
    network.m_source.l_linear.weight.data[:] = 2.0
    # Faint at first, and a pitch as of the voice.
    network.conv_post.get_parameter("parametrizations.weight.original0").data *= 0.2
    network.conv_post.bias.data[: CONFIG.n_fft // 2 + 1] = -4.0
    network.f0_predictor.classifier.bias.data[:] = 150.0
    network.f0_predictor.classifier.weight.data *= _HZ  # else it would take all steps to grow to Hz
    _pass_source(network)
    for layer in network.f0_predictor.convs():
        layer.bias = nn.Parameter(layer.bias.detach().double())
    network.spectra.prepare()
    return network


def _pass_source(network: HiftV2) -> None:
    """Have the samples follow the source from the first step on, up to 1.5 kHz.

    Two channels of the last stage carry the source's low band and its negative, because the activation before
    the last layer keeps what is above 0. The magnitude of the lowest band rises with it and that of the next
    one falls: in the middle of a window, the two have opposite signs.
    """
    down = network.source_downs[-1].get_parameter("weight").data
    down[:2] = 0.0
    down[0, 0, 0], down[1, 0, 0] = _PASSED, -_PASSED
    magnitude = network.conv_post.get_parameter("parametrizations.weight.original0").data
    direction = network.conv_post.get_parameter("parametrizations.weight.original1").data
    weight = direction * magnitude / direction.flatten(1).norm(dim=1).view_as(magnitude)
    middle = weight.shape[2] // 2
    weight[:2, :2] = 0.0
    weight[0, 0, middle] = weight[1, 1, middle] = 1.0
    weight[0, 1, middle] = weight[1, 0, middle] = -1.0
    direction.copy_(weight)
    magnitude.copy_(weight.flatten(1).norm(dim=1).view_as(magnitude))


class VocoderTask:
    """The losses of a vocoder on crops of recordings.

    mels: (80, T) each; recordings: of the same T frames.
    """

    def __init__(
        self,
        network: HiftV2,
        mels: Sequence[NDArray[np.float16]],
        recordings: Sequence[Recording],
    ) -> None:
        self.network, self._mels, self._recordings = network, mels, recordings

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        """Of a batch: ``spectra`` and ``mel`` of the samples, ``pitch``."""
        mel, f0, turns, wave = self._crops(draw)
        fold_weights(self.network)
        predicted = self.network.f0_predictor(mel)
        source = self._source(f0, turns)
        made = self.network.decode(mel, source)
        inner = slice(_EDGE * MEL_HOP, -_EDGE * MEL_HOP)
        made, wave = made[:, inner], wave[:, inner]
        return {
            "spectra": spectral_loss(made, wave),
            "mel": 2 * (log_mel(made) - log_mel(wave)).abs().mean(),
            "pitch": F.smooth_l1_loss(predicted / _HZ, f0 / _HZ, beta=0.05),
        }

    def _source(self, f0: Tensor, turns: Tensor) -> Tensor:
        """The source that has those turns at the middles of the frames. f0: (B, T) Hz; turns: (B, 1 + T)."""
        rate = turns.diff(dim=1) * (SAMPLE_RATE / MEL_HOP)
        frequency = torch.where(f0 > 0, rate.float(), 0.0)
        multiples = torch.arange(1, CONFIG.sine_count + 1)
        phase = turns[:, :1] * multiples % 1
        sines, _ = continued_phase_sines(rate, phase, CONFIG, beginning=False)
        made: Tensor = self.network.m_source(sines, frequency, torch.randn(*sines.shape))
        return made

    def _crops(self, draw: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mels, f0, turns, waves = [], [], [], []
        for at in draw.integers(len(self._mels), size=_ROWS):
            recording = self._recordings[at]
            first = 1 + int(draw.integers(max(1, self._mels[at].shape[1] - _CROP)))
            span = slice(first, first + _CROP)
            mels.append(self._mels[at][:, span])
            f0.append(recording.f0[span])
            turns.append(recording.turns[first - 1 : first + _CROP])
            waves.append(recording.samples[first * MEL_HOP : (first + _CROP) * MEL_HOP])
        mel = torch.from_numpy(np.stack(mels)).float()
        wave = torch.from_numpy(np.stack(waves)).float() / 32768
        return mel, torch.from_numpy(np.stack(f0)), torch.from_numpy(np.stack(turns)), wave


def spectral_loss(made: Tensor, wave: Tensor) -> Tensor:
    """Distance of magnitudes, on average over resolutions: of logarithms, and relative to the whole."""
    total = made.new_zeros(())
    for window, hop in _RESOLUTIONS:
        ours, theirs = magnitudes(made, window, hop), magnitudes(wave, window, hop)
        total = total + (ours.clamp(min=_FLOOR).log() - theirs.clamp(min=_FLOOR).log()).abs().mean()
        total = total + (ours - theirs).norm() / theirs.norm().clamp(min=1e-2)
    return total / len(_RESOLUTIONS)


def magnitudes(wave: Tensor, window: int, hop: int) -> Tensor:
    """(B, N) -> (B, bins, frames)."""
    shape = torch.hann_window(window)
    spectrum = torch.stft(wave, window, hop, window=shape, return_complex=True, normalized=True)
    return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()


def log_mel(wave: Tensor) -> Tensor:
    """(B, N) -> (B, 100, frames): bands up to half the rate."""
    return (_bands() @ magnitudes(wave, 1024, 240)).clamp(min=_FLOOR).log()


@cache
def _bands() -> Tensor:
    """(100, 513): triangles, evenly spaced on the mel scale."""
    hz = np.linspace(0, SAMPLE_RATE / 2, 513)
    mel = 2595 * np.log10(1 + hz / 700)
    edges = np.linspace(0, mel[-1], 102)
    rising = (mel - edges[:-2, None]) / (edges[1] - edges[0])
    falling = (edges[2:, None] - mel) / (edges[1] - edges[0])
    triangles = np.maximum(0, np.minimum(rising, falling))
    return torch.from_numpy(triangles / np.maximum(triangles.sum(1, keepdims=True), 1e-6)).float()
