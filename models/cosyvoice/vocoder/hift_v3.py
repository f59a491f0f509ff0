"""The v3 vocoder, streamed exactly: causal except for four mel frames, with a state of constant size.

Every convolution keeps its own context, so that no frame is rendered twice. A step renders every frame that
has four frames after it:

    mel      ... M-1 | M   M+1 M+2 M+3       pending: the network looks four frames ahead, f0 three
    f0, source ............M |               one frame further than the network: a spectrum reaches 8 samples
                                             into frame M
    spectra  ... 120 M |                     of the source and of the network, every 4 samples
    samples  ... 480 M - 4 |                 complete; later spectra still overlap the rest

Upstream vocodes the whole utterance again for every chunk and withholds four frames more. A session's state
is 611 kB, whatever the length of the utterance. Noise is uniform, and the same in every utterance: see
``noise_table``.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/{generator,f0_predictor}.py (CausalHiFTGenerator, SineGen2 with
causal True, CausalConvRNNF0Predictor), transformer/convolution.py (CausalConv1d, CausalConv1dDownSample,
CausalConv1dUpsample); keys as in hift.pt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...networks.weight_norm import WeightNormConv, join_columns
from ..config import MEL_BANDS, HiftConfig
from ..config import VOCODER_LOOKAHEAD_FRAMES as LOOKAHEAD_FRAMES
from .layers import F0_LAYERS, HiftNetwork, ResBlock, StageRunner, scaled_sum, turns_per_sample

F0_LOOKAHEAD_FRAMES = 3
F0_KERNEL = 3  # of the causal layers behind the first


@dataclass(frozen=True, slots=True)
class HiftV3State:
    """Memory of the vocoder between steps. Rows of a batch have all been stepped, or none of them."""

    mel: Tensor  # (B, 80, 4) pending frames; 0 wide at the beginning
    f0: tuple[Tensor, ...]  # (B, C, 2) float64, contexts of the causal layers of the f0 predictor
    phase: Tensor  # (B, waves) float64, turns in a sample, summed over all frames so far
    source: Tensor  # (B, 484) samples that later spectra cover; 0 wide at the beginning
    spectrum: Tensor  # (B, 18, 15) source spectra; 14 at the beginning
    convs: tuple[Tensor, ...]  # (B, C, context) of each convolution, in running order
    overlap: Tensor  # (B, 2, 12) incomplete samples, and the sum of squared windows on them


class _VocoderContexts:
    """Hands out the contexts of convolutions in running order, and collects the next ones."""

    def __init__(self, contexts: tuple[Tensor, ...]) -> None:
        self._contexts = iter(contexts)
        self.following: list[Tensor] = []

    def run(self, conv: WeightNormConv, x: Tensor) -> Tensor:
        """Run a causal convolution: (B, C, T) -> (B, C', T)."""
        with_context = join_columns(next(self._contexts), x)
        self.following.append(with_context[:, :, with_context.shape[2] - conv.context_size :].clone())
        y: Tensor = conv(with_context)
        return y

    def run_block(
        self, block: ResBlock, x: Tensor, total: Tensor | None = None, factor: float = 1.0
    ) -> Tensor:
        """Run a residual block, and add a total: (B, C, T) -> ``factor`` times both, (B, C, T)."""
        if block.has_fused_kernels:
            contexts = [next(self._contexts) for _ in block.fused_convs]
            x, following = block.run_fused(x, contexts, total, factor)
            self.following += following
            return x
        for first, dilated, second, plain in block.pairs():
            x = x + self.run(plain, second(self.run(dilated, first(x))))
        return scaled_sum(x, total, factor)


class _UpsampleConv(WeightNormConv):
    """Each sample repeated, then a causal convolution."""

    def __init__(self, inputs: int, outputs: int, kernel: int, factor: int) -> None:
        super().__init__(inputs, outputs, kernel)
        self.factor = factor


class _CausalRunner(StageRunner):
    """Runs layers of a chunk, each from its own context.

    spectrum: (B, 18, 15 + F) source spectra with their context, 14 + F at the beginning. frames: F.
    """

    def __init__(
        self,
        network: HiftNetwork,
        spectrum: Tensor,
        frames: int,
        contexts: _VocoderContexts,
        *,
        is_beginning: bool,
    ) -> None:
        self._network, self._spectrum, self._frames = network, spectrum, frames
        self._contexts = contexts
        self.is_beginning = is_beginning

    def upsample(self, stage: int, x: Tensor) -> Tensor:
        up = self._network.ups[stage]
        assert isinstance(up, _UpsampleConv)
        return self._contexts.run(up, x.repeat_interleave(up.factor, 2))

    def add_source(self, stage: int, x: Tensor) -> Tensor:
        down = self._network.source_downs[stage](self._spectrum[:, :, self._first_spectrum(stage) :])
        block = self._network.source_resblocks[stage]
        assert isinstance(block, ResBlock)
        return self._contexts.run_block(block, down, x)

    def residual_mean(self, blocks: Sequence[ResBlock], x: Tensor) -> Tensor:
        *others, last = blocks
        total: Tensor | None = None
        for block in others:
            total = self._contexts.run_block(block, x, total)
        return self._contexts.run_block(last, x, total, 1 / len(blocks))

    def post(self, x: Tensor) -> Tensor:
        return self._contexts.run(self._network.conv_post, x)

    def _first_spectrum(self, stage: int) -> int:
        """Index of the first spectrum that the source convolution of a stage reads."""
        first_stride, stride = (
            self._network.config.source_strides[0],
            self._network.config.source_strides[stage],
        )
        if stride == 1:  # a kernel of 1: new spectra only
            return self._spectrum.shape[2] - self._frames
        # A window is two strides wide. The context is as long as the largest stride, that of the first stage.
        return first_stride - stride


class HiftV3(HiftNetwork):
    """The v3 vocoder: ``step`` through an utterance and ``finish`` it."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__(
            config,
            pre_kernel=LOOKAHEAD_FRAMES + 1,
            f0_kernels=(F0_LOOKAHEAD_FRAMES + 1, *(F0_KERNEL,) * (F0_LAYERS - 1)),
            upsampling=_UpsampleConv,
            source_padding=lambda stride: 0,
        )

    def init_state(self, rows: int) -> HiftV3State:
        """The state before the first chunk."""
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
        """Samples of noise that ``step``, or ``finish`` if ``last``, needs for ``mel_frames`` new frames."""
        is_beginning = not state.mel.shape[2]
        return self.config.samples_per_frame * noise_frames(mel_frames, is_beginning=is_beginning, last=last)

    @torch.inference_mode()
    def step(self, mel: Tensor, noise: Tensor, state: HiftV3State) -> tuple[Tensor, HiftV3State]:
        """Render a chunk: (B, 480 (n - 4) - 4) samples at the beginning, (B, 480 n) afterwards.

        mel: (B, 80, n). noise: (B, ``noise_samples``, waves), uniform in 0..1. Raises ValueError for a first
        chunk of fewer than 5 frames.
        """
        check_first_chunk(mel, state.mel)
        samples, following, _ = self._render(mel, noise, state, last=False)
        return samples, following

    @torch.inference_mode()
    def finish(self, mel: Tensor, noise: Tensor, state: HiftV3State) -> Tensor:
        """Render all remaining samples. mel: (B, 80, n), n may be 0 except at the beginning."""
        return self._render(mel, noise, state, last=True)[0]

    def render_whole(self, mel: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Render a whole mel with gradients, for training; the source gives the pitch none.

        mel: (B, 80, T). noise: (B, 480 T, waves). Returns samples (B, 480 T) and pitch (B, T) Hz.
        """
        samples, _, f0 = self._render(mel, noise, self.init_state(len(mel)), last=True)
        return samples, f0

    def _render(
        self, mel: Tensor, noise: Tensor, state: HiftV3State, *, last: bool
    ) -> tuple[Tensor, HiftV3State, Tensor]:
        beginning = not state.mel.shape[2]
        with_pending = torch.cat([state.mel, mel], 2)
        f0, f0_contexts = self.predict_f0(
            with_pending if beginning else with_pending[:, :, LOOKAHEAD_FRAMES - F0_LOOKAHEAD_FRAMES :],
            state.f0,
            last=last,
        )
        heard = f0.detach()
        sines, phase = frame_phase_sines(heard, state.phase, self.config)
        new_source = self.m_source(sines, heard, noise)[:, 0]
        source, frames = self._source_window(
            new_source, state.source, with_pending.shape[2], beginning=beginning, last=last
        )
        spectrum = torch.cat([state.spectrum, self.spectra.analyse(source)[:, :, :frames]], 2)
        contexts = _VocoderContexts(state.convs)
        runner = _CausalRunner(self, spectrum, frames, contexts, is_beginning=beginning)
        x = self.conv_pre(F.pad(with_pending, (0, LOOKAHEAD_FRAMES)) if last else with_pending)
        x = self.run_stages(x, runner)
        samples, overlap = self._overlap(x, state.overlap, beginning=beginning, last=last)
        following = HiftV3State(
            with_pending[:, :, with_pending.shape[2] - LOOKAHEAD_FRAMES :].clone(),
            f0_contexts,
            phase,
            source[:, frames * self.config.hop :].clone(),
            spectrum[:, :, spectrum.shape[2] - self.config.source_strides[0] :].clone(),
            tuple(contexts.following),
            overlap,
        )
        return samples, following, f0

    def predict_f0(
        self, mel: Tensor, contexts: tuple[Tensor, ...], *, last: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """mel: (B, 80, T) -> (B, T - 3) Hz, all T if ``last``, and the next contexts of the causal layers."""
        first, *others = self.f0_predictor.convs()
        causal = _VocoderContexts(contexts)
        h = F.elu(first((F.pad(mel, (0, F0_LOOKAHEAD_FRAMES)) if last else mel).double()))
        for conv in others:
            h = F.elu(causal.run(conv, h))
        return self.f0_predictor.to_hz(h), tuple(causal.following)

    def _source_window(
        self, new_source: Tensor, earlier: Tensor, mel_frames: int, *, beginning: bool, last: bool
    ) -> tuple[Tensor, int]:
        """The samples under the spectra of this step, and the number of spectra.

        The ends of the utterance are padded by reflection, as a centred transform pads them.
        """
        edge, hops = self.config.n_fft // 2, self.config.samples_per_frame // self.config.hop
        before = new_source[:, 1 : edge + 1].flip(1) if beginning else earlier
        after = [new_source[:, -edge - 1 : -1].flip(1)] if last else []
        frames = hops * (mel_frames if last else mel_frames - LOOKAHEAD_FRAMES) + int(beginning)
        return torch.cat([before, new_source, *after], 1), frames

    def _overlap(self, x: Tensor, earlier: Tensor, *, beginning: bool, last: bool) -> tuple[Tensor, Tensor]:
        """x: (B, 18, F) -> complete samples (B, N), and (B, 2, 12) that later spectra still overlap."""
        edge, limit, width = self.config.n_fft // 2, self.config.max_amplitude, earlier.shape[2]
        added = self.spectra.overlap_add(self.spectra.inverse(x))
        total = torch.stack([added, self.spectra.envelope(x.shape[2]).expand_as(added)], 1)
        total[:, :, :width] += earlier
        ready = total[:, :, (edge if beginning else 0) : -edge if last else -width]
        return (ready[:, 0] / ready[:, 1]).clamp(-limit, limit), total[:, :, -width:].clone()

    def _causal_convs(self) -> Iterator[WeightNormConv]:
        """Every convolution with a context, in running order."""
        for stage, up in enumerate(self.ups):
            assert isinstance(up, WeightNormConv)
            yield up
            for block in (self.source_resblocks[stage], *self.stage_blocks(stage)):
                assert isinstance(block, ResBlock)
                for _, dilated, _, plain in block.pairs():
                    yield from (dilated, plain)
        yield self.conv_post


def frame_phase_sines(f0: Tensor, phase: Tensor, config: HiftConfig) -> tuple[Tensor, Tensor]:
    """Sines whose phase is constant in a frame, (B, 480 T, waves), and the turns so far, (B, waves).

    f0: (B, T) Hz. The network was trained on this staircase. Turns are summed in double precision and then
    rounded to upstream's single precision, so that every split into chunks gives the same samples.
    """
    total = phase[:, None] + turns_per_sample(f0, config).double().cumsum(1)
    angles = total.float() * 2 * torch.pi * config.samples_per_frame
    return angles.sin().repeat_interleave(config.samples_per_frame, 1), total[:, -1]


def check_first_chunk(mel: Tensor, pending: Tensor) -> None:
    """Raise ValueError for a first chunk, (B, 80, n), that is too short to render anything."""
    if not pending.shape[2] and mel.shape[2] <= LOOKAHEAD_FRAMES:
        raise ValueError(
            f"the first chunk has {mel.shape[2]} frames; allowed: more than {LOOKAHEAD_FRAMES}, or finish"
        )


def noise_frames(mel_frames: int, *, is_beginning: bool, last: bool) -> int:
    """Frames whose source a step computes: new ones and those pending before it, less those pending after."""
    before, after = 0 if is_beginning else F0_LOOKAHEAD_FRAMES, 0 if last else F0_LOOKAHEAD_FRAMES
    return max(0, mel_frames + before - after)
