"""Parts that both vocoders have in common, as ONNX graphs; the layers of ``vocoder.layers``.

Tensors are channels-first, (B, C, T). The f0 predictor computes in float64 like its original, as products of
shifted columns, because ONNX Runtime convolves in float32 only. The inverse Fourier transform and the sum of
overlapping windows are one transposed convolution with a fixed weight.

Source: ``vocoder.layers``, whose computation and weights these are.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import HiftConfig
from ..vocoder.layers import F0_LAYERS, FINAL_LEAKY_SLOPE, MAX_MAGNITUDE
from .graph_values import GraphValue, concat
from .network_graph import NetworkGraph

# Runs a causal or a padded convolution of a name with a dilation: (B, C, T) -> (B, C', T).
RunConv = Callable[[NetworkGraph, str, GraphValue, int], GraphValue]


class HiftGraph:
    """The layers of a vocoder. run_conv: pads convolutions, or keeps their contexts."""

    def __init__(self, graph: NetworkGraph, config: HiftConfig, run_conv: RunConv) -> None:
        self.graph, self.config, self._run_conv = graph, config, run_conv
        self._window = np.hanning(config.n_fft + 1)[:-1]  # periodic

    def conv(self, graph: NetworkGraph, name: str, x: GraphValue, **attributes: Any) -> GraphValue:
        """A weight-normed convolution without padding of its own."""
        weight, bias = graph.constant(folded_weight(graph, name)), graph.constant(graph.array(f"{name}.bias"))
        return x.apply("Conv", weight, bias, **attributes)

    def residual_block(self, name: str, x: GraphValue, dilations: Sequence[int]) -> GraphValue:
        """(B, C, T) -> (B, C, T)."""
        part = self.graph.part(name)
        for index, dilation in enumerate(dilations):
            h = self._run_conv(part, f"convs1.{index}", _snake(part, f"activations1.{index}", x), dilation)
            h = self._run_conv(part, f"convs2.{index}", _snake(part, f"activations2.{index}", h), 1)
            x = x + h
        return x

    def source_block(self, stage: int, spectrum: GraphValue, padding: int) -> GraphValue:
        """What the source adds after a stage: source spectra (B, 18, F) -> (B, C, T)."""
        name, config = f"source_downs.{stage}", self.config
        weight, bias = self.graph.weight_and_bias(name)
        stride = config.source_strides[stage]
        down = spectrum.apply("Conv", weight, bias, strides=[stride], pads=[padding, padding])
        return self.residual_block(f"source_resblocks.{stage}", down, config.source_dilations[stage])

    def residual_mean(self, stage: int, x: GraphValue) -> GraphValue:
        """Mean of the residual blocks of a stage: (B, C, T) -> (B, C, T)."""
        first, *others = (
            self.residual_block(f"resblocks.{index}", x, dilations)
            for index, dilations in enumerate(self.config.dilations, stage * len(self.config.dilations))
        )
        for other in others:
            first = first + other
        return first / float(len(self.config.dilations))

    def predict_f0(
        self, with_contexts: Iterator[Callable[[GraphValue], GraphValue]], mel: GraphValue
    ) -> GraphValue:
        """mel: (B, 80, T) -> (B, T') Hz. with_contexts: adds zeros or the context to the input of a layer."""
        graph = self.graph.part("f0_predictor")
        h = mel.cast(np.float64).transpose(0, 2, 1)
        for layer, add_context in zip(range(F0_LAYERS), with_contexts, strict=True):
            name = f"condnet.{2 * layer}"
            weight, bias = folded_weight(graph, name, np.float64), graph.array(f"{name}.bias")
            outputs, _, kernel = weight.shape
            h = add_context(h)
            length = h.size(1) - (kernel - 1)
            columns = concat([h.slice(1, lag, length + lag) for lag in range(kernel)], 2)
            matrix = graph.constant(weight.transpose(2, 1, 0).reshape(-1, outputs), np.float64)
            h = _elu(columns @ matrix + graph.constant(bias, np.float64))
        matrix = graph.constant(graph.array("classifier.weight").T, np.float64)
        hz = h @ matrix + graph.constant(graph.array("classifier.bias"), np.float64)
        hz = hz.apply("Abs").cast(np.float32)
        return hz.reshape(h.size(0), h.size(1))

    def turns(self, f0: GraphValue) -> GraphValue:
        """Turns of each sine in one sample, 0..1: (B, T) Hz -> (B, T, waves) float64."""
        multiples = self.graph.constant(np.arange(1, self.config.sine_count + 1))
        return (f0.unsqueeze(2) * multiples / float(self.config.sample_rate)).fraction().cast(np.float64)

    def source(self, sines: GraphValue, f0: GraphValue, noise: GraphValue) -> GraphValue:
        """sines: (B, T, 480 or 1, waves). f0: (B, T) Hz. noise: (B, 480 T, waves). Returns (B, 1, 480 T)."""
        config, rows, frames = self.config, f0.size(0), f0.size(1)
        voiced = (f0 > config.voiced_above_hz).cast(np.float32).unsqueeze(2, 3)
        level = voiced * config.noise_sigma + (1.0 - voiced) * (config.sine_amplitude / 3)
        by_frame = noise.reshape(rows, frames, config.samples_per_frame, config.sine_count)
        excitation = sines * config.sine_amplitude * voiced + level * by_frame
        merged = self.graph.linear(excitation, "m_source.l_linear").apply("Tanh")
        return merged.reshape(rows, 1, frames * config.samples_per_frame)

    def analyse(self, source: GraphValue) -> GraphValue:
        """Samples (B, 1, 4 (F - 1) + 16) -> (B, 18, F), 9 real parts, then 9 imaginary parts."""
        spectra = np.fft.rfft(np.eye(self.config.n_fft)) * self._window[:, None]  # (16, 9)
        weight = np.concatenate([spectra.real, spectra.imag], 1).T[:, None]
        return source.apply("Conv", self.graph.constant(weight), strides=[self.config.hop])

    def synthesize(self, x: GraphValue) -> GraphValue:
        """Log magnitude and phase parameter (B, 18, F) -> sums of windowed pieces (B, 4 (F - 1) + 16)."""
        bins, config = self.config.n_fft // 2 + 1, self.config
        magnitude = x.slice(1, 0, bins).apply("Exp").minimum(MAX_MAGNITUDE)
        angle = x.slice(1, bins).apply("Sin")
        spectrum = concat([magnitude * angle.apply("Cos"), magnitude * angle.apply("Sin")], 1)
        parts = np.concatenate([np.eye(bins), 1j * np.eye(bins)])
        weight = (np.fft.irfft(parts, config.n_fft) * self._window)[:, None]  # (18, 1, 16)
        return self._overlap_add(spectrum, weight)

    def envelope(self, frames: GraphValue) -> GraphValue:
        """Sum of the squared windows of ``frames`` spectra: (1, 4 (F - 1) + 16)."""
        ones = self.graph.constant(np.ones((1, 1, 1))).expand(1, 1, frames)
        return self._overlap_add(ones, np.square(self._window)[None, None])

    def _overlap_add(self, x: GraphValue, weight: NDArray[Any]) -> GraphValue:
        total = x.apply("ConvTranspose", self.graph.constant(weight), strides=[self.config.hop])
        return total.reshape(x.size(0), -1)

    def leaky(self, x: GraphValue, *, final: bool = False) -> GraphValue:
        """The activation before an upsampling stage, or before the last convolution."""
        return x.apply("LeakyRelu", alpha=FINAL_LEAKY_SLOPE if final else self.config.leaky_slope)

    def clip(self, samples: GraphValue) -> GraphValue:
        """Samples within the largest amplitude."""
        limits = (self.graph.constant(sign * self.config.max_amplitude) for sign in (-1, 1))
        return samples.apply("Clip", *limits)


def folded_weight(graph: NetworkGraph, name: str, dtype: type = np.float32) -> NDArray[Any]:
    """A weight that is stored as lengths and directions, multiplied out."""
    stored = f"{name}.parametrizations.weight.original"
    lengths: NDArray[Any] = graph.array(f"{stored}0").astype(dtype)
    directions: NDArray[Any] = graph.array(f"{stored}1").astype(dtype)
    folded: NDArray[Any] = directions * (lengths / np.sqrt(np.square(directions).sum((1, 2), keepdims=True)))
    return folded


def zeros_around(x: GraphValue, before: int, after: int, axis: int) -> GraphValue:
    """x with zeros before and after it on an axis of three."""
    pads = np.zeros(6, np.int64)
    pads[axis], pads[3 + axis] = before, after
    return x.apply("Pad", _pads(x, pads))


def reflected(x: GraphValue, before: int, after: int) -> GraphValue:
    """(B, C, T) with its ends mirrored."""
    return x.apply("Pad", _pads(x, np.array([0, 0, before, 0, 0, after])), mode="reflect")


def _pads(x: GraphValue, pads: NDArray[Any]) -> GraphValue:
    return GraphValue(x.graph, x.graph.weight(pads), np.int64)


def _snake(graph: NetworkGraph, name: str, x: GraphValue) -> GraphValue:
    alpha = graph.array(f"{name}.alpha")[:, None]
    sine = (x * graph.constant(alpha)).apply("Sin")
    return x + sine * sine / graph.constant(alpha + np.float32(1e-9))


def _elu(x: GraphValue) -> GraphValue:
    return (x > 0.0).where(x, x.minimum(0.0).apply("Exp") - 1.0)
