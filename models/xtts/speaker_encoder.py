"""The speaker encoder of XTTS: a recording to the embedding that its vocoder reads.

    log-mel (64, T) -> residual stages with squeeze and excitation -> (2048, T / 8)
                    -> attention over time: weighted mean and deviation -> 512 numbers of length 1

Layers have the keys of model.pth. The mel front end is ``features.speaker_mel``; the filters and windows that
a checkpoint holds beside the weights are the same numbers and not used.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/encoder/models/resnet.py (ResNetSpeakerEncoder; arXiv:2009.14153).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..networks.layers import load_weights
from .config import SpeakerEncoderConfig

SPEAKER_ENCODER_PREFIX = "hifigan_decoder.speaker_encoder."
FRONT_END_KEYS = ("torch_spec.0.filter", "torch_spec.1.spectrogram.window", "torch_spec.1.mel_scale.fb")
_MIN_VARIANCE = 1e-5


class XttsSpeakerEncoder(nn.Module):
    """The network. Built by ``load`` and constant afterwards."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, config.channels[0], 3, padding=1)
        self.bn1 = nn.BatchNorm2d(config.channels[0])
        entering = config.channels[0]
        for index, (channels, blocks) in enumerate(zip(config.channels, config.blocks, strict=True)):
            stride = 1 if index == 0 else 2
            self.add_module(f"layer{index + 1}", _stage(entering, channels, blocks, stride, config.squeeze))
            entering = channels
        self.stages = len(config.channels)
        width = entering * config.pooled_bands
        self.attention = nn.Sequential(
            nn.Conv1d(width, config.attention_channels, 1),
            nn.ReLU(),
            nn.BatchNorm1d(config.attention_channels),
            nn.Conv1d(config.attention_channels, width, 1),
            nn.Softmax(dim=2),
        )
        self.fc = nn.Linear(2 * width, config.embedding_width)

    @classmethod
    def load(cls, config: SpeakerEncoderConfig, weights: dict[str, Tensor]) -> "XttsSpeakerEncoder":
        """Build from the tensors of model.pth; used ones are removed from ``weights``.

        Raises RuntimeError that names missing keys.
        """
        with torch.device("meta"):
            network = cls(config)
        keys = [key for key in weights if key.startswith(SPEAKER_ENCODER_PREFIX)]
        taken = {key.removeprefix(SPEAKER_ENCODER_PREFIX): weights.pop(key) for key in keys}
        for key in FRONT_END_KEYS:
            taken.pop(key, None)
        load_weights(network, taken)
        return network

    def forward(self, log_mel: Tensor) -> Tensor:
        """log_mel: (B, 64, T) of ``features.normalized_log_mel`` -> (B, 512), each of length 1."""
        return F.normalize(self.fc(self.pool(self.encode(log_mel))), dim=1)

    def encode(self, log_mel: Tensor) -> Tensor:
        """The residual stages: (B, 64, T) -> (B, 2048, T / 8)."""
        x: Tensor = self.bn1(F.relu(self.conv1(log_mel[:, None])))
        for index in range(self.stages):
            x = self.get_submodule(f"layer{index + 1}")(x)
        return x.flatten(1, 2)

    def pool(self, x: Tensor) -> Tensor:
        """Weighted mean and deviation over time: (B, 2048, T) -> (B, 4096)."""
        weights: Tensor = self.attention(x)
        mean = (x * weights).sum(2)
        variance = (x.square() * weights).sum(2) - mean.square()
        return torch.cat([mean, variance.clamp(min=_MIN_VARIANCE).sqrt()], 1)


def _stage(entering: int, channels: int, blocks: int, stride: int, squeeze: int) -> nn.Sequential:
    first = _ResidualBlock(entering, channels, stride, squeeze)
    return nn.Sequential(first, *(_ResidualBlock(channels, channels, 1, squeeze) for _ in range(blocks - 1)))


class _ResidualBlock(nn.Module):
    """Two convolutions whose channels are scaled by the excitation; normalised after the activation."""

    def __init__(self, entering: int, channels: int, stride: int, squeeze: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(entering, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.se = _Excitation(channels, squeeze)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or entering != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(entering, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(F.relu(self.conv1(x)))))
        skipped: Tensor = x if self.downsample is None else self.downsample(x)
        return F.relu(self.se(y) + skipped)


class _Excitation(nn.Module):
    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        inner = channels // squeeze
        self.fc = nn.Sequential(
            nn.Linear(channels, inner), nn.ReLU(), nn.Linear(inner, channels), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, bands, T) -> the same, each channel scaled."""
        scales: Tensor = self.fc(x.mean((2, 3)))
        return x * scales[:, :, None, None]
