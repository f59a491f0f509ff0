"""The network that turns a recording into the latents in front of the text.

    mel (80, T) -> 1x1 convolution -> attention blocks -> perceiver: 32 latents attend to all frames

A recording is cut in pieces of a few seconds and the latents of the pieces are averaged. Layers have the
keys of model.pth.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/latent_encoder.py, perceiver_encoder.py; the perceiver
is that of arXiv:2204.14198, with a gated feed-forward (arXiv:2002.05202).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..networks.layers import load_weights
from .config import CONDITIONING_MEL_BANDS, ConditioningConfig

CONDITIONING_PREFIXES = "gpt.conditioning_encoder.", "gpt.conditioning_perceiver."  # of its keys


class ConditioningEncoder(nn.Module):
    """The network. Built by ``load`` and constant afterwards."""

    def __init__(self, config: ConditioningConfig) -> None:
        super().__init__()
        self.encoder = _FrameEncoder(config)
        self.perceiver = _Perceiver(config)

    @classmethod
    def load(cls, config: ConditioningConfig, weights: dict[str, Tensor]) -> "ConditioningEncoder":
        """Build from the tensors of model.pth; used ones are removed from ``weights``.

        Raises RuntimeError that names missing keys.
        """
        with torch.device("meta"):
            network = cls(config)
        taken = {}
        for ours, theirs in zip(("encoder.", "perceiver."), CONDITIONING_PREFIXES, strict=True):
            for key in [key for key in weights if key.startswith(theirs)]:
                taken[ours + key.removeprefix(theirs)] = weights.pop(key)
        load_weights(network, taken)
        return network

    def forward(self, mel: Tensor) -> Tensor:
        """mel: (B, 80, T) of ``features.conditioning_mel`` -> (B, 32, width)."""
        latents: Tensor = self.perceiver(self.encoder(mel).transpose(1, 2))
        return latents


class _FrameEncoder(nn.Module):
    def __init__(self, config: ConditioningConfig) -> None:
        super().__init__()
        self.init = nn.Conv1d(CONDITIONING_MEL_BANDS, config.width, 1)
        self.attn = nn.ModuleList(_FrameAttention(config) for _ in range(config.blocks))

    def forward(self, mel: Tensor) -> Tensor:
        """(B, 80, T) -> (B, width, T)."""
        x: Tensor = self.init(mel)
        for block in self.attn:
            x = block(x)
        return x


class _FrameAttention(nn.Module):
    """Attention over all frames. What is added to its output is the normalised input, as upstream has it."""

    def __init__(self, config: ConditioningConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = nn.GroupNorm(config.norm_groups, config.width)
        self.qkv = nn.Conv1d(config.width, 3 * config.width, 1)
        self.proj_out = nn.Conv1d(config.width, config.width, 1)

    def forward(self, x: Tensor) -> Tensor:
        B, width, frames = x.shape
        normed = self.norm(x)
        # The rows of the matrix are ordered by head, then query, key, value: (B, heads, 3 * head width, T).
        parts = self.qkv(normed).view(B, self.heads, -1, frames).transpose(2, 3).chunk(3, 3)
        attended = F.scaled_dot_product_attention(*parts).transpose(2, 3).reshape(B, width, frames)
        summed: Tensor = normed + self.proj_out(attended)
        return summed


class _Perceiver(nn.Module):
    def __init__(self, config: ConditioningConfig) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.empty(config.latents, config.width))
        self.layers = nn.ModuleList(
            nn.ModuleList([_LatentAttention(config), _gated_feed_forward(config)])
            for _ in range(config.perceiver_layers)
        )
        self.norm = _ScaledUnitNorm(config.width)

    def forward(self, frames: Tensor) -> Tensor:
        """(B, T, width) -> (B, 32, width)."""
        latents = self.latents.expand(len(frames), -1, -1)
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleList)
            attention, feed_forward = layer
            latents = attention(latents, frames) + latents
            latents = feed_forward(latents) + latents
        normed: Tensor = self.norm(latents)
        return normed


class _LatentAttention(nn.Module):
    """Latents attend to themselves and to the frames."""

    def __init__(self, config: ConditioningConfig) -> None:
        super().__init__()
        self.heads = config.perceiver_heads
        inner = config.perceiver_heads * config.perceiver_head_width
        self.to_q = nn.Linear(config.width, inner, bias=False)
        self.to_kv = nn.Linear(config.width, 2 * inner, bias=False)
        self.to_out = nn.Linear(inner, config.width, bias=False)

    def forward(self, latents: Tensor, frames: Tensor) -> Tensor:
        keys, values = self.to_kv(torch.cat([latents, frames], 1)).chunk(2, -1)
        query, keys, values = (self._by_head(part) for part in (self.to_q(latents), keys, values))
        attended = F.scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(2)
        projected: Tensor = self.to_out(attended)
        return projected

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


def _gated_feed_forward(config: ConditioningConfig) -> nn.Sequential:
    inner = config.perceiver_inner
    return nn.Sequential(nn.Linear(config.width, 2 * inner), _GeluGate(), nn.Linear(inner, config.width))


class _GeluGate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        value, gate = x.chunk(2, -1)
        return F.gelu(gate) * value


class _ScaledUnitNorm(nn.Module):
    """Scales a vector to length sqrt(width), then each channel by ``gamma``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        unit: Tensor = F.normalize(x, dim=-1)
        scaled: Tensor = unit * math.sqrt(x.shape[-1]) * self.gamma
        return scaled
