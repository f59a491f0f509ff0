"""Building blocks of both vocoders: weight-normed convolutions, residual blocks, harmonic source, spectra.

``Vocoder`` is the interface of the vocoders, for either version and any library that computes them.

``HiftNetwork`` holds the layers under the keys of hift.pt and runs the upsampling stages. Streaming is in
``hift_v2`` (overlapped rendering) and ``hift_v3`` (causal contexts).

    mel (B, 80, T) -> conv_pre -> [ up -> + source branch -> mean of residual blocks ] x 3 -> conv_post
    f0 -> sines -> source samples -> spectra -> source_downs -> source_resblocks   (the source branch)
    log magnitude and phase (B, 18, F) -> inverse transform, overlap-add -> samples (B, 480 T)

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/{generator,f0_predictor}.py (HiFTGenerator, SineGen2,
ConvRNNF0Predictor), transformer/activation.py (Snake).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...networks.kernel_support import has_fused_kernels
from ...networks.layers import PreparedModule
from ...networks.precision import split_matrix
from ...networks.state import gather, join_states
from ...networks.weight_norm import WeightNormConv
from ..config import MEL_BANDS, HiftConfig

if TYPE_CHECKING:
    from ..kernels.vocoder_kernels import VocoderConv

FINAL_LEAKY_SLOPE = 0.01  # before conv_post; upstream leaves torch's default there
MAX_MAGNITUDE = 1e2  # of a spectrum; upstream clips there too
F0_LAYERS = 5
POST_KERNEL = 7


class Vocoder(Protocol):
    """Mel to samples in chunks. A state is a tree of batch-first tensors, of a type of the vocoder's own."""

    config: HiftConfig

    def init_state(self, rows: int) -> Any:
        """The state before the first chunk."""

    def noise_samples(self, mel_frames: int, state: Any, *, last: bool) -> int:
        """Samples of noise that ``step``, or ``finish`` if ``last``, needs for ``mel_frames`` new frames."""

    def step(self, mel: Tensor, noise: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Samples (B, N) of a chunk, less those that depend on the next one, and the next state.

        mel: (B, 80, n). noise: (B, ``noise_samples``, waves); standard normal in version 2, uniform in 0..1
        in version 3.
        """

    def finish(self, mel: Tensor, noise: Tensor, state: Any) -> Tensor:
        """All remaining samples."""


def step_together(
    vocoder: Vocoder, mel: Tensor, noise: Tensor, states: Sequence[Any]
) -> tuple[Tensor, list[Any]]:
    """``Vocoder.step`` for streams whose states have 1 row each and equal shapes: samples, next states."""
    samples, state = vocoder.step(mel, noise, join_states(states))
    return samples, [gather(state, [row]) for row in range(len(states))]


class Snake(nn.Module):
    """The activation x + sin(a x)^2 / a, with one ``a`` for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        return x + (x * alpha).sin().square() / (alpha + 1e-9)


class ResBlock(PreparedModule):
    """Pairs of snake-activated convolutions, the first of each pair dilated; each pair adds to its input."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            [WeightNormConv(channels, channels, kernel, dilation=d) for d in dilations]
        )
        self.convs2 = nn.ModuleList([WeightNormConv(channels, channels, kernel) for _ in dilations])
        self.activations1 = nn.ModuleList([Snake(channels) for _ in dilations])
        self.activations2 = nn.ModuleList([Snake(channels) for _ in dilations])
        self.fused_convs: list[VocoderConv | None] = []  # in running order

    def pairs(self) -> Iterator[tuple[nn.Module, WeightNormConv, nn.Module, WeightNormConv]]:
        """(snake, dilated convolution, snake, plain convolution) of each pair, in running order."""
        for parts in zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True):
            first, dilated, second, plain = parts
            assert isinstance(dilated, WeightNormConv) and isinstance(plain, WeightNormConv)
            yield first, dilated, second, plain

    def prepare(self) -> None:
        """Split the weights for the kernels, where there are such kernels."""
        self.fused_convs = [fused for pair in self.pairs() for fused in _fused_pair(*pair)]

    @property
    def has_fused_kernels(self) -> bool:
        """Whether kernels compute the block: not in training, where nothing is prepared."""
        convs = [conv for conv in self.fused_convs if conv is not None]
        return len(convs) == 2 * len(self.convs1) and has_fused_kernels(convs[0].bias.device)

    def forward(self, x: Tensor, total: Tensor | None = None, factor: float = 1.0) -> Tensor:
        """x, total: (B, C, T) with zeros beyond both ends -> ``factor`` times both sums, (B, C, T)."""
        if self.has_fused_kernels:
            return self.run_fused(x, None, total, factor)[0]
        for first, dilated, second, plain in self.pairs():
            x = x + plain.same_padded(second(dilated.same_padded(first(x))))
        return scaled_sum(x, total, factor)

    def run_fused(
        self, x: Tensor, contexts: Sequence[Tensor] | None, total: Tensor | None = None, factor: float = 1.0
    ) -> tuple[Tensor, list[Tensor]]:
        """As ``forward``, or from a context of each convolution; the second result are the next contexts."""
        from ..kernels.vocoder_kernels import convolve

        following, last = [], len(self.fused_convs) - 1
        for index, conv in enumerate(self.fused_convs):
            context = None if contexts is None else contexts[index]
            assert conv is not None
            if index % 2 == 0:
                hidden, after = convolve(x, conv, context=context)
            elif index < last:
                x, after = convolve(hidden, conv, context=context, residual=x)
            else:
                x, after = convolve(hidden, conv, context=context, residual=x, total=total, factor=factor)
            following.append(after)
        return x, following


def scaled_sum(x: Tensor, total: Tensor | None, factor: float) -> Tensor:
    """``factor * (x + total)``."""
    y = x if total is None else x + total
    return y if factor == 1 else y * factor


def _fused_pair(
    first: nn.Module, dilated: WeightNormConv, second: nn.Module, plain: WeightNormConv
) -> "Iterator[VocoderConv | None]":
    """The convolutions of a pair for the kernels; None where there are none for their widths or device."""
    width = dilated.inputs
    if not has_fused_kernels(dilated.weight.device, multiples=[width]):
        yield from (None, None)
        return
    from ..kernels.vocoder_kernels import VocoderConv

    assert isinstance(first, Snake) and isinstance(second, Snake)
    snakes = {dilated: (first.alpha.data, second.alpha.data), plain: (None, None)}
    for conv, (snake, output_snake) in snakes.items():
        # (C, C, taps), on a CPU as an image -> (C, taps * C)
        matrix = conv.weight.reshape(width, width, conv.kernel).permute(0, 2, 1).flatten(1)
        yield VocoderConv(split_matrix(matrix), conv.bias.data, conv.dilation, snake, output_snake)


class HarmonicSource(nn.Module):
    """Merges sines and noise into the excitation of the vocoder, one channel of samples."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        self.l_linear = nn.Linear(config.sine_count, 1)

    def forward(self, sines: Tensor, f0: Tensor, noise: Tensor) -> Tensor:
        """sines, noise: (B, N, waves), sines of amplitude 1. f0: (B, T) Hz. Returns (B, 1, N), N = 480 T."""
        return torch.tanh(self.l_linear(self.excitation(sines, f0, noise))).transpose(1, 2)

    def excitation(self, sines: Tensor, f0: Tensor, noise: Tensor) -> Tensor:
        """Sines with faint noise where voiced, noise alone elsewhere: (B, N, waves)."""
        config = self.config
        voiced = (
            (f0 > config.voiced_above_hz).float().repeat_interleave(config.samples_per_frame, 1)[..., None]
        )
        level = voiced * config.noise_sigma + (1 - voiced) * config.sine_amplitude / 3
        return sines * config.sine_amplitude * voiced + level * noise


class F0Predictor(nn.Module):
    """Predicts the fundamental frequency of each mel frame: five convolutions with ELU, a linear layer.

    Computes in double precision. The phase of the source sums f0 over all frames, so that rounding errors
    would add up and make the samples depend on the split into chunks.
    """

    def __init__(self, channels: int, kernels: tuple[int, ...]) -> None:
        super().__init__()
        widths = [MEL_BANDS, *(channels for _ in kernels[1:])]
        convs = [
            WeightNormConv(width, channels, kernel, dtype=torch.float64)
            for width, kernel in zip(widths, kernels, strict=True)
        ]
        self.condnet = nn.ModuleDict({str(2 * index): conv for index, conv in enumerate(convs)})
        self.classifier = nn.Linear(channels, 1)

    def convs(self) -> list[WeightNormConv]:
        """The convolutions in running order."""
        return [conv for conv in self.condnet.values() if isinstance(conv, WeightNormConv)]

    def forward(self, mel: Tensor) -> Tensor:
        """mel: (B, 80, T) -> (B, T) Hz. Each layer looks one frame to either side."""
        h = mel.double()
        for conv in self.convs():
            h = F.elu(conv.same_padded(h))
        return self.to_hz(h)

    def to_hz(self, h: Tensor) -> Tensor:
        """(B, C, T) float64 -> (B, T) Hz, float32."""
        weight, bias = self.classifier.weight.double(), self.classifier.bias.double()
        return F.linear(h.transpose(1, 2), weight, bias)[..., 0].abs().float()


class ShortTimeSpectra(PreparedModule):
    """Short-time Fourier transform and its inverse: windows of 16 samples, every 4 samples."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.n_fft, self.hop = config.n_fft, config.hop
        self.register_buffer("window", None, persistent=False)
        self.window: Tensor

    def prepare(self) -> None:
        self.window = torch.hann_window(self.n_fft)

    def analyse(self, samples: Tensor) -> Tensor:
        """samples: (B, 4 (F - 1) + 16) -> (B, 18, F), 9 real parts, then 9 imaginary parts."""
        windows = samples.unfold(1, self.n_fft, self.hop) * self.window
        spectrum = torch.fft.rfft(windows).transpose(1, 2)
        return torch.cat([spectrum.real, spectrum.imag], 1)

    def inverse(self, x: Tensor) -> Tensor:
        """Log magnitude and phase parameter of F frames, (B, 18, F) -> windowed pieces (B, F, 16)."""
        logarithm, angle = x.chunk(2, 1)  # (B, 9, F) each
        magnitude = logarithm.exp().clamp(max=MAX_MAGNITUDE)
        spectrum = torch.polar(magnitude, angle.sin()).transpose(1, 2)
        pieces: Tensor = torch.fft.irfft(spectrum, self.n_fft)
        return pieces * self.window

    def overlap_add(self, pieces: Tensor) -> Tensor:
        """Sum pieces that overlap by 12 samples: (B, F, 16) -> (B, 4 (F - 1) + 16)."""
        B, frames, size = pieces.shape
        # (B, F + 3, 4): row k of the sum gets quarter 0 of piece k, quarter 1 of piece k - 1, ...
        total = pieces.new_zeros(B, frames + size // self.hop - 1, self.hop)
        for part, quarter in enumerate(torch.split(pieces, self.hop, 2)):
            total[:, part : part + frames] += quarter
        return total.flatten(1)

    def envelope(self, frames: int) -> Tensor:
        """Sum of the squared windows of ``frames`` spectra: (1, 4 (F - 1) + 16)."""
        return self.overlap_add(self.window.square().expand(1, frames, self.n_fft))


def turns_per_sample(f0: Tensor, config: HiftConfig) -> Tensor:
    """Turns of each sine in one sample, 0..1: f0 (B, T) Hz -> (B, T, waves)."""
    multiples = torch.arange(1, config.sine_count + 1, device=f0.device, dtype=f0.dtype)
    return (f0[..., None] * multiples / config.sample_rate) % 1


class StageRunner(ABC):
    """Runs the layers of one step: v2 pads them with zeros, v3 keeps the context of each.

    Attributes:
        is_beginning: whether the step starts the utterance.
    """

    is_beginning: bool

    @abstractmethod
    def upsample(self, stage: int, x: Tensor) -> Tensor:
        """x: (B, C, T) -> (B, C / 2, rate T)."""

    @abstractmethod
    def add_source(self, stage: int, x: Tensor) -> Tensor:
        """x: (B, C, T), and what the source adds after an upsampling stage."""

    @abstractmethod
    def residual_mean(self, blocks: Sequence[ResBlock], x: Tensor) -> Tensor:
        """Mean of the outputs of the blocks: (B, C, T) -> (B, C, T)."""

    @abstractmethod
    def post(self, x: Tensor) -> Tensor:
        """Log magnitude and phase parameter: (B, C, F) -> (B, 18, F)."""


class HiftNetwork(nn.Module):
    """The layers of a vocoder. Attribute names are keys of hift.pt."""

    def __init__(
        self,
        config: HiftConfig,
        *,
        pre_kernel: int,
        f0_kernels: tuple[int, ...],
        upsampling: Callable[[int, int, int, int], nn.Module],
        source_padding: Callable[[int], int],
    ) -> None:
        """Build the layers without weights.

        upsampling: the layer for (inputs, outputs, kernel, rate). source_padding: zeros on either side of the
        source spectra, for the stride of a stage.
        """
        super().__init__()
        self.config = config
        stages = range(len(config.upsample_rates))
        rates = zip(config.upsample_kernels, config.upsample_rates, strict=True)
        self.m_source = HarmonicSource(config)
        self.conv_pre = WeightNormConv(MEL_BANDS, config.base_channels, pre_kernel)
        self.ups = nn.ModuleList(
            [
                upsampling(config.base_channels >> stage, config.channels(stage), kernel, rate)
                for stage, (kernel, rate) in enumerate(rates)
            ]
        )
        self.source_downs = nn.ModuleList(
            [_source_down(config, stage, source_padding(config.source_strides[stage])) for stage in stages]
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
        self.conv_post = WeightNormConv(config.channels(stages[-1]), config.n_fft + 2, POST_KERNEL)
        self.f0_predictor = F0Predictor(config.f0_channels, f0_kernels)
        self.spectra = ShortTimeSpectra(config)

    def stage_blocks(self, stage: int) -> list[ResBlock]:
        """The residual blocks after an upsampling stage."""
        count = len(self.config.kernels)
        blocks = self.resblocks[stage * count : (stage + 1) * count]
        return [block for block in blocks if isinstance(block, ResBlock)]

    def run_stages(self, x: Tensor, runner: StageRunner) -> Tensor:
        """x: (B, C, T) after conv_pre -> (B, 18, F), F spectra of the samples, 120 for each mel frame."""
        last = len(self.ups) - 1
        for stage in range(last + 1):
            x = runner.upsample(stage, F.leaky_relu(x, self.config.leaky_slope))
            if runner.is_beginning and stage == last:
                # Spectra are centred: a signal of n hops has n + 1 of them.
                x = F.pad(x, (1, 0), mode="reflect")
            x = runner.add_source(stage, x)
            x = runner.residual_mean(self.stage_blocks(stage), x)
        return runner.post(F.leaky_relu(x, FINAL_LEAKY_SLOPE))


def _source_down(config: HiftConfig, stage: int, padding: int) -> nn.Conv1d:
    stride = config.source_strides[stage]
    kernel = 2 * stride if stride > 1 else 1
    return nn.Conv1d(config.n_fft + 2, config.channels(stage), kernel, stride, padding)
