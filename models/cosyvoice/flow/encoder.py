"""The v2 token encoder: speech ids at 25 Hz to the flow's conditioning at 50 Hz, chunk by chunk.

    ids    0 . . . . . . . . 24 | 25 26 27          step of 25 ids; the next three are lookahead
    25 Hz  lookahead convolutions, 6 layers with attention in blocks of 25
    50 Hz  each frame doubled, convolution over 5 frames, 4 layers with attention in blocks of 50

Attention uses relative positions: a second term of each score is the product of the query and a projected
sine table at the distance between frame and key. The distances come from the plan of the chunk, so that a
ring buffer needs no reordering.

Source: FunAudioLLM/CosyVoice@ace7c47 transformer/upsample_encoder.py (UpsampleConformerEncoder),
transformer/{attention,embedding,encoder_layer,positionwise_feed_forward}.py; keys as in flow.pt under
``encoder``.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...networks.layers import CausalConv, Linear, QkvProjection, split_keys_values
from ..config import FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, EncoderConfig
from .attention import ScoreBias, attend, split_heads
from .attention_memory import AttentionMemory, layer_memories
from .attention_plan import AttentionPlan, PagedAttentionPlan, RowGroup, WholeAttentionPlan


@dataclass(frozen=True, slots=True)
class EncoderState:
    """Memory of the encoder between chunks."""

    lookahead_context: Tensor  # (B, 2, C) of the second lookahead convolution
    upsample_context: Tensor  # (B, 4, C) of the convolution after doubling
    id_memory: AttentionMemory  # (B, layers, 2, W / 2, C) keys and values at 25 Hz
    frame_memory: AttentionMemory  # (B, up layers, 2, W, C) keys and values at 50 Hz


class LookaheadLayer(nn.Module):
    """Adds information of the next three ids: a convolution that looks ahead, then a causal one.

    conv1, kernel 4              x(t)  x(t+1)  x(t+2)  x(t+3)   -> h(t)
    conv2, kernel 3   h(t-2)  h(t-1)  h(t)                      -> added to x(t)
    """

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.conv1 = CausalConv(width, inner, LOOKAHEAD_IDS + 1)
        self.conv2 = CausalConv(inner, width, 3)

    def forward(self, x: Tensor, future: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's output (B, T, C) and its next context.

        x: (B, T, C). future: (B, 3, C), or (B, 0, C) at the end of the utterance. context: (B, 2, inner).
        """
        with_future = F.pad(torch.cat([x, future], 1), (0, 0, 0, LOOKAHEAD_IDS - future.shape[1]))
        # conv1 is causal too: shifted by three frames, its context is the beginning of x.
        h, _ = self.conv1(with_future[:, LOOKAHEAD_IDS:], with_future[:, :LOOKAHEAD_IDS])
        h, context = self.conv2(F.leaky_relu(h), context)
        return x + h, context


class _InputProjection(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.ModuleList([Linear(width, width), nn.LayerNorm(width)])

    def forward(self, x: Tensor) -> Tensor:
        return self.out[1](self.out[0](x)) * math.sqrt(x.shape[-1])  # type: ignore[no-any-return]


class _RelativeAttention(QkvProjection):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, width, True, ("linear_q", "linear_k", "linear_v"))
        self.heads = heads
        self.linear_out = Linear(width, width)
        self.linear_pos = Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, width // heads))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, width // heads))

    def forward(
        self, x: Tensor, cache: AttentionMemory, plan: AttentionPlan, table: "_DistanceTable"
    ) -> Tensor:
        """x: (B, T, C) -> (B, T, C). cache: (B, 2, W, C), written in place."""
        query = self.project_queries(x) + self.pos_bias_u.flatten()
        new_values = split_keys_values(self.project_keys_values(x))
        attended = attend(query, new_values, cache, plan, self.heads, self._distance_scores(table))
        return self.linear_out(attended)  # type: ignore[no-any-return]

    def _distance_scores(self, table: "_DistanceTable") -> ScoreBias:
        """The position term of the scores: (q + v) p / sqrt(d), where the queries given are q + u."""
        projected = split_heads(self.linear_pos(table.sines)[None], self.heads)
        shift = (self.pos_bias_v - self.pos_bias_u)[:, None]
        scale = 1 / math.sqrt(projected.shape[-1])

        def scores(query: Tensor, part: RowGroup | PagedAttentionPlan | WholeAttentionPlan) -> Tensor:
            by_distance = ((query + shift) * scale) @ projected.transpose(-1, -2)
            return table.gather_by_slot(by_distance, part)

        return scores


class _EncoderFeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w_1 = Linear(width, inner)
        self.w_2 = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.w_2(F.silu(self.w_1(x)))
        return y


class _EncoderLayer(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.self_attn = _RelativeAttention(config.width, config.heads)
        self.feed_forward = _EncoderFeedForward(config.width, config.inner)
        self.norm_ff = nn.LayerNorm(config.width, eps=1e-12)
        self.norm_mha = nn.LayerNorm(config.width, eps=1e-12)

    def forward(
        self, x: Tensor, cache: AttentionMemory, plan: AttentionPlan, table: "_DistanceTable"
    ) -> Tensor:
        x = x + self.self_attn(self.norm_mha(x), cache, plan, table)
        return x + self.feed_forward(self.norm_ff(x))  # type: ignore[no-any-return]


class _DistanceTable:
    """The sine table for all distances of a plan, from the end of a block to its oldest key."""

    def __init__(self, plan: AttentionPlan, x: Tensor) -> None:
        self.min_distance, max_distance = plan.distance_range
        self.sines = sine_table(self.min_distance, max_distance, x.shape[2], x.device).to(x.dtype)

    def gather_by_slot(
        self, by_distance: Tensor, part: RowGroup | PagedAttentionPlan | WholeAttentionPlan
    ) -> Tensor:
        """Scores by distance, (n, H, block, distances) -> scores by slot, (n, H, block, visible)."""
        index = part.distances_back - self.min_distance
        return by_distance.gather(3, index.expand(*by_distance.shape[:2], -1, -1))


def sine_table(min_distance: int, max_distance: int, width: int, device: torch.device) -> Tensor:
    """Interleaved sines and cosines of ``min_distance`` to ``max_distance``: (distances, width)."""
    distance = torch.arange(min_distance, max_distance + 1, device=device, dtype=torch.float32)
    rates = torch.exp(
        torch.arange(0, width, 2, device=device, dtype=torch.float32) * -(math.log(10000.0) / width)
    )
    angles = distance[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


class _UpsampleLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = CausalConv(width, width, 2 * FRAMES_PER_SPEECH_ID + 1)


class FlowEncoder(nn.Module):
    """The v2 token encoder: ``step`` through embedded ids."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.width
        self.config = config
        self.embed = _InputProjection(width)
        self.pre_lookahead_layer = LookaheadLayer(width, width)
        self.encoders = nn.ModuleList([_EncoderLayer(config) for _ in range(config.layers)])
        self.up_layer = _UpsampleLayer(width)
        self.up_embed = _InputProjection(width)
        self.up_encoders = nn.ModuleList([_EncoderLayer(config) for _ in range(config.up_layers)])
        self.after_norm = nn.LayerNorm(width)

    def init_state(self, rows: int, frames: int) -> EncoderState:
        """The state before the first chunk, with slots for ``frames`` mel frames."""
        config = self.config
        empty = self.after_norm.weight.new_empty
        return EncoderState(
            self.pre_lookahead_layer.conv2.initial_context(rows),
            self.up_layer.conv.initial_context(rows),
            empty(rows, config.layers, 2, frames // FRAMES_PER_SPEECH_ID, config.width),
            empty(rows, config.up_layers, 2, frames, config.width),
        )

    def step(
        self,
        x: Tensor,
        future: Tensor,
        state: EncoderState,
        id_plan: AttentionPlan,
        frame_plan: AttentionPlan,
        has_future: Tensor | None = None,
    ) -> tuple[Tensor, EncoderState]:
        """The conditioning of a chunk, (B, 2 T, C), and the next state. Buffers are written in place.

        x: (B, T, C) embedded ids. future: (B, 3, C) the next ones, (B, 0, C) at the end. id_plan, frame_plan:
        plans of the chunk at 25 and 50 Hz. has_future: (B, 3, 1) bool, False in rows that end.
        """
        x, future = self.embed(x), self.embed(future)
        if id_plan.frame_mask is not None:
            # Padding after the end of a row must not reach it through the lookahead.
            x = x * id_plan.frame_mask
        if has_future is not None:
            future = future * has_future
        x, lookahead = self.pre_lookahead_layer(x, future, state.lookahead_context)
        x = _run_layers(self.encoders, x, state.id_memory, id_plan)
        x, upsample = self.up_layer.conv(x.repeat_interleave(FRAMES_PER_SPEECH_ID, 1), state.upsample_context)
        x = _run_layers(self.up_encoders, self.up_embed(x), state.frame_memory, frame_plan)
        return self.after_norm(x), EncoderState(lookahead, upsample, state.id_memory, state.frame_memory)


def _run_layers(layers: nn.ModuleList, x: Tensor, cache: AttentionMemory, plan: AttentionPlan) -> Tensor:
    table = _DistanceTable(plan, x)
    for layer, memory in zip(layers, layer_memories(cache), strict=True):
        x = layer(x, memory, plan, table)
    return x
