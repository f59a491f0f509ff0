"""Upstream's networks of XTTS v2 in their released sizes with random weights: the baseline of ``comparison``.

The language model is the GPT-2 of transformers, fed step by step with its cache and sampled by its logits
processors, as upstream does. The HiFi-GAN is written in plain layers of torch, and vocodes all latents so far
for every chunk. Weight norm is left out, which upstream computes anew in every call, and so is the search
loop around the steps; upstream itself is slower by both.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/gpt.py, gpt_inference.py, stream_generator.py,
hifigan_decoder.py, TTS/vocoder/models/hifigan_generator.py, TTS/tts/models/xtts.py (inference_stream).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2Model,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from vivavoce.models.xtts.config import XttsConfig

_OTHER_PARAMETERS = 61_300_000  # of conditioning, speaker encoder and text head, which are loaded as well


class UpstreamGpt(nn.Module):
    """The language model and its sampling."""

    def __init__(self, config: XttsConfig) -> None:
        super().__init__()
        sizes = config.gpt
        positions = sizes.max_positions
        self.gpt = GPT2Model(
            GPT2Config(
                vocab_size=1,
                n_positions=positions,
                n_embd=sizes.hidden,
                n_layer=sizes.layers,
                n_head=sizes.heads,
            )
        )
        self.gpt.wpe = _NoPositions(sizes.hidden)
        self.speech = nn.Embedding(sizes.speech_vocab_size, sizes.hidden)
        self.positions = nn.Embedding(sizes.speech_positions, sizes.hidden)
        self.final_norm = nn.LayerNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.speech_vocab_size)
        self.start_id = sizes.start_speech_id
        self._sampling = LogitsProcessorList(
            [
                RepetitionPenaltyLogitsProcessor(5.0),
                TemperatureLogitsWarper(0.75),
                TopKLogitsWarper(50),
                TopPLogitsWarper(0.85),
            ]
        )

    @torch.inference_mode()
    def generate(self, prefix: Tensor, count: int) -> Sequence[Tensor]:
        """Latents (1, hidden) of ``count`` ids after columns (1, T, hidden), one at a time."""
        ids = torch.full((1, prefix.shape[1] + 1), 1)
        ids[0, -1] = self.start_id
        columns = torch.cat([prefix, self._embedded(ids[:, -1:], 0)], 1)
        memory, latents = None, []
        for index in range(count):
            done = self.gpt(inputs_embeds=columns, past_key_values=memory, use_cache=True, return_dict=True)
            memory = done.past_key_values
            latent = self.final_norm(done.last_hidden_state[:, -1])
            latents.append(latent)
            scores = self._sampling(ids, self.head(latent))
            chosen = torch.multinomial(F.softmax(scores, -1), 1)
            ids = torch.cat([ids, chosen], 1)
            columns = self._embedded(chosen, index + 1)
        return latents

    def _embedded(self, ids: Tensor, position: int) -> Tensor:
        embedded: Tensor = self.speech(ids) + self.positions(torch.tensor([[position]]))
        return embedded


class _NoPositions(nn.Module):
    """Stands for the positions of GPT-2, which are part of the inputs here."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        return torch.zeros(*positions.shape, self.width)


class UpstreamVocoder(nn.Module):
    """Latents to samples, all at once."""

    def __init__(self, config: XttsConfig) -> None:
        super().__init__()
        sizes = config.vocoder
        self.config = sizes
        self.conv_pre = nn.Conv1d(sizes.input_width, sizes.base_channels, 7, padding=3)
        self.cond_layer = nn.Conv1d(sizes.speaker_width, sizes.base_channels, 1)
        stages = range(len(sizes.upsample_rates))
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(
                sizes.base_channels >> i, sizes.channels(i), kernel, rate, (kernel - rate) // 2
            )
            for i, kernel, rate in zip(stages, sizes.upsample_kernels, sizes.upsample_rates, strict=True)
        )
        self.conds = nn.ModuleList(nn.Conv1d(sizes.speaker_width, sizes.channels(i), 1) for i in stages)
        self.blocks = nn.ModuleList(
            nn.ModuleList(_ResidualBlock(sizes.channels(i), kernel) for kernel in sizes.kernels)
            for i in stages
        )
        self.conv_post = nn.Conv1d(sizes.channels(stages[-1]), 1, 7, padding=3, bias=False)

    @torch.inference_mode()
    def forward(self, latents: Sequence[Tensor], speaker: Tensor) -> Tensor:
        """Latents (1, hidden) each -> samples (1, 1, N). speaker: (1, 512, 1)."""
        z = F.interpolate(torch.stack([*latents], 2), scale_factor=4.0, mode="linear")
        z = F.interpolate(z, scale_factor=24_000 / 22_050, mode="linear")
        x = self.conv_pre(z) + self.cond_layer(speaker)
        for up, cond, blocks in zip(self.ups, self.conds, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1)) + cond(speaker)
            assert isinstance(blocks, nn.ModuleList)
            x = torch.stack([block(x) for block in blocks]).mean(0)
        samples: Tensor = torch.tanh(self.conv_post(F.leaky_relu(x)))
        return samples


class _ResidualBlock(nn.Module):
    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(
            nn.ModuleList(
                nn.Conv1d(channels, channels, kernel, dilation=each, padding=each * (kernel - 1) // 2)
                for each in (dilation, 1)
            )
            for dilation in (1, 3, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        for pair in self.pairs:
            assert isinstance(pair, nn.ModuleList)
            dilated, plain = pair
            x = x + plain(F.leaky_relu(dilated(F.leaky_relu(x, 0.1)), 0.1))
        return x


def other_weights() -> Tensor:
    """Memory of the networks that are loaded and not measured."""
    return torch.ones(_OTHER_PARAMETERS)
