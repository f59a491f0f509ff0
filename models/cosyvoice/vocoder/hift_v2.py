"""The v2 vocoder, streamed: mel to samples by a harmonic source and an inverse Fourier transform.

The network is not causal: a sample depends on 16 mel frames on either side. ``HiftV2.step`` renders
the new frames together with some earlier ones, withholds the last ones, and fades from the samples withheld
by the previous step:

    mel frames      | context |  overlap  |        new         |
    this step       |---------|-----------|--------------------|   renders all of it
    previous step   |---------|-----------|                        rendered it without the frames after it
    samples out               |fade|-------------->| overlap of the next step, withheld

The source is one signal, whatever the split: its phase, and its samples before the overlap, are part of the
state. The previous step's rendering is accurate except near its end, and this step's is accurate everywhere,
so the fade lies at the beginning of the overlap. An overlap of 20 frames is 4 of fade and the 16 that their
samples depend on, so the fade joins equal signals: the samples are those of the whole mel rendered at once.
Deviation from those around a seam, root mean square relative to the signal there, in the reduced network of
the golden set:

    overlap  8, fade 4    -12 dB           overlap 16, fade 4     -53 dB
    overlap 12, fade 4    -25 dB           overlap 20, fade 4    -113 dB, rounding

The overlap is audio that a chunk renders and the next one delivers: 0.4 s.

A session's state is 396 kB, whatever the length of the utterance.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/generator.py (HiFTGenerator, SineGen2), cli/model.py
(token2wav); keys as in hift.pt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...networks.weight_norm import WeightNormTransposedConv
from ..config import MEL_BANDS, HiftConfig
from .layers import F0_LAYERS, HiftNetwork, ResBlock, StageRunner, turns_per_sample

PRE_KERNEL = 7
F0_KERNEL = 3


@dataclass(frozen=True, slots=True)
class HiftV2Policy:
    """Overlap of a step with the previous one, in mel frames. The fade must fit into the overlap."""

    context_frames: int = 16  # rendered again before the overlap
    overlap_frames: int = 20  # withheld until the next step: the fade, and 16 that it depends on
    fade_frames: int = 4  # of the overlap

    def __post_init__(self) -> None:
        if not 0 <= self.fade_frames <= self.overlap_frames:
            raise ValueError(
                f"fade_frames is {self.fade_frames}; allowed: 0..{self.overlap_frames}, the overlap"
            )


@dataclass(frozen=True, slots=True)
class HiftV2State:
    """Memory of the vocoder between steps: C context and O overlap frames, both 0 at the beginning."""

    mel: Tensor  # (B, 80, C + O)
    source: Tensor  # (B, 1, 480 C) samples of the source
    noise: Tensor  # (B, 480 O, waves)
    phase: Tensor  # (B, waves) float64, turns in 0..1 at the middle of the last context frame
    tail: Tensor  # (B, 480 F) samples withheld, from which the next step fades


class HiftV2(HiftNetwork):
    """The v2 vocoder: ``step`` through an utterance and ``finish`` it."""

    def __init__(self, config: HiftConfig, policy: HiftV2Policy | None = None) -> None:
        super().__init__(
            config,
            pre_kernel=PRE_KERNEL,
            f0_kernels=(F0_KERNEL,) * F0_LAYERS,
            upsampling=WeightNormTransposedConv,
            source_padding=_centred_padding,
        )
        self.policy = policy or HiftV2Policy()

    def init_state(self, rows: int) -> HiftV2State:
        """The state before the first chunk."""
        empty = self.conv_post.bias.new_empty
        waves = self.config.sine_count
        phase = self.conv_post.bias.new_zeros(rows, waves, dtype=torch.float64)
        return HiftV2State(
            empty(rows, MEL_BANDS, 0), empty(rows, 1, 0), empty(rows, 0, waves), phase, empty(rows, 0)
        )

    def noise_samples(self, mel_frames: int, state: HiftV2State, *, last: bool) -> int:
        """Samples of noise that ``step`` or ``finish`` needs for ``mel_frames`` new frames."""
        return self.config.samples_per_frame * mel_frames

    def step(self, mel: Tensor, noise: Tensor, state: HiftV2State) -> tuple[Tensor, HiftV2State]:
        """Render a chunk and withhold the overlap.

        mel: (B, 80, n). noise: (B, 480 n, waves), standard normal. Returns (B, 480 m) samples; m is n at a
        steady overlap, less at the beginning. States whose tensors have equal shapes may be batched; all do
        once context + overlap frames have been rendered.
        """
        rendered = self._render(mel, noise, state)
        frames = rendered.wave.shape[1] // self.config.samples_per_frame
        overlap = min(self.policy.overlap_frames, frames)
        emitted = (frames - overlap) * self.config.samples_per_frame
        return rendered.wave[:, :emitted], self._next_state(rendered, overlap, state)

    def finish(self, mel: Tensor, noise: Tensor, state: HiftV2State) -> Tensor:
        """Render the last chunk to its end. The same inputs as ``step``."""
        return self._render(mel, noise, state).wave

    def render_whole(self, mel: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Render a whole mel with gradients, for training; the source gives the pitch none.

        mel: (B, 80, T). noise: (B, 480 T, waves). Returns samples (B, 480 T) and pitch (B, T) Hz.
        """
        f0 = self.f0_predictor(mel)
        heard = f0.detach()
        phase = self.init_state(len(mel)).phase
        sines, _ = continued_phase_sines(heard, phase, self.config, beginning=True)
        return self.decode(mel, self.m_source(sines, heard, noise)), f0

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
            # Without samples out there is no new seam: the earlier tail stays.
            rendered.wave[:, emitted : emitted + fade_samples].clone() if emitted else state.tail,
        )

    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """mel: (B, 80, T). source: (B, 1, 480 T). Returns samples (B, 480 T), clamped."""
        config, edge = self.config, self.config.n_fft // 2
        spectrum = self.spectra.analyse(F.pad(source, (edge, edge), mode="reflect")[:, 0])
        x = self.run_stages(self.conv_pre.same_padded(mel), _PaddedRunner(self, spectrum))
        # The envelope is 0 at both ends: cut before the division, so that it has a gradient.
        whole = self.spectra.overlap_add(self.spectra.inverse(x))[:, edge:-edge]
        samples = whole / self.spectra.envelope(x.shape[2])[:, edge:-edge]
        return samples.clamp(-config.max_amplitude, config.max_amplitude)


class _PaddedRunner(StageRunner):
    """Runs layers with zeros beyond both ends of what is rendered. spectrum: (B, 18, F) of the source."""

    is_beginning = True  # every call renders a signal with two ends

    def __init__(self, network: HiftNetwork, spectrum: Tensor) -> None:
        self._network, self._spectrum = network, spectrum

    def upsample(self, stage: int, x: Tensor) -> Tensor:
        y: Tensor = self._network.ups[stage](x)
        return y

    def add_source(self, stage: int, x: Tensor) -> Tensor:
        down = self._network.source_downs[stage](self._spectrum)
        y: Tensor = self._network.source_resblocks[stage](down, x)
        return y

    def residual_mean(self, blocks: Sequence[ResBlock], x: Tensor) -> Tensor:
        *others, last = blocks
        total: Tensor | None = None
        for block in others:
            total = block(x, total)
        mean: Tensor = last(x, total, 1 / len(blocks))
        return mean

    def post(self, x: Tensor) -> Tensor:
        return self._network.conv_post.same_padded(x)


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Everything that a step has rendered; N samples and O + n frames without the context."""

    mel: Tensor  # (B, 80, C + O + n)
    noise: Tensor  # (B, N, waves)
    source: Tensor  # (B, 1, 480 (C + O + n))
    phases: Tensor  # (B, 1 + O + n, waves) turns at the middle of each frame, from the last context frame
    wave: Tensor  # (B, N)


def _centred_padding(stride: int) -> int:
    return stride // 2 if stride > 1 else 0


def continued_phase_sines(
    f0: Tensor, phase: Tensor, config: HiftConfig, *, beginning: bool
) -> tuple[Tensor, Tensor]:
    """Sines that continue a phase, (B, 480 T, waves), and the phase of each frame, (B, 1 + T, waves).

    f0: (B, T) Hz. phase: (B, waves) turns at the middle of the frame before. The phase rises linearly from
    the middle of a frame to the middle of the next. It is constant before the first middle of an utterance
    (``beginning``) and after the last known one:

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
    """Rising and falling weights of a fade, (samples,) each, that add up to one."""
    rise = 0.5 - 0.5 * torch.cos(torch.pi * (torch.arange(samples, device=device) + 0.5) / max(samples, 1))
    return rise, 1 - rise


def cross_fade(earlier: Tensor, wave: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    """Fade from ``earlier`` (B, n) into ``wave`` (B, N). weights: (n,) rising and (n,) falling."""
    count = earlier.shape[1]
    rise, fall = weights
    return torch.cat([wave[:, :count] * rise + earlier * fall, wave[:, count:]], 1)
