"""The v2 vocoder as upstream runs it: phase from zero in every call, and a fade that adds up to 1.08.

    call n      |      new mel       | 8 frames withheld |
    call n + 1                       | rendered again    |      new mel       | 8 frames withheld |
                                      fade over 160 ms, source kept from call n

For comparisons only: the vocoder of a server carries its phase over and fades with equal gain.

Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py (token2wav), utils/common.py (fade_in_out),
hifigan/generator.py (SineGen2).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vivavoce.models.cosyvoice.config import MEL_BANDS, HiftConfig
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2, cross_fade
from vivavoce.models.cosyvoice.vocoder.layers import turns_per_sample

WITHHELD_FRAMES = 8  # upstream's mel cache


@dataclass(frozen=True, slots=True)
class UpstreamVocoderState:
    """Upstream's cache; every tensor is 0 wide before the first call."""

    mel: Tensor  # (B, 80, 8)
    source: Tensor  # (B, 1, 3840)
    tail: Tensor  # (B, 3840) samples withheld


def init_state(vocoder: HiftV2, rows: int) -> UpstreamVocoderState:
    """The state before the first call."""
    empty = vocoder.conv_post.bias.new_empty
    return UpstreamVocoderState(empty(rows, MEL_BANDS, 0), empty(rows, 1, 0), empty(rows, 0))


def step(
    vocoder: HiftV2, mel: Tensor, noise: Tensor, state: UpstreamVocoderState
) -> tuple[Tensor, UpstreamVocoderState]:
    """Render a chunk and withhold its last 8 frames.

    mel: (B, 80, n). noise: (B, 480 (n + frames in the state), waves).
    """
    mel, source, wave = _render(vocoder, mel, noise, state)
    kept_samples = WITHHELD_FRAMES * vocoder.config.samples_per_frame
    tails = (mel[:, :, -WITHHELD_FRAMES:], source[:, :, -kept_samples:], wave[:, -kept_samples:])
    return wave[:, :-kept_samples], UpstreamVocoderState(*(tail.clone() for tail in tails))


def finish(vocoder: HiftV2, mel: Tensor, noise: Tensor, state: UpstreamVocoderState) -> Tensor:
    """Render the last chunk to its end. The same inputs as ``step``."""
    return _render(vocoder, mel, noise, state)[2]


@torch.inference_mode()
def _render(
    vocoder: HiftV2, mel: Tensor, noise: Tensor, state: UpstreamVocoderState
) -> tuple[Tensor, Tensor, Tensor]:
    mel = torch.cat([state.mel, mel], 2)
    source, wave = render_whole(vocoder, mel, noise, state.source)
    weights = torch.hamming_window(
        2 * state.tail.shape[1], periodic=False, dtype=torch.float64, device=wave.device
    )
    rise, fall = (part.float() for part in weights.chunk(2)) if len(weights) else (weights, weights)
    return mel, source, cross_fade(state.tail, wave, (rise, fall))


@torch.inference_mode()
def render_whole(
    vocoder: HiftV2, mel: Tensor, noise: Tensor, kept_source: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Source (B, 1, 480 T) and samples (B, 480 T) of a whole mel, with the phase from zero.

    mel: (B, 80, T). noise: (B, 480 T, waves). kept_source: (B, 1, n) replaces the beginning of the source.
    """
    f0 = vocoder.f0_predictor(mel)
    source = vocoder.m_source(interpolated_phase_sines(f0, vocoder.config), f0, noise)
    if kept_source is not None:
        source[:, :, : kept_source.shape[2]] = kept_source
    return source, vocoder.decode(mel, source)


def interpolated_phase_sines(f0: Tensor, config: HiftConfig) -> Tensor:
    """Sines of angles that grow in single precision, as upstream computes them: (B, 480 T, waves)."""
    angles = torch.cumsum(turns_per_sample(f0, config), 1).transpose(1, 2) * 2 * torch.pi
    size = config.samples_per_frame
    return F.interpolate(angles * size, scale_factor=float(size), mode="linear").transpose(1, 2).sin()


def stretch_mel(mel: Tensor, speed: float) -> Tensor:
    """A whole mel at ``speed`` times its rate: (B, 80, T) -> (B, 80, int(T / speed))."""
    return F.interpolate(mel, size=int(mel.shape[2] / speed), mode="linear")
