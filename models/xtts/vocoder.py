"""The vocoder of XTTS, a HiFi-GAN with speaker conditioning, streamed exactly with a state of constant size.

Its convolutions look to both sides and pad the utterance with zeros, each layer its own input. Here every
layer keeps the inputs that its next outputs depend on, and its outputs are late by its lookahead:

    frames fed      |0 1 2 ... p-1 | p ... p+n-1 |                   a step of n frames
    layer outputs   |   times rate * p - delay ... rate * (p + n) - delay |
                     before 0 and from rate * length on: set to zero, as the padding upstream

So every step has the same work and shapes for every row, in the middle and at the end; at the beginning,
columns that are before the utterance in every row are left out, a seventh of a step of 20 speech ids. The
samples are 3,258 late (136 ms); 13 frames of zeros bring out the last ones. The streamed samples are those of
the whole utterance, whatever the split, at the cost of vocoding it once: upstream vocodes all latents again
for every chunk and cross-fades the seams. A row's state is 0.6 MB.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/vocoder/models/hifigan_generator.py, TTS/tts/layers/xtts/
hifigan_decoder.py (arXiv:2010.05646); layers have the keys of model.pth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..devices.torch_devices import to_device
from ..networks.layers import load_weights
from ..networks.weight_norm import WeightNormConv, WeightNormTransposedConv, join_columns
from .config import VOCODER_HOP, XttsVocoderConfig

_PREFIX = "hifigan_decoder.waveform_decoder."
_EDGE_KERNEL = 7  # of the first and the last convolution
_FINAL_LEAKY_SLOPE = 0.01  # before conv_post; upstream leaves torch's default there
_UNKNOWN_LENGTH = 1 << 40  # frames of an utterance that has not ended


@dataclass(frozen=True, slots=True)
class XttsVocoderState:
    """Memory of the vocoder between steps. Rows may be at any positions."""

    speaker: Tensor  # (B, 512) embedding of the voice
    position: Tensor  # (B,) int64 on the host, frames fed so far
    length: Tensor  # (B,) int64 on the host, frames of the utterance, very large while unknown
    contexts: tuple[Tensor, ...]  # (B, C, inputs kept) of each layer, in running order


class XttsVocoder(nn.Module):
    """The network: ``step`` through an utterance and ``finish`` it."""

    def __init__(self, config: XttsVocoderConfig) -> None:
        super().__init__()
        self.config = config
        stages = range(len(config.upsample_rates))
        entering = [config.base_channels >> stage for stage in stages]
        last = config.channels(stages[-1])
        self.conv_pre = nn.Conv1d(config.input_width, config.base_channels, _EDGE_KERNEL)
        self.cond_layer = nn.Conv1d(config.speaker_width, config.base_channels, 1)
        rates = zip(entering, config.upsample_kernels, config.upsample_rates, strict=True)
        self.ups = nn.ModuleList(
            WeightNormTransposedConv(width, width // 2, kernel, rate) for width, kernel, rate in rates
        )
        self.conds = nn.ModuleList(nn.Conv1d(config.speaker_width, config.channels(i), 1) for i in stages)
        self.resblocks = nn.ModuleList(
            LeakyResBlock(config.channels(stage), kernel, dilations, config.leaky_slope)
            for stage in stages
            for kernel, dilations in zip(config.kernels, config.dilations, strict=True)
        )
        self.conv_post = nn.Conv1d(last, 1, _EDGE_KERNEL, bias=False)

    @classmethod
    def load(cls, config: XttsVocoderConfig, weights: dict[str, Tensor]) -> "XttsVocoder":
        """Build from the tensors of model.pth; used ones are removed from ``weights``.

        Raises RuntimeError that names missing keys.
        """
        with torch.device("meta"):
            network = cls(config)
        keys = [key for key in weights if key.startswith(_PREFIX)]
        load_weights(network, {key.removeprefix(_PREFIX): weights.pop(key) for key in keys})
        return network

    @property
    def delay_samples(self) -> int:
        """Samples by which the output is late."""
        delay = _EDGE_KERNEL // 2
        for stage, up in enumerate(self.ups):
            assert isinstance(up, WeightNormTransposedConv)
            delay = delay * up.stride + up.padding + max(block.delay for block in self.stage_blocks(stage))
        return delay + _EDGE_KERNEL // 2

    @property
    def delay_frames(self) -> int:
        """Frames of zeros that bring out the last samples."""
        return -(-self.delay_samples // VOCODER_HOP)

    def stage_blocks(self, stage: int) -> list["LeakyResBlock"]:
        """The residual blocks after an upsampling stage."""
        count = len(self.config.kernels)
        blocks = self.resblocks[stage * count : (stage + 1) * count]
        return [block for block in blocks if isinstance(block, LeakyResBlock)]

    def init_state(self, speaker: Tensor) -> XttsVocoderState:
        """The state before the first frame, for voices with the embeddings ``speaker``, (B, 512)."""
        rows = len(speaker)
        contexts = tuple(speaker.new_zeros(rows, *shape) for shape in self._context_shapes())
        position = torch.zeros(rows, dtype=torch.int64)
        return XttsVocoderState(speaker, position, torch.full_like(position, _UNKNOWN_LENGTH), contexts)

    @torch.inference_mode()
    def step(self, z: Tensor, state: XttsVocoderState) -> tuple[Tensor, XttsVocoderState]:
        """Feed frames (B, input_width, n), n at least 1; returns samples (B, 256 n) and the new state.

        The first sample has the time 256 * position - delay_samples in the utterance; ``utterance_part``
        tells which of them belong to it.
        """
        run = _StreamedStep(state)
        speaker = state.speaker[:, :, None]
        x = run.edge_convolution(self.conv_pre, z, self.cond_layer(speaker))
        for stage, up in enumerate(self.ups):
            assert isinstance(up, WeightNormTransposedConv)
            x = run.upsample(up, F.leaky_relu(x, self.config.leaky_slope), self.conds[stage](speaker))
            x = run.residual_mean(self.stage_blocks(stage), x)
        x = run.edge_convolution(self.conv_post, F.leaky_relu(x, _FINAL_LEAKY_SLOPE))
        position = state.position + z.shape[2]
        # The front that no row has is put back: it is before the utterance.
        samples = F.pad(torch.tanh(x[:, 0]), (VOCODER_HOP * z.shape[2] - x.shape[2], 0))
        return samples, replace(state, position=position, contexts=tuple(run.following))

    def finish(self, z: Tensor, state: XttsVocoderState) -> list[Tensor]:
        """Feed the last frames (B, input_width, n), n may be 0; returns the remaining samples of each row."""
        ending = replace(state, length=state.position + z.shape[2])
        samples, _ = self.step(F.pad(z, (0, self.delay_frames)), ending)
        parts = (self.utterance_part(ending, row, samples.shape[1]) for row in range(len(samples)))
        return [row[part] for row, part in zip(samples, parts, strict=True)]

    def utterance_part(self, state: XttsVocoderState, row: int, samples: int) -> slice:
        """Which of the ``samples`` that a step from ``state`` makes in a row are of its utterance."""
        first = int(state.position[row]) * VOCODER_HOP - self.delay_samples
        end = int(state.length[row]) * VOCODER_HOP
        return slice(min(samples, max(0, -first)), max(0, min(samples, end - first)))

    def _context_shapes(self) -> Iterator[tuple[int, int]]:
        """Channels and kept inputs of each layer, in running order."""
        yield self.config.input_width, _EDGE_KERNEL - 1
        for stage in range(len(self.ups)):
            channels, blocks = self.config.channels(stage), self.stage_blocks(stage)
            yield 2 * channels, 1
            yield channels, max(block.delay for block in blocks) - min(block.delay for block in blocks)
            for block in blocks:
                for dilated, plain in block.pairs():
                    yield channels, dilated.context_size
                    yield channels, plain.context_size
        yield self.config.channels(len(self.ups) - 1), _EDGE_KERNEL - 1


class LeakyResBlock(nn.Module):
    """Pairs of leaky-rectified convolutions, the first of each pair dilated; each pair adds to its input."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...], leaky_slope: float) -> None:
        super().__init__()
        self.leaky_slope = leaky_slope
        self.convs1 = nn.ModuleList(
            WeightNormConv(channels, channels, kernel, dilation=dilation) for dilation in dilations
        )
        self.convs2 = nn.ModuleList(WeightNormConv(channels, channels, kernel) for _ in dilations)

    def pairs(self) -> Iterator[tuple[WeightNormConv, WeightNormConv]]:
        """(dilated convolution, plain convolution) of each pair, in running order."""
        for dilated, plain in zip(self.convs1, self.convs2, strict=True):
            assert isinstance(dilated, WeightNormConv) and isinstance(plain, WeightNormConv)
            yield dilated, plain

    @property
    def delay(self) -> int:
        """Inputs after its own that an output depends on."""
        return sum((first.context_size + second.context_size) // 2 for first, second in self.pairs())


class _StreamedStep:
    """Runs the layers of one step from their contexts, and collects the next contexts.

    ``_rate`` is the number of columns of the present layer for each frame, ``_delay`` how late they are, and
    ``_left_out`` how many are left out at the front.
    """

    def __init__(self, state: XttsVocoderState) -> None:
        self._state = state
        self._min_position, self._max_position = (int(end) for end in torch.aminmax(state.position))
        self._min_remaining = int((state.length - state.position).min())
        self._contexts = iter(state.contexts)
        self._rate, self._delay, self._left_out = 1, 0, 0
        self.following: list[Tensor] = []

    def edge_convolution(self, conv: nn.Module, x: Tensor, added: Tensor | float = 0.0) -> Tensor:
        """The first or the last convolution: (B, C, T) -> (B, C', T)."""
        self._delay += _EDGE_KERNEL // 2
        return self._trim_front(conv(self._with_context(x)) + added)

    def upsample(self, up: WeightNormTransposedConv, x: Tensor, added: Tensor) -> Tensor:
        """x: (B, C, T) -> (B, C / 2, rate T)."""
        self._rate *= up.stride
        self._delay = self._delay * up.stride + up.padding
        self._left_out *= up.stride
        # With the column before it each input completes ``stride`` outputs; the rest lacks a neighbour.
        start, count = up.stride - up.padding, x.shape[2] * up.stride
        y = up(self._with_context(x))[:, :, start : start + count]
        return self._trim_front(y + added)

    def residual_mean(self, blocks: Sequence[LeakyResBlock], x: Tensor) -> Tensor:
        """Mean of the outputs of blocks; those with less lookahead get older inputs."""
        count, most = x.shape[2], max(block.delay for block in blocks)
        earlier = self._with_context(x)
        outputs = []
        for block in blocks:
            start = earlier.shape[2] - count - (most - block.delay)
            late = self._delay + most - block.delay
            outputs.append(self._run_block(block, earlier[:, :, start : start + count], late))
        self._delay += most
        total = outputs[0]
        for output in outputs[1:]:
            total = total + output
        return self._trim_front(total / len(outputs))

    def _run_block(self, block: LeakyResBlock, x: Tensor, delay: int) -> Tensor:
        for dilated, plain in block.pairs():
            before, count = dilated.context_size, x.shape[2]
            first, second = dilated.context_size // 2, plain.context_size // 2
            with_context = self._with_context(x)
            y = self._inside(dilated(F.leaky_relu(with_context, block.leaky_slope)), delay + first)
            delay += first + second
            y = self._inside(plain(self._with_context(F.leaky_relu(y, block.leaky_slope))), delay)
            # The input at the time of the output.
            start = before - first - second
            x = with_context[:, :, start : start + count] + y
        return x

    def _with_context(self, x: Tensor) -> Tensor:
        context = next(self._contexts)
        joined = join_columns(context, x)
        self.following.append(joined[:, :, joined.shape[2] - context.shape[2] :].clone())
        return joined

    def _trim_front(self, x: Tensor) -> Tensor:
        """Leave out the columns before the utterance in every row, which are zero; the last column stays."""
        before = self._delay - self._rate * self._max_position - self._left_out
        count = max(0, min(before, x.shape[2] - 1))
        self._left_out += count
        return self._inside(x[:, :, count:], self._delay)

    def _inside(self, x: Tensor, delay: int) -> Tensor:
        """Columns outside the utterance set to zero, which is the padding of the next layer."""
        shift = self._left_out - delay  # from the time of the step to that of the first column
        begun = self._min_position * self._rate + shift >= 0
        if begun and self._min_remaining * self._rate >= x.shape[2] + shift:
            return x
        first = self._state.position * self._rate + shift  # (B,) times
        times = first[:, None] + torch.arange(x.shape[2])
        inside = (times >= 0) & (times < self._state.length[:, None] * self._rate)
        return x * to_device(inside, x.device)[:, None]
