"""The v2 vocoder, streamed: mel to samples by a harmonic source and an inverse Fourier transform.

The network is not causal: its convolutions see about 14 mel frames on either side. ``Hift.step`` renders the
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

``Hift.compat_step`` is upstream's way: phase from zero in every call, behind 160 ms of source that is kept,
and a fade whose weights sum to 1.08.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/{generator,f0_predictor}.py (HiFTGenerator, SineGen2,
ConvRNNF0Predictor), cli/model.py (token2wav), utils/common.py (fade_in_out), transformer/activation.py
(Snake); keys as in hift.pt.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import Prepared

MEL = 80
LEAK_AT_END = 0.01
LARGEST_MAGNITUDE = 1e2
SOURCE_FADE_FRAMES = 8  # upstream's mel cache
F0_LAYERS = 5


@dataclass(frozen=True, slots=True)
class HiftConfig:
    """Sizes of the vocoder; defaults are the released ones. Kernels and dilations: a residual block each."""

    base_channels: int = 512
    harmonics: int = 8
    sample_rate: int = 24_000
    sine_amplitude: float = 0.1
    noise_sigma: float = 0.003
    voiced_above_hz: float = 10.0
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    n_fft: int = 16
    hop: int = 4
    kernels: tuple[int, ...] = (3, 7, 11)
    dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    source_kernels: tuple[int, ...] = (7, 7, 11)
    source_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    leak: float = 0.1
    limit: float = 0.99
    f0_channels: int = 512

    @property
    def frame_samples(self) -> int:
        samples: int = math.prod(self.upsample_rates) * self.hop
        return samples

    @property
    def waves(self) -> int:
        """The fundamental and its harmonics."""
        return self.harmonics + 1

    @property
    def source_strides(self) -> tuple[int, ...]:
        """Spectral frames of the source a sample of each stage: 15, 3, 1."""
        return tuple(math.prod(self.upsample_rates[stage + 1 :]) for stage in range(len(self.upsample_rates)))

    def channels(self, stage: int) -> int:
        return self.base_channels >> (stage + 1)


@dataclass(frozen=True, slots=True)
class HiftPolicy:
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
class HiftState:
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


@dataclass(frozen=True, slots=True)
class CompatState:
    """Upstream's cache: mel (B, 80, 8), source (B, 1, 3840), tail (B, 3840); 0 wide at a beginning."""

    mel: Tensor
    source: Tensor
    tail: Tensor


class WeightNorm(nn.Module):
    """A weight as a length and a direction for each row of its first axis."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.original0 = nn.Parameter(torch.empty(shape[0], *(1 for _ in shape[1:])))
        self.original1 = nn.Parameter(torch.empty(shape))

    def weight(self, dtype: torch.dtype) -> Tensor:
        length, direction = self.original0.data.to(dtype), self.original1.data.to(dtype)
        norm: Tensor = torch.linalg.vector_norm(direction.flatten(1), dim=1).view_as(length)
        return direction * (length / norm)


class NormedConv(Prepared):
    """A one-dimensional convolution whose weight is stored weight-normed, and multiplied out once."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, dilation: int = 1, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.dilation = dilation
        self.dtype = dtype
        self.kernel = kernel
        self.inputs = inputs
        self.bias = nn.Parameter(torch.empty(outputs))
        self.parametrizations: nn.ModuleDict = nn.ModuleDict({"weight": WeightNorm(outputs, inputs, kernel)})
        self.register_buffer("weight", None, persistent=False)
        self.weight: Tensor

    def prepare(self) -> None:
        self.weight = multiplied_out(self, self.dtype)
        self.bias = nn.Parameter(self.bias.data.to(self.dtype), requires_grad=False)

    @property
    def reach(self) -> int:
        """Inputs that an output sees beside its own."""
        return (self.kernel - 1) * self.dilation

    def forward(self, x: Tensor, padding: int = 0) -> Tensor:
        """x: (B, inputs, T) -> (B, outputs, T + 2 padding - reach)."""
        return F.conv1d(x, self.weight, self.bias, padding=padding, dilation=self.dilation)

    def centred(self, x: Tensor) -> Tensor:
        """As many outputs as inputs, zeros beyond both ends."""
        return self(x, self.reach // 2)  # type: ignore[no-any-return]


class _NormedTransposed(Prepared):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = (kernel - stride) // 2
        self.bias = nn.Parameter(torch.empty(outputs))
        self.parametrizations: nn.ModuleDict = nn.ModuleDict({"weight": WeightNorm(inputs, outputs, kernel)})
        self.register_buffer("weight", None, persistent=False)
        self.weight: Tensor

    def prepare(self) -> None:
        self.weight = multiplied_out(self, torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose1d(x, self.weight, self.bias, self.stride, self.padding)


def multiplied_out(module: nn.Module, dtype: torch.dtype) -> Tensor:
    """The weight of a weight-normed module. Its two parts are dropped: they are not needed again."""
    parts = module.get_submodule("parametrizations.weight")
    assert isinstance(parts, WeightNorm)
    weight = parts.weight(dtype)
    del module.parametrizations
    return weight


class Snake(nn.Module):
    """x + sin(a x)^2 / a, a for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        return x + (x * alpha).sin().square() / (alpha + 1e-9)


class ResBlock(nn.Module):
    """Pairs of snake-activated convolutions, the first of each pair dilated, each pair added to its input."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList([NormedConv(channels, channels, kernel, dilation=d) for d in dilations])
        self.convs2 = nn.ModuleList([NormedConv(channels, channels, kernel) for _ in dilations])
        self.activations1 = nn.ModuleList([Snake(channels) for _ in dilations])
        self.activations2 = nn.ModuleList([Snake(channels) for _ in dilations])

    def pairs(self) -> Iterator[tuple[nn.Module, NormedConv, nn.Module, NormedConv]]:
        """(snake, dilated convolution, snake, convolution), in the order in which they run."""
        for parts in zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True):
            first, dilated, second, plain = parts
            assert isinstance(dilated, NormedConv) and isinstance(plain, NormedConv)
            yield first, dilated, second, plain

    def forward(self, x: Tensor) -> Tensor:
        for first, dilated, second, plain in self.pairs():
            x = x + plain.centred(second(dilated.centred(first(x))))
        return x


class HarmonicSource(nn.Module):
    """Merges sines and noise into one excitation."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        self.l_linear = nn.Linear(config.waves, 1)

    def forward(self, sines: Tensor, f0: Tensor, noise: Tensor) -> Tensor:
        """sines: (B, N, waves) of amplitude 1. f0: (B, T) Hz. noise: (B, N, waves) -> (B, 1, N), N = 480
        T.
        """
        return torch.tanh(self.l_linear(self.excitation(sines, f0, noise))).transpose(1, 2)

    def excitation(self, sines: Tensor, f0: Tensor, noise: Tensor) -> Tensor:
        """Sines and faint noise where voiced, noise alone where not: (B, N, waves)."""
        config = self.config
        voiced = (f0 > config.voiced_above_hz).float().repeat_interleave(config.frame_samples, 1)[..., None]
        level = voiced * config.noise_sigma + (1 - voiced) * config.sine_amplitude / 3
        return sines * config.sine_amplitude * voiced + level * noise


class F0Predictor(nn.Module):
    """Five convolutions, ELU, and a linear layer: the fundamental of each mel frame.

    In double precision: a phase adds up what is wrong with every frame, and depends on the cut otherwise.
    """

    def __init__(self, channels: int, kernels: tuple[int, ...]) -> None:
        super().__init__()
        widths = [MEL, *(channels for _ in kernels[1:])]
        convs = [
            NormedConv(width, channels, kernel, dtype=torch.float64)
            for width, kernel in zip(widths, kernels, strict=True)
        ]
        self.condnet = nn.ModuleDict({str(2 * index): conv for index, conv in enumerate(convs)})
        self.classifier = nn.Linear(channels, 1)

    def convs(self) -> list[NormedConv]:
        return [conv for conv in self.condnet.values() if isinstance(conv, NormedConv)]

    def forward(self, mel: Tensor) -> Tensor:
        """mel: (B, 80, T) -> (B, T) Hz, from one frame on either side a layer."""
        h = mel.double()
        for conv in self.convs():
            h = F.elu(conv.centred(h))
        return self.read(h)

    def read(self, h: Tensor) -> Tensor:
        """(B, C, T) float64 -> (B, T) Hz, float32."""
        weight, bias = self.classifier.weight.double(), self.classifier.bias.double()
        return F.linear(h.transpose(1, 2), weight, bias)[..., 0].abs().float()


class Spectra(Prepared):
    """Short-time spectra of 16 samples every 4, both ways."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.n_fft, self.hop = config.n_fft, config.hop
        self.register_buffer("window", None, persistent=False)
        self.window: Tensor

    def prepare(self) -> None:
        self.window = torch.hann_window(self.n_fft)

    def analyse(self, samples: Tensor) -> Tensor:
        """samples: (B, 4 (F - 1) + 16) -> (B, 18, F): real parts, then imaginary parts."""
        windows = samples.unfold(1, self.n_fft, self.hop) * self.window
        spectrum = torch.fft.rfft(windows).transpose(1, 2)
        return torch.cat([spectrum.real, spectrum.imag], 1)

    def pieces(self, x: Tensor) -> Tensor:
        """Log magnitude and phase parameter of F frames, (B, 18, F), to windowed pieces (B, F, 16)."""
        logarithm, angle = x.chunk(2, 1)
        magnitude = logarithm.exp().clamp(max=LARGEST_MAGNITUDE)
        spectrum = torch.polar(magnitude, angle.sin()).transpose(1, 2)
        pieces: Tensor = torch.fft.irfft(spectrum, self.n_fft)
        return pieces * self.window

    def overlap_add(self, pieces: Tensor) -> Tensor:
        """(B, F, 16) -> (B, 4 (F - 1) + 16)."""
        B, frames, size = pieces.shape
        total = pieces.new_zeros(B, frames + size // self.hop - 1, self.hop)
        for part, quarter in enumerate(torch.split(pieces, self.hop, 2)):
            total[:, part : part + frames] += quarter
        return total.flatten(1)

    def envelope(self, frames: int) -> Tensor:
        """What the squared windows of so many frames add up to: (1, 4 (F - 1) + 16)."""
        return self.overlap_add(self.window.square().expand(1, frames, self.n_fft))


class Hift(nn.Module):
    """The v2 vocoder: ``step`` and ``finish`` with a state, or ``whole`` at once."""

    def __init__(self, config: HiftConfig, policy: HiftPolicy | None = None) -> None:
        super().__init__()
        self.config = config
        self.policy = policy or HiftPolicy()
        stages = range(len(config.upsample_rates))
        self.m_source = HarmonicSource(config)
        self.conv_pre = NormedConv(MEL, config.base_channels, 7)
        self.ups = nn.ModuleList(
            [
                _NormedTransposed(
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
        self.conv_post = NormedConv(config.channels(stages[-1]), config.n_fft + 2, 7)
        self.f0_predictor = F0Predictor(config.f0_channels, (3,) * F0_LAYERS)
        self.spectra = Spectra(config)

    def init_state(self, rows: int) -> HiftState:
        """A beginning."""
        empty = self.conv_post.bias.new_empty
        waves = self.config.waves
        phase = self.conv_post.bias.new_zeros(rows, waves, dtype=torch.float64)
        return HiftState(empty(rows, MEL, 0), empty(rows, 1, 0), empty(rows, 0, waves), phase, empty(rows, 0))

    def step(self, mel: Tensor, noise: Tensor, state: HiftState) -> tuple[Tensor, HiftState]:
        """Samples of a chunk, the overlap withheld.

        mel: (B, 80, n). noise: (B, 480 n, waves) standard normal. Returns (B, 480 m), m = n less what is
        newly withheld. Rows batch if they have as much behind them; all have after a step of context +
        overlap frames.
        """
        rendered = self._render(mel, noise, state)
        frames = rendered.wave.shape[1] // self.config.frame_samples
        overlap = min(self.policy.overlap_frames, frames)
        given = (frames - overlap) * self.config.frame_samples
        return rendered.wave[:, :given], self._following(rendered, overlap, state)

    def finish(self, mel: Tensor, noise: Tensor, state: HiftState) -> Tensor:
        """Samples of the last chunk, nothing withheld. The same inputs as ``step``."""
        return self._render(mel, noise, state).wave

    @torch.inference_mode()
    def _render(self, mel: Tensor, noise: Tensor, state: HiftState) -> "_Rendered":
        size = self.config.frame_samples
        mel, noise = torch.cat([state.mel, mel], 2), torch.cat([state.noise, noise], 1)
        context = state.source.shape[2] // size
        f0 = self.f0_predictor(mel)[:, context:]
        sines, phases = carried_sines(f0, state.phase, self.config, beginning=context == 0)
        source = torch.cat([state.source, self.m_source(sines, f0, noise)], 2)
        wave = self.decode(mel, source)[:, context * size :]
        wave = fade(state.tail, wave, equal_gain(state.tail.shape[1], wave.device))
        return _Rendered(mel, noise, source, phases, wave)

    def _following(self, rendered: "_Rendered", overlap: int, state: HiftState) -> HiftState:
        size, total = self.config.frame_samples, rendered.mel.shape[2]
        boundary = total - overlap
        context = min(self.policy.context_frames, boundary)
        begin = boundary - context
        phases = rendered.phases[:, : rendered.phases.shape[1] - overlap]
        given = rendered.wave.shape[1] - overlap * size
        faded = self.policy.fade_frames * size
        return HiftState(
            rendered.mel[:, :, begin:].clone(),
            rendered.source[:, :, begin * size : boundary * size].clone(),
            rendered.noise[:, given:].clone(),
            phases[:, -1].clone(),
            # Where nothing has been given out there is no new seam.
            rendered.wave[:, given : given + faded].clone() if given else state.tail,
        )

    def init_compat_state(self, rows: int) -> CompatState:
        """A beginning, upstream's way."""
        empty = self.conv_post.bias.new_empty
        return CompatState(empty(rows, MEL, 0), empty(rows, 1, 0), empty(rows, 0))

    def compat_step(self, mel: Tensor, noise: Tensor, state: CompatState) -> tuple[Tensor, CompatState]:
        """Samples of a chunk as upstream renders and fades it; noise: (B, 480 (n + frames kept), waves)."""
        mel, source, wave = self._compat_render(mel, noise, state)
        kept = SOURCE_FADE_FRAMES * self.config.frame_samples
        tails = (mel[:, :, -SOURCE_FADE_FRAMES:], source[:, :, -kept:], wave[:, -kept:])
        return wave[:, :-kept], CompatState(*(tail.clone() for tail in tails))

    def compat_finish(self, mel: Tensor, noise: Tensor, state: CompatState) -> Tensor:
        """Samples of the last chunk as upstream renders it."""
        return self._compat_render(mel, noise, state)[2]

    @torch.inference_mode()
    def _compat_render(self, mel: Tensor, noise: Tensor, state: CompatState) -> tuple[Tensor, Tensor, Tensor]:
        mel = torch.cat([state.mel, mel], 2)
        source, wave = self.whole(mel, noise, state.source)
        weights = torch.hamming_window(
            2 * state.tail.shape[1], periodic=False, dtype=torch.float64, device=wave.device
        )
        rise, fall = (part.float() for part in weights.chunk(2)) if len(weights) else (weights, weights)
        return mel, source, fade(state.tail, wave, (rise, fall))

    @torch.inference_mode()
    def whole(self, mel: Tensor, noise: Tensor, kept_source: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Source and samples of a whole mel, phase from zero, in upstream's arithmetic.

        mel: (B, 80, T). noise: (B, 480 T, waves). kept_source: (B, 1, n) replaces the source's beginning.
        Returns (B, 1, 480 T) and (B, 480 T).
        """
        f0 = self.f0_predictor(mel)
        source = self.m_source(interpolated_sines(f0, self.config), f0, noise)
        if kept_source is not None:
            source[:, :, : kept_source.shape[2]] = kept_source
        return source, self.decode(mel, source)

    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """mel: (B, 80, T). source: (B, 1, 480 T) -> samples (B, 480 T) within the limit."""
        config, edge = self.config, self.config.n_fft // 2
        spectrum = self.spectra.analyse(F.pad(source, (edge, edge), mode="reflect")[:, 0])
        x = self.conv_pre.centred(mel)
        for stage, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, config.leak))
            if stage == len(self.ups) - 1:
                x = F.pad(x, (1, 0), mode="reflect")
            x = x + self.source_resblocks[stage](self.source_downs[stage](spectrum))
            x = sum(block(x) for block in self._blocks(stage)) / len(config.kernels)
        x = self.conv_post.centred(F.leaky_relu(x, LEAK_AT_END))
        whole = self.spectra.overlap_add(self.spectra.pieces(x)) / self.spectra.envelope(x.shape[2])
        return whole[:, edge:-edge].clamp(-config.limit, config.limit)

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


def turns_a_sample(f0: Tensor, config: HiftConfig) -> Tensor:
    """How far each sine turns in one sample: f0 (B, T) Hz -> (B, T, waves), 0..1."""
    multiples = torch.arange(1, config.waves + 1, device=f0.device, dtype=f0.dtype)
    return (f0[..., None] * multiples / config.sample_rate) % 1


def interpolated_sines(f0: Tensor, config: HiftConfig) -> Tensor:
    """Sines as upstream computes them, single precision of ever larger angles: (B, 480 T, waves)."""
    angles = torch.cumsum(turns_a_sample(f0, config), 1).transpose(1, 2) * 2 * torch.pi
    size = config.frame_samples
    return F.interpolate(angles * size, scale_factor=float(size), mode="linear").transpose(1, 2).sin()


def carried_sines(f0: Tensor, phase: Tensor, config: HiftConfig, *, beginning: bool) -> tuple[Tensor, Tensor]:
    """Sines that go on from a phase, (B, 480 T, waves), and the frames' phases, (B, 1 + T, waves).

    The phase runs linearly from the middle of a frame to the middle of the next, in turns; it stands still
    before the first middle of an utterance and after the last one known:

        frame         |    k-1    |     k     |
        middle              x-----------x
        turns                 480 r(k)
    """
    size = config.frame_samples
    turns = turns_a_sample(f0, config).double() * size
    phases = torch.cat([phase[:, None], phase[:, None] + turns.cumsum(1)], 1)
    rising = torch.cat([torch.zeros_like(turns[:, :1]), turns[:, 1:]], 1) if beginning else turns
    falling = F.pad(turns[:, 1:], (0, 0, 0, 1))
    place = (torch.arange(size, device=f0.device, dtype=torch.float64) + 0.5) / size - 0.5
    before, after = place[: size // 2, None], place[size // 2 :, None]
    middle = (phases[:, 1:] % 1)[:, :, None]
    angle = torch.cat([middle + before * rising[:, :, None], middle + after * falling[:, :, None]], 2)
    sines = (2 * torch.pi * (angle % 1)).float().sin()
    return sines.flatten(1, 2), phases % 1


def equal_gain(samples: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Weights of a fade, rising and falling, that add up to one."""
    rise = 0.5 - 0.5 * torch.cos(torch.pi * (torch.arange(samples, device=device) + 0.5) / max(samples, 1))
    return rise, 1 - rise


def fade(earlier: Tensor, wave: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    """The wave (B, N), its beginning faded in over the earlier one (B, n); weights: (n,) each."""
    count = earlier.shape[1]
    rise, fall = weights
    return torch.cat([wave[:, :count] * rise + earlier * fall, wave[:, count:]], 1)


def to_pcm16(samples: Tensor) -> Tensor:
    """Float samples to 16 bits, saturating: full scale 1.0 is 32767, and what exceeds it stays there."""
    return (samples * 32767).round().clamp(-32768, 32767).to(torch.int16)


def stretched(mel: Tensor, speed: float) -> Tensor:
    """A whole mel ``speed`` times as fast, upstream's way: (B, 80, T) -> (B, 80, int(T / speed))."""
    return F.interpolate(mel, size=int(mel.shape[2] / speed), mode="linear")
