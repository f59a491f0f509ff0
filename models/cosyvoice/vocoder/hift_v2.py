"""The v2 vocoder, streamed: mel to samples by a harmonic source and an inverse Fourier transform.

The network is not causal: its convolutions see about 14 mel frames on either side. ``HiftV2.step`` renders the
new frames together with some that lie behind them, withholds the last ones and fades into them with the next
step:

    mel frames     | context |  overlap  |        new         |
    rendered now   |---------|-----------|--------------------|
    before         |---------|-----------|  what followed was not known yet
    given out                |fade|-------------->| overlap of the next step, withheld

The source is computed once: its phase, and its samples behind the overlap, are carried over, so that the
excitation is one signal, however it is cut. What the last step has rendered is right but near its end, what
this step renders is right all over, so the fade is early. The default overlap, 8 frames, is upstream's
latency; from 20 on the fade joins equal signals, and the samples are those of the whole mel at once. How far
from those, root mean square against the signal's, in three chunks of the reduced network of the golden set:

    upstream's way        -2.5 dB          overlap 12, fade 4     -35 dB
    overlap 8, fade 4    -22.6 dB          overlap 16, fade 4     below -58 dB, rounding

A session's state is 184 kB, whatever the length.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/generator.py (HiFTGenerator, SineGen2), cli/model.py
(token2wav), utils/common.py (fade_in_out); keys as in hift.pt.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import (
    F0_LAYERS,
    FINAL_LEAKY_SLOPE,
    MEL_BANDS,
    F0Predictor,
    HarmonicSource,
    HiftConfig,
    ResBlock,
    ShortTimeSpectra,
    WeightNormConv,
    WeightNormTransposedConv,
    turns_per_sample,
)


@dataclass(frozen=True, slots=True)
class HiftV2Policy:
    """How a step overlaps the last one, in mel frames of 20 ms.

    ``context_frames``: rendered again behind the overlap. ``overlap_frames``: withheld. ``fade_frames``: of
    the overlap, over which the next rendering replaces the last.
    """

    context_frames: int = 16
    overlap_frames: int = 8
    fade_frames: int = 4

    def __post_init__(self) -> None:
        if not 0 <= self.fade_frames <= self.overlap_frames:
            raise ValueError(
                f"fade_frames is {self.fade_frames}; allowed: 0..{self.overlap_frames}, the overlap"
            )


@dataclass(frozen=True, slots=True)
class HiftV2State:
    """What the vocoder remembers between steps; C context and O overlap frames, both 0 at a beginning.

    ``mel``: (B, 80, C + O). ``source``: (B, 1, 480 C). ``noise``: (B, 480 O, waves). ``phase``: (B, waves)
    float64, turns in 0..1 at the middle of the last context frame. ``tail``: (B, 480 F), samples withheld
    that the next step fades from.
    """

    mel: Tensor
    source: Tensor
    noise: Tensor
    phase: Tensor
    tail: Tensor


class HiftV2(nn.Module):
    """The v2 vocoder: ``step`` and ``finish`` with a state."""

    def __init__(self, config: HiftConfig, policy: HiftV2Policy | None = None) -> None:
        super().__init__()
        self.config = config
        self.policy = policy or HiftV2Policy()
        stages = range(len(config.upsample_rates))
        self.m_source = HarmonicSource(config)
        self.conv_pre = WeightNormConv(MEL_BANDS, config.base_channels, 7)
        self.ups = nn.ModuleList(
            [
                WeightNormTransposedConv(
                    config.base_channels >> stage,
                    config.channels(stage),
                    config.upsample_kernels[stage],
                    config.upsample_rates[stage],
                )
                for stage in stages
            ]
        )
        self.source_downs = nn.ModuleList(
            [_source_down(config, stage, _centred_padding(config.source_strides[stage])) for stage in stages]
        )
        self.source_resblocks = nn.ModuleList(
            [
                ResBlock(config.channels(i), config.source_kernels[i], config.source_dilations[i])
                for i in stages
            ]
        )
        self.resblocks = nn.ModuleList(
            [
                ResBlock(config.channels(stage), kernel, dilations)
                for stage in stages
                for kernel, dilations in zip(config.kernels, config.dilations, strict=True)
            ]
        )
        self.conv_post = WeightNormConv(config.channels(stages[-1]), config.n_fft + 2, 7)
        self.f0_predictor = F0Predictor(config.f0_channels, (3,) * F0_LAYERS)
        self.spectra = ShortTimeSpectra(config)

    def init_state(self, rows: int) -> HiftV2State:
        """A beginning."""
        empty = self.conv_post.bias.new_empty
        waves = self.config.sine_count
        phase = self.conv_post.bias.new_zeros(rows, waves, dtype=torch.float64)
        return HiftV2State(
            empty(rows, MEL_BANDS, 0), empty(rows, 1, 0), empty(rows, 0, waves), phase, empty(rows, 0)
        )

    def step(self, mel: Tensor, noise: Tensor, state: HiftV2State) -> tuple[Tensor, HiftV2State]:
        """Samples of a chunk, the overlap withheld.

        mel: (B, 80, n). noise: (B, 480 n, waves) standard normal. Returns (B, 480 m), m = n less what is
        newly withheld. Rows batch if they have as much behind them; all have after a step of context +
        overlap frames.
        """
        rendered = self._render(mel, noise, state)
        frames = rendered.wave.shape[1] // self.config.samples_per_frame
        overlap = min(self.policy.overlap_frames, frames)
        emitted = (frames - overlap) * self.config.samples_per_frame
        return rendered.wave[:, :emitted], self._next_state(rendered, overlap, state)

    def finish(self, mel: Tensor, noise: Tensor, state: HiftV2State) -> Tensor:
        """Samples of the last chunk, nothing withheld. The same inputs as ``step``."""
        return self._render(mel, noise, state).wave

    @torch.inference_mode()
    def _render(self, mel: Tensor, noise: Tensor, state: HiftV2State) -> "_Rendered":
        size = self.config.samples_per_frame
        mel, noise = torch.cat([state.mel, mel], 2), torch.cat([state.noise, noise], 1)
        context = state.source.shape[2] // size
        f0 = self.f0_predictor(mel)[:, context:]
        sines, phases = continued_phase_sines(f0, state.phase, self.config, beginning=context == 0)
        source = torch.cat([state.source, self.m_source(sines, f0, noise)], 2)
        wave = self.decode(mel, source)[:, context * size :]
        wave = cross_fade(state.tail, wave, equal_gain_weights(state.tail.shape[1], wave.device))
        return _Rendered(mel, noise, source, phases, wave)

    def _next_state(self, rendered: "_Rendered", overlap: int, state: HiftV2State) -> HiftV2State:
        size, total = self.config.samples_per_frame, rendered.mel.shape[2]
        boundary = total - overlap
        context = min(self.policy.context_frames, boundary)
        begin = boundary - context
        phases = rendered.phases[:, : rendered.phases.shape[1] - overlap]
        emitted = rendered.wave.shape[1] - overlap * size
        fade_samples = self.policy.fade_frames * size
        return HiftV2State(
            rendered.mel[:, :, begin:].clone(),
            rendered.source[:, :, begin * size : boundary * size].clone(),
            rendered.noise[:, emitted:].clone(),
            phases[:, -1].clone(),
            # Where nothing has been given out there is no new seam.
            rendered.wave[:, emitted : emitted + fade_samples].clone() if emitted else state.tail,
        )

    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """mel: (B, 80, T). source: (B, 1, 480 T) -> samples (B, 480 T) within the limit."""
        config, edge = self.config, self.config.n_fft // 2
        spectrum = self.spectra.analyse(F.pad(source, (edge, edge), mode="reflect")[:, 0])
        x = self.conv_pre.same_padded(mel)
        for stage, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, config.leaky_slope))
            if stage == len(self.ups) - 1:
                x = F.pad(x, (1, 0), mode="reflect")
            x = x + self.source_resblocks[stage](self.source_downs[stage](spectrum))
            x = sum(block(x) for block in self._blocks(stage)) / len(config.kernels)
        x = self.conv_post.same_padded(F.leaky_relu(x, FINAL_LEAKY_SLOPE))
        whole = self.spectra.overlap_add(self.spectra.inverse(x)) / self.spectra.envelope(x.shape[2])
        return whole[:, edge:-edge].clamp(-config.max_amplitude, config.max_amplitude)

    def _blocks(self, stage: int) -> nn.ModuleList:
        count = len(self.config.kernels)
        return self.resblocks[stage * count : (stage + 1) * count]


@dataclass(frozen=True, slots=True)
class _Rendered:
    """What a step has rendered: all of mel and source; noise and wave without the context.

    ``phases``: (B, 1 + overlap and new frames, waves), turns at the middle of each frame, from the last of
    the context.
    """

    mel: Tensor
    noise: Tensor
    source: Tensor
    phases: Tensor
    wave: Tensor


def _centred_padding(stride: int) -> int:
    return stride // 2 if stride > 1 else 0


def _source_down(config: HiftConfig, stage: int, padding: int) -> nn.Conv1d:
    stride = config.source_strides[stage]
    kernel = 2 * stride if stride > 1 else 1
    return nn.Conv1d(config.n_fft + 2, config.channels(stage), kernel, stride, padding)


def continued_phase_sines(
    f0: Tensor, phase: Tensor, config: HiftConfig, *, beginning: bool
) -> tuple[Tensor, Tensor]:
    """Sines that go on from a phase, (B, 480 T, waves), and the frames' phases, (B, 1 + T, waves).

    The phase runs linearly from the middle of a frame to the middle of the next, in turns; it stands still
    before the first middle of an utterance and after the last one known:

        frame         |    k-1    |     k     |
        middle              x-----------x
        turns                 480 r(k)
    """
    size = config.samples_per_frame
    turns = turns_per_sample(f0, config).double() * size
    phases = torch.cat([phase[:, None], phase[:, None] + turns.cumsum(1)], 1)
    rising = torch.cat([torch.zeros_like(turns[:, :1]), turns[:, 1:]], 1) if beginning else turns
    falling = F.pad(turns[:, 1:], (0, 0, 0, 1))
    place = (torch.arange(size, device=f0.device, dtype=torch.float64) + 0.5) / size - 0.5
    before, after = place[: size // 2, None], place[size // 2 :, None]
    middle = (phases[:, 1:] % 1)[:, :, None]
    angle = torch.cat([middle + before * rising[:, :, None], middle + after * falling[:, :, None]], 2)
    sines = (2 * torch.pi * (angle % 1)).float().sin()
    return sines.flatten(1, 2), phases % 1


def equal_gain_weights(samples: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Weights of a fade, rising and falling, that add up to one."""
    rise = 0.5 - 0.5 * torch.cos(torch.pi * (torch.arange(samples, device=device) + 0.5) / max(samples, 1))
    return rise, 1 - rise


def cross_fade(earlier: Tensor, wave: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    """The wave (B, N), its beginning faded in over the earlier one (B, n); weights: (n,) each."""
    count = earlier.shape[1]
    rise, fall = weights
    return torch.cat([wave[:, :count] * rise + earlier * fall, wave[:, count:]], 1)
