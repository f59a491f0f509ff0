"""Writes the vocoder of version 2 as an ONNX graph; a step and the end of an utterance are the same graph.

    vocoder    mel (B, 80, n), noise (B, 480 n, waves), withheld, state -> samples (B, N), next state

``withheld`` is the overlap that a step keeps for the next one, in frames, or 0 at the end of the utterance.

A step renders the samples that it returns and those of its fade. The frames around them are convolved only as
far as these samples depend on them: between two stages, the decoder drops the frames at both ends that the
later stages do not need.

    mel                          | context 16 |              new and overlap              |
    after the first stage                 | 3 | samples out             | fade 4 | 3 |
    after the second stage                  |2| samples out             | fade 4 |2|

Source: ``vocoder.hift_v2``, whose computation and weights these are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from pathlib import Path

import numpy as np
from torch import Tensor

from ...onnx_graphs.graph_builder import OnnxGraphFile
from ..config import MEL_BANDS, HiftConfig
from ..vocoder.hift_v2 import HiftV2Policy
from ..vocoder.layers import F0_LAYERS, POST_KERNEL
from .graph_values import GraphValue, arange, concat
from .network_graph import NetworkGraph
from .vocoder_layers import HiftGraph, folded_weight, reflected, zeros_around


def write_hift_v2(
    path: Path, config: HiftConfig, weights: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write ``vocoder`` of version 2 from the tensors of hift.pt, for the overlaps of the default policy."""
    with OnnxGraphFile(path) as builder:
        _HiftV2Graph(NetworkGraph(builder, weights), config, HiftV2Policy()).add()
        builder.save(metadata)


@dataclass(frozen=True, slots=True)
class _StateGraph:
    """The memory between steps, as in ``HiftV2State``."""

    mel: GraphValue
    source: GraphValue
    noise: GraphValue
    phase: GraphValue
    tail: GraphValue


@dataclass(frozen=True, slots=True)
class _Window:
    """Mel frames from ``start`` to ``stop``, each (1,) int64."""

    start: GraphValue
    stop: GraphValue

    def widened(self, margin: int, limits: "_Window") -> "_Window":
        """With so many frames more at both ends, within the limits."""
        start = (self.start - margin).apply("Max", limits.start)
        return _Window(start, (self.stop + margin).minimum(limits.stop))

    def cut(self, x: GraphValue, kept: "_Window", places: int, beyond: int = 0) -> GraphValue:
        """(B, C, N) with ``places`` for each of these frames and some beyond -> those of the kept ones."""
        start, stop = (kept.start - self.start) * places, (kept.stop - self.start) * places
        return x.slice(2, start, stop + beyond)


def frames_around_stages(config: HiftConfig) -> list[int]:
    """Of each stage, the mel frames of its input on either side of its own that a sample depends on."""
    frames, reach = [], POST_KERNEL // 2 + config.n_fft // (2 * config.hop)  # in places of a stage
    for stage in reversed(range(len(config.upsample_rates))):
        rate, kernel = config.upsample_rates[stage], config.upsample_kernels[stage]
        reach += max(map(_block_reach, config.kernels, config.dilations))
        source = reach + 1 + _block_reach(config.source_kernels[stage], config.source_dilations[stage])
        reach = (reach + kernel - 1 - _upsampling_padding(kernel, rate)) // rate
        places = prod(config.upsample_rates[:stage])
        frames.append(ceil(max(reach / places, source / (places * rate))))
    return frames[::-1]


def _upsampling_padding(kernel: int, rate: int) -> int:
    """Places that an upsampling layer drops at both ends."""
    return (kernel - rate) // 2


def _block_reach(kernel: int, dilations: Sequence[int]) -> int:
    """Places on either side that a residual block depends on."""
    return sum(kernel // 2 * (dilation + 1) for dilation in dilations)


class _HiftV2Graph:
    def __init__(self, graph: NetworkGraph, config: HiftConfig, policy: HiftV2Policy) -> None:
        self._graph, self._config, self._policy = graph, config, policy
        self._size, self._waves = config.samples_per_frame, config.sine_count
        self._layers = HiftGraph(graph, config, self._padded_conv)

    def add(self) -> None:
        graph, size = self._graph, self._size
        new_mel = graph.input("mel", ("batch", MEL_BANDS, "frames"))
        new_noise = graph.input("noise", ("batch", "noise_samples", self._waves))
        state, withheld = self._past_state(), graph.number("withheld")
        mel, noise = concat([state.mel, new_mel], 2), concat([state.noise, new_noise], 1)
        context = state.source.size(2) / size
        padded = [partial(zeros_around, before=1, after=1, axis=1)] * F0_LAYERS
        f0 = self._layers.predict_f0(iter(padded), mel).slice(1, context)
        sines, phases = self._continued_phase_sines(f0, state.phase, context)
        source = concat([state.source, self._layers.source(sines, f0, noise)], 2)
        frames = f0.size(1)
        overlap = withheld.minimum(frames)
        emitted = (frames - overlap) * size
        rendered = (frames - overlap + self._policy.fade_frames).minimum(frames)
        wave = self._decode(mel, source, _Window(context, context + rendered))
        wave = self._cross_fade(state.tail, wave)
        graph.output("samples", wave.slice(1, 0, emitted), ("batch", "samples"))
        boundary = mel.size(2) - overlap
        begin = boundary - boundary.minimum(self._policy.context_frames)
        # Without samples out there is no new seam: the earlier tail stays.
        tails, old = concat([state.tail, wave], 1), state.tail.size(1)
        is_out = emitted > 0
        first = is_out.where(old + emitted, emitted)
        last = is_out.where(old + emitted + self._policy.fade_frames * size, old)
        self._keep_state(
            _StateGraph(
                mel.slice(2, begin),
                source.slice(2, begin * size, boundary * size),
                noise.slice(1, emitted),
                phases.slice(1, frames - overlap, frames - overlap + 1).reshape(mel.size(0), self._waves),
                tails.slice(1, first, last),
            )
        )

    def _past_state(self) -> _StateGraph:
        graph = self._graph
        return _StateGraph(
            graph.input("past_mel", ("batch", MEL_BANDS, "past_frames")),
            graph.input("past_source", ("batch", 1, "past_source_samples")),
            graph.input("past_noise", ("batch", "past_noise_samples", self._waves)),
            graph.input("past_phase", ("batch", self._waves), np.float64),
            graph.input("past_tail", ("batch", "past_tail_samples")),
        )

    def _keep_state(self, state: _StateGraph) -> None:
        graph = self._graph
        graph.output("present_mel", state.mel, ("batch", MEL_BANDS, "present_frames"))
        graph.output("present_source", state.source, ("batch", 1, "present_source_samples"))
        graph.output("present_noise", state.noise, ("batch", "present_noise_samples", self._waves))
        graph.output("present_phase", state.phase, ("batch", self._waves))
        graph.output("present_tail", state.tail, ("batch", "present_tail_samples"))

    def _continued_phase_sines(
        self, f0: GraphValue, phase: GraphValue, context: GraphValue
    ) -> tuple[GraphValue, GraphValue]:
        """(B, T, 480, waves) float32 and the phase of each frame, (B, 1 + T, waves) float64."""
        size = self._size
        turns = self._layers.turns(f0) * float(size)
        start = phase.unsqueeze(1)
        summed = turns.apply("CumSum", self._graph.constant(1, np.int64))
        phases = concat([start, start + summed], 1)
        # The phase is constant before the first frame's middle and after the last one's.
        first, others = turns.slice(1, 0, 1), turns.slice(1, 1)
        rising = concat([first * (context > 0).cast(np.float64), others], 1).unsqueeze(2)
        falling = concat([others, first * 0.0], 1).unsqueeze(2)
        place = (np.arange(size) + 0.5) / size - 0.5
        before, after = (
            self._graph.constant(half[:, None], np.float64)
            for half in (place[: size // 2], place[size // 2 :])
        )
        middle = phases.slice(1, 1).fraction().unsqueeze(2)
        angle = concat([middle + before * rising, middle + after * falling], 2)
        sines = (angle.fraction() * (2 * np.pi)).cast(np.float32).apply("Sin")
        return sines, phases.fraction()

    def _decode(self, mel: GraphValue, source: GraphValue, wanted: "_Window") -> GraphValue:
        """mel: (B, 80, T). source: (B, 1, 480 T). Returns the samples of the wanted frames, clamped."""
        layers, config, edge = self._layers, self._config, self._config.n_fft // 2
        spectrum = layers.analyse(reflected(source, edge, edge))
        x = self._padded_conv(self._graph, "conv_pre", mel, 1)
        held, margins = _Window(mel.size(2) * 0, mel.size(2)), frames_around_stages(config)
        for stage, stride in enumerate(config.source_strides):
            if stage:
                kept = wanted.widened(margins[stage], held)
                x = held.cut(x, kept, prod(config.upsample_rates[:stage]))
                spectrum = held.cut(spectrum, kept, self._size // config.hop, beyond=1)
                held = kept
            x = self._upsample(stage, layers.leaky(x))
            if stride == 1:
                x = reflected(x, 1, 0)  # n hops have n + 1 centred spectra
            x = x + layers.source_block(stage, spectrum, stride // 2)
            x = layers.residual_mean(stage, x)
        x = self._padded_conv(self._graph, "conv_post", layers.leaky(x, final=True), 1)
        whole = (layers.synthesize(x) / layers.envelope(x.size(2))).slice(1, edge, -edge)
        begin, stop = ((place - held.start) * self._size for place in (wanted.start, wanted.stop))
        return layers.clip(whole.slice(1, begin, stop))

    def _upsample(self, stage: int, x: GraphValue) -> GraphValue:
        name, config = f"ups.{stage}", self._config
        stride = config.upsample_rates[stage]
        padding = _upsampling_padding(config.upsample_kernels[stage], stride)
        weight = self._graph.constant(folded_weight(self._graph, name))
        bias = self._graph.constant(self._graph.array(f"{name}.bias"))
        return x.apply("ConvTranspose", weight, bias, strides=[stride], pads=[padding, padding])

    def _padded_conv(self, graph: NetworkGraph, name: str, x: GraphValue, dilation: int) -> GraphValue:
        kernel = folded_weight(graph, name).shape[2]
        padding = (kernel - 1) * dilation // 2
        return self._layers.conv(graph, name, x, pads=[padding, padding], dilations=[dilation])

    def _cross_fade(self, earlier: GraphValue, wave: GraphValue) -> GraphValue:
        """Fade from ``earlier`` (B, n) into ``wave`` (B, N), with weights that add up to one."""
        count = earlier.size(1)
        places = (arange(count).cast(np.float32) + 0.5) / count.apply("Max", count.constant(1)).cast(
            np.float32
        )
        rise = 0.5 - (places * float(np.pi)).apply("Cos") * 0.5
        faded = wave.slice(1, 0, count) * rise + earlier * (1.0 - rise)
        return concat([faded, wave.slice(1, count)], 1)
