"""Writes the vocoder of version 3 as an ONNX graph; a step and the end of an utterance are the same graph.

    vocoder    mel (B, 80, n), noise (B, N, waves), last, state -> samples, next state

Every convolution keeps its context. The first step is recognized by an empty ``past_mel``.

Source: ``vocoder.hift_v3``, whose computation and weights these are.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from ...onnx_graphs.graph_builder import OnnxGraphFile
from ..config import MEL_BANDS, HiftConfig
from ..config import VOCODER_LOOKAHEAD_FRAMES as LOOKAHEAD_FRAMES
from ..vocoder.hift_v3 import F0_LOOKAHEAD_FRAMES
from ..vocoder.layers import F0_LAYERS
from .graph_values import GraphValue, concat
from .network_graph import NetworkGraph
from .vocoder_layers import HiftGraph, folded_weight


def write_hift_v3(
    path: Path, config: HiftConfig, weights: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write ``vocoder`` of version 3 from the tensors of hift.pt."""
    with OnnxGraphFile(path) as builder:
        _HiftV3Graph(NetworkGraph(builder, weights), config).add()
        builder.save(metadata)


class _HiftV3Graph:
    def __init__(self, graph: NetworkGraph, config: HiftConfig) -> None:
        self._graph, self._config = graph, config
        self._layers = HiftGraph(graph, config, self._causal_conv)
        self._contexts = 0

    def add(self) -> None:
        graph, config, layers = self._graph, self._config, self._layers
        edge = config.n_fft // 2
        new_mel = graph.input("mel", ("batch", MEL_BANDS, "frames"))
        noise = graph.input("noise", ("batch", "noise_samples", config.sine_count))
        last = graph.number("last")
        pending = graph.input("past_mel", ("batch", MEL_BANDS, "past_frames"))
        beginning = (pending.size(2) < 1).cast(np.int64)
        mel = concat([pending, new_mel], 2)
        mel_frames = mel.size(2)
        f0_mel = mel.slice(2, (1 - beginning) * (LOOKAHEAD_FRAMES - F0_LOOKAHEAD_FRAMES))
        f0 = layers.predict_f0(
            self._f0_contexts(), concat([f0_mel, _zeros(f0_mel, last * F0_LOOKAHEAD_FRAMES)], 2)
        )
        new_source = layers.source(self._frame_sines(f0), f0, noise)
        source, frames = self._source_window(new_source, mel_frames, beginning, last)
        graph.output(
            "present_source", _flat(source.slice(2, frames * config.hop)), ("batch", "present_source")
        )
        past_spectrum = graph.input("past_spectrum", ("batch", config.n_fft + 2, "past_spectra"))
        kept = config.source_strides[0]
        before = _zeros(past_spectrum, beginning * (kept - 1))
        spectrum = concat([before, past_spectrum, layers.analyse(source).slice(2, 0, frames)], 2)
        graph.output("present_spectrum", spectrum.slice(2, -kept), ("batch", config.n_fft + 2, kept))
        padded_mel = concat([mel, _zeros(mel, last * LOOKAHEAD_FRAMES)], 2)
        x = self._run_stages(padded_mel, spectrum, frames, beginning)
        self._emit(x, beginning * edge, last, edge)
        shape = ("batch", MEL_BANDS, "present_frames")
        graph.output("present_mel", mel.slice(2, mel_frames - mel_frames.minimum(LOOKAHEAD_FRAMES)), shape)

    def _f0_contexts(self) -> Iterator[Callable[[GraphValue], GraphValue]]:
        """The first layer has its frames, the others have contexts: (B, C, 2) float64."""
        yield lambda h: h
        for layer in range(F0_LAYERS - 1):
            yield partial(self._with_f0_context, f"f0_context.{layer}")

    def _with_f0_context(self, name: str, h: GraphValue) -> GraphValue:
        shape = ("batch", self._config.f0_channels, 2)
        past = self._graph.input(f"past_{name}", shape, np.float64).transpose(0, 2, 1)
        joined = concat([past, h], 1)
        self._graph.output(f"present_{name}", joined.slice(1, -2).transpose(0, 2, 1), shape)
        return joined

    def _frame_sines(self, f0: GraphValue) -> GraphValue:
        """Sines whose phase is constant in a frame: (B, T, 1, waves)."""
        config, shape = self._config, ("batch", self._config.sine_count)
        past = self._graph.input("past_phase", shape, np.float64)
        total = past.unsqueeze(1) + self._layers.turns(f0).apply("CumSum", self._graph.constant(1, np.int64))
        present = concat([past.unsqueeze(1), total], 1).slice(1, -1).reshape(f0.size(0), config.sine_count)
        self._graph.output("present_phase", present, shape)
        angles = total.cast(np.float32) * 2.0 * float(np.pi) * float(config.samples_per_frame)
        return angles.apply("Sin").unsqueeze(2)

    def _source_window(
        self, new: GraphValue, mel_frames: GraphValue, beginning: GraphValue, last: GraphValue
    ) -> tuple[GraphValue, GraphValue]:
        """The samples under the spectra of this step, (B, 1, N), and the number of spectra."""
        config, edge = self._config, self._config.n_fft // 2
        past = self._graph.input("past_source", ("batch", "past_source_samples")).unsqueeze(1)
        # The ends of the utterance are padded by reflection, as a centred transform pads them.
        first = new.slice(2, 1, beginning * edge + 1)
        end = new.slice(2, new.size(2) - last * edge - 1, new.size(2) - 1)
        joined = concat([_reversed(first), past, new, _reversed(end)], 2)
        hops = config.samples_per_frame // config.hop
        return joined, (mel_frames - (1 - last) * LOOKAHEAD_FRAMES) * hops + beginning

    def _run_stages(
        self, mel: GraphValue, spectrum: GraphValue, frames: GraphValue, beginning: GraphValue
    ) -> GraphValue:
        layers, config = self._layers, self._config
        x, strides = layers.conv(self._graph, "conv_pre", mel), config.source_strides
        for stage, (rate, stride) in enumerate(zip(config.upsample_rates, strides, strict=True)):
            x = self._causal_conv(self._graph, f"ups.{stage}", _repeated(layers.leaky(x), rate), 1)
            if stage == len(strides) - 1:
                x = concat([x.slice(2, 1, beginning + 1), x], 2)  # mirrored at the beginning
            # A window is two strides wide; the context is as long as the largest stride, the first stage's.
            begin = spectrum.size(2) - frames if stride == 1 else spectrum.size(2) * 0 + (strides[0] - stride)
            x = layers.residual_mean(stage, x + layers.source_block(stage, spectrum.slice(2, begin), 0))
        return self._causal_conv(self._graph, "conv_post", layers.leaky(x, final=True), 1)

    def _emit(self, x: GraphValue, skipped: GraphValue, last: GraphValue, edge: int) -> None:
        """Add complete samples, and sums that later spectra still overlap: (B, 2, 12)."""
        graph, layers = self._graph, self._layers
        width = self._config.n_fft - self._config.hop
        past = graph.input("past_overlap", ("batch", 2, width))
        added = layers.synthesize(x).unsqueeze(1)
        weights = layers.envelope(x.size(2)).unsqueeze(1).expand(x.size(0), 1, 1)
        total = concat([added, weights], 1)
        total = concat([total.slice(2, 0, width) + past, total.slice(2, width)], 2)
        stop = total.size(2) - width + last * (width - edge)
        ready = total.slice(2, skipped, stop)
        samples = ready.slice(1, 0, 1) / ready.slice(1, 1, 2)
        graph.output("samples", _flat(layers.clip(samples)), ("batch", "samples"))
        graph.output("present_overlap", total.slice(2, -width), ("batch", 2, width))

    def _causal_conv(self, graph: NetworkGraph, name: str, x: GraphValue, dilation: int) -> GraphValue:
        _, inputs, kernel = folded_weight(graph, name).shape
        shape = ("batch", inputs, (kernel - 1) * dilation)
        with_context = concat([self._graph.input(f"past_context.{self._contexts}", shape), x], 2)
        self._graph.output(f"present_context.{self._contexts}", with_context.slice(2, -shape[2]), shape)
        self._contexts += 1
        return self._layers.conv(graph, name, with_context, dilations=[dilation])


def _zeros(x: GraphValue, count: GraphValue) -> GraphValue:
    """As many frames of zeros, with the rows and channels of x: (B, C, count)."""
    return x.constant(0.0).reshape(1, 1, 1).expand(x.size(0), x.size(1), count)


def _reversed(x: GraphValue) -> GraphValue:
    return x.slice(2, -1, np.iinfo(np.int64).min + 1, step=-1)


def _repeated(x: GraphValue, times: int) -> GraphValue:
    """Each frame that often: (B, C, T) -> (B, C, times T)."""
    return x.unsqueeze(3).expand(1, 1, 1, times).reshape(x.size(0), x.size(1), x.size(2) * times)


def _flat(x: GraphValue) -> GraphValue:
    """(B, 1, N) -> (B, N)."""
    return x.reshape(x.size(0), x.size(2))
