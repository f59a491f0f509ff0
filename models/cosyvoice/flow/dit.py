"""The v3 velocity estimator: a diffusion transformer with attention in blocks.

    [x, prompt mel, mu, speaker] 320 -> linear 1024 -> + two grouped convolutions over 31 frames
    22 x ( attention, feed-forward; each normed, then scaled, shifted and gated by the solver time )
    -> norm, scale, shift -> 80

Positions are rotary and turn the first head only: upstream rotates before it splits the heads, and the
weights are trained that way.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/DiT/{dit,modules}.py (after F5-TTS), RotaryEmbedding of
x-transformers 2.11.24; keys as in flow.pt under ``decoder.estimator``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...networks.kernel_support import has_fused_kernels
from ...networks.layers import (
    Linear,
    PreparedModule,
    QkvProjection,
    present,
    sinusoidal_time_features,
    split_keys_values,
)
from ...networks.precision import split_matrices
from ..config import MEL_BANDS, DitConfig
from .attention import attend, read_history, write_chunk
from .attention_memory import AttentionMemory, PagedBuffers, layer_memories
from .attention_plan import AttentionPlan, PagedAttentionPlan
from .policy import CacheForm

TIME_WIDTH = 256
POSITION_KERNEL = 31
POSITION_GROUPS = 16
# Shift, scale and gate of the attention, then of the feed-forward block: each from the solver time.
MODULATION_PARTS = 6
NORM_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class DitState:
    """Memory of one solver step. N rows: each guidance half of each session."""

    first_context: Tensor  # (N, 30, C) of the first position convolution
    second_context: Tensor  # (N, 30, C) of the second
    # (N, depth, P, W, D): rotated keys and values (P 2, D 1024) or modulated inputs (P 1, D 1024)
    cache: AttentionMemory


class _GroupedConv(nn.Sequential):
    """A grouped causal convolution over 31 frames, followed by Mish."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Conv1d(width, width, POSITION_KERNEL, groups=POSITION_GROUPS), nn.Mish())

    def run(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """x: (N, T, C) -> (N, T, C) and the next context, (N, 30, C)."""
        with_context = torch.cat([context, x], 1)
        return self(with_context.transpose(1, 2)).transpose(1, 2), with_context[:, x.shape[1] :].contiguous()


class _PositionConvs(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = _GroupedConv(width)
        self.conv2 = _GroupedConv(width)


class _InputEmbed(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.proj = Linear(inputs, width)
        self.conv_pos_embed = _PositionConvs(width)


class _TimeEmbed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(Linear(TIME_WIDTH, width), nn.SiLU(), Linear(width, width))


class _Modulation(nn.Module):
    """Scales, shifts and gates from the time embedding: (N, C) -> (N, parts, C)."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.linear = Linear(width, parts * width)

    def forward(self, embedding: Tensor) -> Tensor:
        return self.linear(F.silu(embedding)).view(len(embedding), self.parts, -1)  # type: ignore[no-any-return]


class _DitFeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.ff = nn.ModuleList([nn.Sequential(Linear(width, inner)), nn.Identity(), Linear(inner, width)])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.ff[2](F.gelu(self.ff[0](x), approximate="tanh"))
        return y


class _DitAttention(QkvProjection):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__(width, inner, True, ("to_q", "to_k", "to_v"))
        self.to_out = nn.ModuleList([Linear(inner, width)])


class _RotaryAngles:
    """Cosines and sines of the positions of frames, for the first head."""

    def __init__(self, positions: Tensor, rates: Tensor) -> None:
        angles = (positions[..., None] * rates).repeat_interleave(2, -1)
        self.cos, self.sin = angles.cos(), angles.sin()

    def rotate(self, x: Tensor) -> None:
        """Rotate the channels of the first head of x, (N, T, D), in place."""
        head = x[..., : self.cos.shape[-1]]
        even, odd = head[..., ::2], head[..., 1::2]
        head.copy_(head * self.cos + torch.stack([-odd, even], -1).flatten(-2) * self.sin)


class _DitBlock(nn.Module):
    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        width = config.width
        self.heads, self.width, self.head_width = config.heads, width, config.head_width
        self.attn_norm = _Modulation(width, MODULATION_PARTS)
        self.attn = _DitAttention(width, config.inner)
        self.ff = _DitFeedForward(width, width * config.feed_forward_factor)
        self._counters: Tensor | None = None  # of the kernel's launches, made once

    def forward(
        self,
        x: Tensor,
        modulation: Tensor,
        cache: AttentionMemory,
        plan: AttentionPlan,
        cache_form: CacheForm,
        angles: tuple[_RotaryAngles, _RotaryAngles],
    ) -> Tensor:
        """x: (N, T, C) -> (N, T, C).

        modulation: (N or 1, 6, C). cache: (N, P, W, D), written in place. angles: of history and chunk.
        """
        if isinstance(cache, PagedBuffers) and self.has_fused_kernels(x.device):
            assert isinstance(plan, PagedAttentionPlan)
            return self._forward_fused(x, modulation, cache.pool, plan, angles[1])
        shift, scale, gate, ff_shift, ff_scale, ff_gate = modulation[:, :, None].unbind(1)
        inputs = modulate(x, scale, shift)
        query, new_values = self.attn.project_queries(inputs), self._project(inputs, angles[1])
        angles[1].rotate(query)
        history_and_chunk = read_history(
            cache, plan, cache_form, lambda history, _: self._project(history, angles[0]), x.shape[1]
        )
        attended = self.attn.to_out[0](attend(query, new_values, history_and_chunk, plan, self.heads))
        if history_and_chunk is not cache:
            write_chunk(cache, inputs[:, None] if cache_form is CacheForm.INPUTS else new_values, plan)
        if plan.frame_mask is not None:
            attended = attended * plan.frame_mask
        x = torch.addcmul(x, gate, attended)
        return torch.addcmul(x, ff_gate, self.ff(modulate(x, ff_scale, ff_shift)))

    def has_fused_kernels(self, device: torch.device) -> bool:
        """Whether kernels compute the block there."""
        matrices = (self.attn.halves, *(layer.halves for layer in self.linears()))
        if any(halves is None for halves in matrices):
            return False
        return self.head_width % 64 == 0 and has_fused_kernels(device, powers=[self.width, self.head_width])

    def _forward_fused(
        self, x: Tensor, modulation: Tensor, pool: Tensor, plan: PagedAttentionPlan, angles: _RotaryAngles
    ) -> Tensor:
        from ..kernels.flow_kernels import BlockWeights, new_block_counters, run_block

        if self._counters is None:
            self._counters = new_block_counters(x.device)
        parts = modulation[0] if len(modulation) == 1 else modulation.unbind(1)
        shift, scale, gate, ff_shift, ff_scale, ff_gate = parts
        output, widen, narrow = self.linears()
        weights = BlockWeights(
            (scale, shift, ff_scale, ff_shift),
            1.0,
            NORM_EPSILON,
            present(self.attn.halves),
            self.attn.whole_bias,
            output.halves_and_bias(),
            widen.halves_and_bias(),
            narrow.halves_and_bias(),
            "gelu by tanh",
            (gate, ff_gate),
        )
        return run_block(x, weights, pool, plan, self.heads, self._counters, (angles.cos, angles.sin))

    def linears(self) -> tuple[Linear, Linear, Linear]:
        """The product after attention, and those of the feed-forward block."""
        widen = cast(nn.Sequential, self.ff.ff[0])[0]
        return cast(Linear, self.attn.to_out[0]), cast(Linear, widen), cast(Linear, self.ff.ff[2])

    def _project(self, inputs: Tensor, angles: _RotaryAngles) -> Tensor:
        """(N, T, C) -> rotated keys, and values: (N, 2, T, D)."""
        projected = self.attn.project_keys_values(inputs)
        angles.rotate(projected)  # the first head of the keys: values come after all keys
        return split_keys_values(projected)


def modulate(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Layer norm without weights, then scale and shift by the solver time."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON), 1 + scale)


class _RotaryFrequencies(nn.Module):
    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        last = -(head_dim - 2) / head_dim
        self.register_buffer("inv_freq", torch.logspace(0.0, last, head_dim // 2, base=10_000.0))


class FlowDit(PreparedModule):
    """The v3 estimator: ``step`` through frames, with any number of rows."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.config = config
        self.time_embed = _TimeEmbed(config.width)
        self.input_embed = _InputEmbed(config.in_channels, config.width)
        self.rotary_embed = _RotaryFrequencies(config.head_width)
        self.transformer_blocks = nn.ModuleList([_DitBlock(config) for _ in range(config.depth)])
        self.norm_out = _Modulation(config.width, 2)
        self.proj_out = Linear(config.width, MEL_BANDS)

    def prepare(self) -> None:
        """Split the matrices for the fused kernels, where there are such kernels."""
        blocks = cast(Sequence[_DitBlock], self.transformer_blocks)
        split_matrices(layer for block in blocks for layer in (block.attn, *block.linears()))

    def time_embedding(self, t: Tensor) -> Tensor:
        """(N,) solver times in 0..1 -> (N, C)."""
        y: Tensor = self.time_embed.time_mlp(sinusoidal_time_features(t, TIME_WIDTH))
        return y

    def has_fused_kernels(self, device: torch.device) -> bool:
        """Whether kernels compute all blocks there."""
        blocks = [module for module in self.modules() if isinstance(module, _DitBlock)]
        return all(block.has_fused_kernels(device) for block in blocks)

    def time_offsets(self, t: Tensor) -> Tensor:
        """Modulation of all blocks, then scale and shift of the last norm: (N, 6 depth + 2, C)."""
        embedding = self.time_embedding(t)
        parts = [block.get_submodule("attn_norm")(embedding) for block in self.transformer_blocks]
        return torch.cat([*parts, self.norm_out(embedding)], 1)

    def init_state(self, rows: int, frames: int, cache_form: CacheForm, dtype: torch.dtype) -> DitState:
        """The state before the first chunk, with slots for ``frames`` frames."""
        config, rates = self.config, self.rotary_embed.inv_freq
        parts, depth = (2, config.inner) if cache_form is CacheForm.KEYS_VALUES else (1, config.width)
        cache = torch.empty(rows, config.depth, parts, frames, depth, dtype=dtype, device=rates.device)
        first, second = (rates.new_zeros(rows, POSITION_KERNEL - 1, config.width) for _ in range(2))
        return DitState(first, second, cache)

    def step(
        self,
        x: Tensor,
        conditions: Tensor,
        offsets: Tensor,
        state: DitState,
        plan: AttentionPlan,
        cache_form: CacheForm,
    ) -> tuple[Tensor, DitState]:
        """The velocity of a chunk, (N, T, 80), and the next state. The buffer is written in place.

        x: (N, T, 80). conditions: (N, T, 240) mu, speaker, prompt mel. offsets: (N or 1, 6 depth + 2, C) of
        ``time_offsets``.
        """
        mu, speaker, prompt = conditions.chunk(3, 2)
        x = self.input_embed.proj(torch.cat([x, prompt, mu, speaker], 2))
        convs = self.input_embed.conv_pos_embed
        positions, first = convs.conv1.run(x, state.first_context)
        positions, second = convs.conv2.run(positions, state.second_context)
        x = x + positions
        angles = tuple(
            _RotaryAngles(frames, self.rotary_embed.inv_freq)
            for frames in (plan.history_positions, plan.positions)
        )
        memories = zip(self.transformer_blocks, layer_memories(state.cache), strict=True)
        for index, (block, memory) in enumerate(memories):
            modulation = offsets[:, MODULATION_PARTS * index : MODULATION_PARTS * (index + 1)]
            x = block(x, modulation, memory, plan, cache_form, angles)
        scale, shift = offsets[:, -2:, None].unbind(1)
        return self.proj_out(modulate(x, scale, shift)), DitState(first, second, state.cache)
