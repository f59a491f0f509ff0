"""What both vocoders are made of: weight-normed convolutions, residual blocks, the harmonic source, spectra.

Keys as in hift.pt. How a mel becomes samples chunk by chunk is ``hift``'s for version 2, ``hift_v3``'s for 3.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/{generator,f0_predictor}.py (HiFTGenerator, SineGen2,
ConvRNNF0Predictor), transformer/activation.py (Snake).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layers import PreparedModule

MEL_BANDS = 80
FINAL_LEAKY_SLOPE = 0.01
MAX_MAGNITUDE = 1e2
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
    leaky_slope: float = 0.1
    max_amplitude: float = 0.99
    f0_channels: int = 512

    @property
    def samples_per_frame(self) -> int:
        samples: int = math.prod(self.upsample_rates) * self.hop
        return samples

    @property
    def sine_count(self) -> int:
        """The fundamental and its harmonics."""
        return self.harmonics + 1

    @property
    def source_strides(self) -> tuple[int, ...]:
        """Spectral frames of the source a sample of each stage: 15, 3, 1."""
        return tuple(math.prod(self.upsample_rates[stage + 1 :]) for stage in range(len(self.upsample_rates)))

    def channels(self, stage: int) -> int:
        return self.base_channels >> (stage + 1)


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


class WeightNormConv(PreparedModule):
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
        self.weight = fold_weight_norm(self, self.dtype)
        self.bias = nn.Parameter(self.bias.data.to(self.dtype), requires_grad=False)

    @property
    def context_size(self) -> int:
        """Inputs that an output sees beside its own."""
        return (self.kernel - 1) * self.dilation

    def forward(self, x: Tensor, padding: int = 0) -> Tensor:
        """x: (B, inputs, T) -> (B, outputs, T + 2 padding - reach)."""
        return F.conv1d(x, self.weight, self.bias, padding=padding, dilation=self.dilation)

    def same_padded(self, x: Tensor) -> Tensor:
        """As many outputs as inputs, zeros beyond both ends."""
        return self(x, self.context_size // 2)  # type: ignore[no-any-return]


class WeightNormTransposedConv(PreparedModule):
    """A transposed convolution of ``stride`` outputs an input, stored the same way."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = (kernel - stride) // 2
        self.bias = nn.Parameter(torch.empty(outputs))
        self.parametrizations: nn.ModuleDict = nn.ModuleDict({"weight": WeightNorm(inputs, outputs, kernel)})
        self.register_buffer("weight", None, persistent=False)
        self.weight: Tensor

    def prepare(self) -> None:
        self.weight = fold_weight_norm(self, torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose1d(x, self.weight, self.bias, self.stride, self.padding)


def fold_weight_norm(module: nn.Module, dtype: torch.dtype) -> Tensor:
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
        self.convs1 = nn.ModuleList(
            [WeightNormConv(channels, channels, kernel, dilation=d) for d in dilations]
        )
        self.convs2 = nn.ModuleList([WeightNormConv(channels, channels, kernel) for _ in dilations])
        self.activations1 = nn.ModuleList([Snake(channels) for _ in dilations])
        self.activations2 = nn.ModuleList([Snake(channels) for _ in dilations])

    def pairs(self) -> Iterator[tuple[nn.Module, WeightNormConv, nn.Module, WeightNormConv]]:
        """(snake, dilated convolution, snake, convolution), in the order in which they run."""
        for parts in zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True):
            first, dilated, second, plain = parts
            assert isinstance(dilated, WeightNormConv) and isinstance(plain, WeightNormConv)
            yield first, dilated, second, plain

    def forward(self, x: Tensor) -> Tensor:
        for first, dilated, second, plain in self.pairs():
            x = x + plain.same_padded(second(dilated.same_padded(first(x))))
        return x


class HarmonicSource(nn.Module):
    """Merges sines and noise into one excitation."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        self.l_linear = nn.Linear(config.sine_count, 1)

    def forward(self, sines: Tensor, f0: Tensor, noise: Tensor) -> Tensor:
        """sines: (B, N, waves) of amplitude 1. f0: (B, T) Hz. noise: (B, N, waves) -> (B, 1, N), N = 480
        T.
        """
        return torch.tanh(self.l_linear(self.excitation(sines, f0, noise))).transpose(1, 2)

    def excitation(self, sines: Tensor, f0: Tensor, noise: Tensor) -> Tensor:
        """Sines and faint noise where voiced, noise alone where not: (B, N, waves)."""
        config = self.config
        voiced = (
            (f0 > config.voiced_above_hz).float().repeat_interleave(config.samples_per_frame, 1)[..., None]
        )
        level = voiced * config.noise_sigma + (1 - voiced) * config.sine_amplitude / 3
        return sines * config.sine_amplitude * voiced + level * noise


class F0Predictor(nn.Module):
    """Five convolutions, ELU, and a linear layer: the fundamental of each mel frame.

    In double precision: a phase adds up what is wrong with every frame, and depends on the cut otherwise.
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
        return [conv for conv in self.condnet.values() if isinstance(conv, WeightNormConv)]

    def forward(self, mel: Tensor) -> Tensor:
        """mel: (B, 80, T) -> (B, T) Hz, from one frame on either side a layer."""
        h = mel.double()
        for conv in self.convs():
            h = F.elu(conv.same_padded(h))
        return self.to_hz(h)

    def to_hz(self, h: Tensor) -> Tensor:
        """(B, C, T) float64 -> (B, T) Hz, float32."""
        weight, bias = self.classifier.weight.double(), self.classifier.bias.double()
        return F.linear(h.transpose(1, 2), weight, bias)[..., 0].abs().float()


class ShortTimeSpectra(PreparedModule):
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

    def inverse(self, x: Tensor) -> Tensor:
        """Log magnitude and phase parameter of F frames, (B, 18, F), to windowed pieces (B, F, 16)."""
        logarithm, angle = x.chunk(2, 1)
        magnitude = logarithm.exp().clamp(max=MAX_MAGNITUDE)
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


def turns_per_sample(f0: Tensor, config: HiftConfig) -> Tensor:
    """How far each sine turns in one sample: f0 (B, T) Hz -> (B, T, waves), 0..1."""
    multiples = torch.arange(1, config.sine_count + 1, device=f0.device, dtype=f0.dtype)
    return (f0[..., None] * multiples / config.sample_rate) % 1
