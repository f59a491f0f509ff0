"""The v3 vocoder: causal but for four mel frames, streamed exactly, with a bounded state.

Every convolution keeps its own context, so that no frame is rendered twice. A step renders all frames that
have four frames after them:

    mel      ... M-1 | M   M+1 M+2 M+3       pending: x looks four frames ahead, f0 three
    f0, source ............M |               one frame further than x: a spectrum reaches 8 samples into it
    spectra  ... 120 M |                     the source's and the network's, every 4 samples
    samples  ... 480 M - 4 |                 given out; the rest is in the overlap of later spectra

Upstream vocodes the whole utterance again for every chunk and gives out four frames less. A session's state
is 611 kB, whatever the length.

The noise is uniform, not normal, and the same in every utterance: ``NoiseTable``.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/{generator,f0_predictor}.py (CausalHiFTGenerator, SineGen2 with
causal True, CausalConvRNNF0Predictor), transformer/convolution.py (CausalConv1d, CausalConv1dDownSample,
CausalConv1dUpsample); keys as in hift.pt.
"""

from collections.abc import Iterator
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
    turns_per_sample,
)

LOOKAHEAD_FRAMES = 4
F0_LOOKAHEAD_FRAMES = 3
POST_KERNEL = 7


@dataclass(frozen=True, slots=True)
class HiftV3State:
    """What the vocoder remembers between steps. B rows, equally far from their beginnings or all past them.

    ``mel``: (B, 80, 4) frames pending, 0 wide at a beginning. ``f0``: contexts of the f0 predictor's causal
    layers. ``phase``: (B, waves) float64, turns a sample added up over all frames so far. ``source``: (B,
    484) samples that spectra to come reach back to. ``spectrum``: (B, 18, 15) source spectra, 14 at a
    beginning. ``convs``: contexts in the order of the convolutions. ``overlap``: (B, 2, 12) unfinished
    samples, and the squared windows on them.
    """

    mel: Tensor
    f0: tuple[Tensor, ...]
    phase: Tensor
    source: Tensor
    spectrum: Tensor
    convs: tuple[Tensor, ...]
    overlap: Tensor


class _VocoderContexts:
    """Hands out convolution contexts in order, and takes the next ones in."""

    def __init__(self, held: tuple[Tensor, ...]) -> None:
        self._held = iter(held)
        self.following: list[Tensor] = []

    def run(self, conv: WeightNormConv, x: Tensor) -> Tensor:
        """A causal convolution: (B, C, T) -> (B, C', T)."""
        with_pending = torch.cat([next(self._held), x], 2)
        self.following.append(with_pending[:, :, with_pending.shape[2] - conv.context_size :].clone())
        y: Tensor = conv(with_pending)
        return y

    def run_block(self, block: ResBlock, x: Tensor) -> Tensor:
        for first, dilated, second, plain in block.pairs():
            x = x + self.run(plain, second(self.run(dilated, first(x))))
        return x


class _UpsampleConv(WeightNormConv):
    """Each sample repeated, then a causal convolution."""

    def __init__(self, inputs: int, outputs: int, kernel: int, factor: int) -> None:
        super().__init__(inputs, outputs, kernel)
        self.factor = factor


class HiftV3(nn.Module):
    """The v3 vocoder: ``step`` and ``finish`` with a state."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        stages = range(len(config.upsample_rates))
        self.m_source = HarmonicSource(config)
        self.conv_pre = WeightNormConv(MEL_BANDS, config.base_channels, LOOKAHEAD_FRAMES + 1)
        self.ups = nn.ModuleList(
            [
                _UpsampleConv(
                    config.base_channels >> stage,
                    config.channels(stage),
                    config.upsample_kernels[stage],
                    config.upsample_rates[stage],
                )
                for stage in stages
            ]
        )
        self.source_downs = nn.ModuleList([_source_down(config, stage) for stage in stages])
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
        self.f0_predictor = F0Predictor(
            config.f0_channels, (F0_LOOKAHEAD_FRAMES + 1, *(3,) * (F0_LAYERS - 1))
        )
        self.spectra = ShortTimeSpectra(config)

    def init_state(self, rows: int) -> HiftV3State:
        """A beginning."""
        config, empty = self.config, self.conv_post.bias.new_zeros
        f0 = tuple(
            empty(rows, conv.inputs, conv.context_size, dtype=torch.float64)
            for conv in self.f0_predictor.convs()[1:]
        )
        convs = tuple(empty(rows, conv.inputs, conv.context_size) for conv in self._causal_convs())
        return HiftV3State(
            empty(rows, MEL_BANDS, 0),
            f0,
            empty(rows, config.sine_count, dtype=torch.float64),
            empty(rows, 0),
            empty(rows, config.n_fft + 2, config.source_strides[0] - 1),
            convs,
            empty(rows, 2, config.n_fft - config.hop),
        )

    def noise_samples(self, mel_frames: int, state: HiftV3State, *, last: bool) -> int:
        """How many samples of noise a step on so many new frames takes."""
        return self.config.samples_per_frame * max(
            0, mel_frames + _pending_frames(state.mel, F0_LOOKAHEAD_FRAMES, last=last)
        )

    def step(self, mel: Tensor, noise: Tensor, state: HiftV3State) -> tuple[Tensor, HiftV3State]:
        """Samples of a chunk: (B, 480 (n - 4) - 4) at a beginning, (B, 480 n) afterwards.

        mel: (B, 80, n), at least 5 frames at a beginning. noise: (B, ``noise_samples``, waves), uniform in
        0..1.
        """
        if not state.mel.shape[2] and mel.shape[2] <= LOOKAHEAD_FRAMES:
            raise ValueError(
                f"the first chunk has {mel.shape[2]} frames; allowed: more than {LOOKAHEAD_FRAMES}, or finish"
            )
        return self._render(mel, noise, state, last=False)

    def finish(self, mel: Tensor, noise: Tensor, state: HiftV3State) -> Tensor:
        """All samples that remain after a last chunk. mel: (B, 80, n), n may be 0 except at a beginning."""
        return self._render(mel, noise, state, last=True)[0]

    @torch.inference_mode()
    def _render(
        self, mel: Tensor, noise: Tensor, state: HiftV3State, *, last: bool
    ) -> tuple[Tensor, HiftV3State]:
        beginning = not state.mel.shape[2]
        with_pending = torch.cat([state.mel, mel], 2)
        f0, f0_contexts = self.predict_f0(
            with_pending if beginning else with_pending[:, :, LOOKAHEAD_FRAMES - F0_LOOKAHEAD_FRAMES :],
            state.f0,
            last=last,
        )
        sines, phase = frame_phase_sines(f0, state.phase, self.config)
        new_source = self.m_source(sines, f0, noise)[:, 0]
        source, frames = self._source_window(
            new_source, state.source, with_pending.shape[2], beginning=beginning, last=last
        )
        spectrum = torch.cat([state.spectrum, self.spectra.analyse(source)[:, :, :frames]], 2)
        contexts = _VocoderContexts(state.convs)
        x = self.conv_pre(F.pad(with_pending, (0, LOOKAHEAD_FRAMES)) if last else with_pending)
        x = self._network(x, spectrum, frames, contexts, beginning=beginning)
        samples, overlap = self._overlap(x, state.overlap, beginning=beginning, last=last)
        held = HiftV3State(
            with_pending[:, :, with_pending.shape[2] - LOOKAHEAD_FRAMES :].clone(),
            f0_contexts,
            phase,
            source[:, frames * self.config.hop :].clone(),
            spectrum[:, :, spectrum.shape[2] - self.config.source_strides[0] :].clone(),
            tuple(contexts.following),
            overlap,
        )
        return samples, held

    def predict_f0(
        self, mel: Tensor, held: tuple[Tensor, ...], *, last: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """mel: (B, 80, T) -> (B, T - 3) Hz, all T if ``last``, and the contexts of the causal layers."""
        first, *others = self.f0_predictor.convs()
        contexts = _VocoderContexts(held)
        h = F.elu(first((F.pad(mel, (0, F0_LOOKAHEAD_FRAMES)) if last else mel).double()))
        for conv in others:
            h = F.elu(contexts.run(conv, h))
        return self.f0_predictor.to_hz(h), tuple(contexts.following)

    def _source_window(
        self, new_source: Tensor, held: Tensor, mel_frames: int, *, beginning: bool, last: bool
    ) -> tuple[Tensor, int]:
        """The samples under the spectra of this step, and how many spectra there are."""
        edge, hops = self.config.n_fft // 2, self.config.samples_per_frame // self.config.hop
        before = new_source[:, 1 : edge + 1].flip(1) if beginning else held
        after = [new_source[:, -edge - 1 : -1].flip(1)] if last else []
        frames = hops * (mel_frames if last else mel_frames - LOOKAHEAD_FRAMES) + int(beginning)
        return torch.cat([before, new_source, *after], 1), frames

    def _network(
        self, x: Tensor, spectrum: Tensor, frames: int, contexts: _VocoderContexts, *, beginning: bool
    ) -> Tensor:
        """x: (B, C, m) after conv_pre. spectrum: (B, 18, 15 + F) with its context -> (B, 18, F)."""
        config = self.config
        for stage, up in enumerate(self.ups):
            assert isinstance(up, _UpsampleConv)
            x = contexts.run(up, F.leaky_relu(x, config.leaky_slope).repeat_interleave(up.factor, 2))
            if beginning and stage == len(self.ups) - 1:
                x = F.pad(x, (1, 0), mode="reflect")
            x = x + self._source_branch(stage, spectrum, frames, contexts)
            blocks = self.resblocks[stage * len(config.kernels) :][: len(config.kernels)]
            parts = [contexts.run_block(block, x) for block in blocks if isinstance(block, ResBlock)]
            x = torch.stack(parts).mean(0)
        return contexts.run(self.conv_post, F.leaky_relu(x, FINAL_LEAKY_SLOPE))

    def _source_branch(self, stage: int, spectrum: Tensor, frames: int, contexts: _VocoderContexts) -> Tensor:
        stride = self.config.source_strides[stage]
        # At a beginning the first spectrum stands where an inner stride has its own context's last.
        reach = (
            stride - 1 + (spectrum.shape[2] - frames - (self.config.source_strides[0] - 1))
            if stride > 1
            else 0
        )
        down = self.source_downs[stage](spectrum[:, :, spectrum.shape[2] - frames - reach :])
        block = self.source_resblocks[stage]
        assert isinstance(block, ResBlock)
        return contexts.run_block(block, down)

    def _overlap(self, x: Tensor, held: Tensor, *, beginning: bool, last: bool) -> tuple[Tensor, Tensor]:
        """x: (B, 18, F) -> samples that are complete, and (B, 2, 12) of what is not."""
        edge, limit, width = self.config.n_fft // 2, self.config.max_amplitude, held.shape[2]
        added = self.spectra.overlap_add(self.spectra.inverse(x))
        total = torch.stack([added, self.spectra.envelope(x.shape[2]).expand_as(added)], 1)
        total[:, :, :width] += held
        ready = total[:, :, (edge if beginning else 0) : -edge if last else -width]
        return (ready[:, 0] / ready[:, 1]).clamp(-limit, limit), total[:, :, -width:].clone()

    def _causal_convs(self) -> Iterator[WeightNormConv]:
        """Every convolution with a context, in the order in which they run."""
        count = len(self.config.kernels)
        for stage, up in enumerate(self.ups):
            assert isinstance(up, WeightNormConv)
            yield up
            for block in (self.source_resblocks[stage], *self.resblocks[stage * count : (stage + 1) * count]):
                assert isinstance(block, ResBlock)
                for _, dilated, _, plain in block.pairs():
                    yield from (dilated, plain)
        yield self.conv_post


def frame_phase_sines(f0: Tensor, phase: Tensor, config: HiftConfig) -> tuple[Tensor, Tensor]:
    """Sines whose phase stands still in a frame, as learned: (B, 480 T, waves), and the turns so far.

    Added up in double precision and rounded as upstream's single precision sum is, so that any cut gives the
    same.
    """
    total = phase[:, None] + turns_per_sample(f0, config).double().cumsum(1)
    angles = total.float() * 2 * torch.pi * config.samples_per_frame
    return angles.sin().repeat_interleave(config.samples_per_frame, 1), total[:, -1]


def _source_down(config: HiftConfig, stage: int) -> nn.Conv1d:
    stride = config.source_strides[stage]
    return nn.Conv1d(config.n_fft + 2, config.channels(stage), 2 * stride if stride > 1 else 1, stride)


def _pending_frames(mel: Tensor, lookahead: int, *, last: bool) -> int:
    """Frames that a step renders beside its new ones: those pending, less those that will be."""
    held = lookahead if mel.shape[2] else 0
    return held - (0 if last else lookahead)
