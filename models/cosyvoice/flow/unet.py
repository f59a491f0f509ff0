"""The v2 velocity estimator: a U-Net of one level, with causal convolutions and attention in blocks.

Everything runs at 50 frames/s, and everything except attention within a block is causal:

    [x, mu, speaker, prompt mel] 320 -> resnet -> 4 x attention -> conv     (the skip branches before conv)
                                        12 x (resnet -> 4 x attention)
                     [middle, skip] 512 -> resnet -> 4 x attention -> conv -> conv, norm -> 80

Tensors are channels-last: (N, T, C). The solver time enters every resnet as an offset, computed once for each
solver step.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/decoder.py (CausalConditionalDecoder), matcha/models/components/
{decoder,transformer}.py@dd9105b; keys as in flow.pt under ``decoder.estimator``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...networks.kernel_support import has_fused_kernels
from ...networks.layers import (
    CausalConv,
    Linear,
    PointwiseConv,
    PreparedModule,
    QkvProjection,
    present,
    sinusoidal_time_features,
    split_keys_values,
)
from ...networks.precision import split_matrices
from ..config import UnetConfig
from .attention import attend, read_history, write_chunk
from .attention_memory import AttentionMemory, PagedBuffers, layer_memories
from .attention_plan import AttentionPlan, PagedAttentionPlan
from .policy import CacheForm

if TYPE_CHECKING:
    from ..kernels.flow_kernels import BlockWeights

TIME_WIDTH_FACTOR = 4
FEED_FORWARD_FACTOR = 4


@dataclass(frozen=True, slots=True)
class UnetState:
    """Memory of one solver step. N rows: each guidance half of each session."""

    convs: tuple[Tensor, ...]  # (N, 2, C), the context of each convolution in running order
    # (N, layers, P, W, D): keys and values (P 2, D 512) or normed inputs (P 1, D 256)
    cache: AttentionMemory


class _ConvNorm(nn.Module):
    """A causal convolution, then layer norm over channels and Mish."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.channels = outputs
        self.block = nn.ModuleDict({"0": CausalConv(inputs, outputs, 3), "2": nn.LayerNorm(outputs)})

    @property
    def conv(self) -> CausalConv:
        return cast(CausalConv, self.block["0"])

    @property
    def norm(self) -> nn.LayerNorm:
        return cast(nn.LayerNorm, self.block["2"])

    def forward(self, x: Tensor, context: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output, with an offset added, (N, T, C'), and the next context."""
        y, context = _convolve(self.conv, x, context)
        if self.conv.halves is not None and offset is None and self.has_fused_norm(x.device):
            from ...kernels.fused_kernels import norm_mish

            return norm_mish(y, self.norm), context
        y = F.mish(self.norm(y))
        return y if offset is None else y + offset, context

    def has_fused_norm(self, device: torch.device) -> bool:
        """Whether a kernel computes the norm there."""
        return has_fused_kernels(device, powers=[self.channels])


def _convolve(conv: CausalConv, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
    """As ``CausalConv.forward``."""
    kept = x.shape[1] - conv.kernel + 1
    if conv.halves is None or kept < 0 or not has_fused_kernels(x.device):
        return conv(x, context)  # type: ignore[no-any-return]
    from ...kernels.fused_kernels import product

    return product(x, conv.halves, conv.bias, context=context), x[:, kept:]


class _Resnet(nn.Module):
    def __init__(self, inputs: int, outputs: int, time_width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Mish(), Linear(time_width, outputs))
        self.block1 = _ConvNorm(inputs, outputs)
        self.block2 = _ConvNorm(outputs, outputs)
        self.res_conv = PointwiseConv(inputs, outputs)
        self._counters: Tensor | None = None  # of the kernel's launches, made once

    def forward(self, x: Tensor, offset: Tensor, contexts: "_UnetContexts") -> Tensor:
        """x: (N, T, C) -> (N, T, C'). offset: (N or 1, 1, C'), added by the solver time."""
        convs = self.block1.conv, self.block2.conv
        if all(conv.halves is not None for conv in convs) and self.block1.has_fused_norm(x.device):
            return contexts.run_pair(lambda pair: self._run_fused(x, offset, pair))
        h = contexts.run(self.block1, x, offset)
        h = contexts.run(self.block2, h)
        return h + self.res_conv(x)  # type: ignore[no-any-return]

    def _run_fused(
        self, x: Tensor, offset: Tensor, contexts: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        from ..kernels.resnet_kernel import ConvNormWeights, new_resnet_counters, run_resnet

        if self._counters is None:
            self._counters = new_resnet_counters(x.device)
        first, second = (
            ConvNormWeights(present(part.conv.halves), part.conv.bias, part.norm.weight, part.norm.bias)
            for part in (self.block1, self.block2)
        )
        shortcut = self.res_conv.halves_and_bias()
        epsilon = self.block1.norm.eps
        return run_resnet(x, offset, contexts, (first, second), shortcut, epsilon, self._counters)


class _UnetAttention(QkvProjection):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__(width, inner, False, ("to_q", "to_k", "to_v"))
        self.to_out = nn.ModuleList([Linear(inner, width)])


class _GeluProjection(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.proj = Linear(width, inner)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.proj(x))


class _UnetFeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width * FEED_FORWARD_FACTOR
        self.net = nn.ModuleDict({"0": _GeluProjection(width, inner), "2": Linear(inner, width)})

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net["2"](self.net["0"](x))
        return y


class _TransformerBlock(nn.Module):
    def __init__(self, config: UnetConfig) -> None:
        super().__init__()
        width = config.channels
        self.heads, self.inner = config.heads, config.inner
        self.norm1 = nn.LayerNorm(width)
        self.attn1 = _UnetAttention(width, config.inner)
        self.norm3 = nn.LayerNorm(width)
        self.ff = _UnetFeedForward(width)
        self._fused: tuple[BlockWeights, Tensor] | None = None  # weights and counters, made once

    def forward(
        self, x: Tensor, cache: AttentionMemory, plan: AttentionPlan, cache_form: CacheForm
    ) -> Tensor:
        """x: (N, T, C) -> (N, T, C). cache: (N, P, W, D), written in place."""
        if isinstance(cache, PagedBuffers) and self.has_fused_kernels(x.device):
            assert isinstance(plan, PagedAttentionPlan)
            return self._forward_fused(x, cache.pool, plan)
        normed = self.norm1(x)
        new_values = split_keys_values(self.attn1.project_keys_values(normed))
        history_and_chunk = read_history(cache, plan, cache_form, self._project, x.shape[1])
        attended = attend(self.attn1.project_queries(normed), new_values, history_and_chunk, plan, self.heads)
        if history_and_chunk is not cache:
            write_chunk(cache, normed[:, None] if cache_form is CacheForm.INPUTS else new_values, plan)
        x = x + self.attn1.to_out[0](attended)
        y: Tensor = x + self.ff(self.norm3(x))
        return y

    def has_fused_kernels(self, device: torch.device) -> bool:
        """Whether kernels compute the block there."""
        widen = cast(_GeluProjection, self.ff.net["0"]).proj
        if self.attn1.halves is None or widen.halves is None:
            return False
        return has_fused_kernels(device, powers=[self.norm1.weight.numel(), self.inner // self.heads])

    def _forward_fused(self, x: Tensor, pool: Tensor, plan: PagedAttentionPlan) -> Tensor:
        from ..kernels.flow_kernels import BlockWeights, new_block_counters, run_block

        if self._fused is None:
            widen, narrow = cast(_GeluProjection, self.ff.net["0"]).proj, cast(Linear, self.ff.net["2"])
            output = cast(Linear, self.attn1.to_out[0])
            weights = BlockWeights(
                (self.norm1.weight, self.norm1.bias, self.norm3.weight, self.norm3.bias),
                0.0,
                self.norm1.eps,
                present(self.attn1.halves),
                None,
                output.halves_and_bias(),
                widen.halves_and_bias(),
                narrow.halves_and_bias(),
                "gelu",
            )
            self._fused = weights, new_block_counters(x.device)
        return run_block(x, self._fused[0], pool, plan, self.heads, self._fused[1])

    def _project(self, inputs: Tensor, _positions: Tensor) -> Tensor:
        return split_keys_values(self.attn1.project_keys_values(inputs))


class _UnetContexts:
    """Hands out the contexts of convolutions in running order, and collects the next ones."""

    def __init__(self, contexts: tuple[Tensor, ...]) -> None:
        self._contexts = iter(contexts)
        self.following: list[Tensor] = []

    def run_pair(
        self, layers: Callable[[tuple[Tensor, Tensor]], tuple[Tensor, tuple[Tensor, Tensor]]]
    ) -> Tensor:
        y, following = layers((next(self._contexts), next(self._contexts)))
        self.following += following
        return y

    def run(self, layer: _ConvNorm | CausalConv, x: Tensor, offset: Tensor | None = None) -> Tensor:
        context = next(self._contexts)
        y, context = (
            _convolve(layer, x, context) if isinstance(layer, CausalConv) else layer(x, context, offset)
        )
        self.following.append(context)
        return y


class _UnetLevel(nn.ModuleList):
    """A resnet, transformer blocks, and at the outer levels a convolution."""

    def __init__(self, inputs: int, config: UnetConfig, *, with_conv: bool) -> None:
        width = config.channels
        layers = nn.ModuleList([_TransformerBlock(config) for _ in range(config.blocks)])
        parts = [_Resnet(inputs, width, width * TIME_WIDTH_FACTOR), layers]
        super().__init__([*parts, CausalConv(width, width, 3)] if with_conv else parts)

    @property
    def resnet(self) -> _Resnet:
        return cast(_Resnet, self[0])

    @property
    def transformers(self) -> nn.ModuleList:
        return cast(nn.ModuleList, self[1])

    @property
    def conv(self) -> CausalConv | None:
        return cast(CausalConv, self[2]) if len(self) == 3 else None


class FlowUnet(PreparedModule):
    """The v2 estimator: ``step`` through frames, with any number of rows."""

    def __init__(self, config: UnetConfig) -> None:
        super().__init__()
        self.config = config
        width, time_width = config.channels, config.channels * TIME_WIDTH_FACTOR
        self.time_mlp = nn.ModuleDict(
            {
                "linear_1": Linear(config.in_channels, time_width),
                "linear_2": Linear(time_width, time_width),
            }
        )
        self.down_blocks = nn.ModuleList([_UnetLevel(config.in_channels, config, with_conv=True)])
        self.mid_blocks = nn.ModuleList(
            [_UnetLevel(width, config, with_conv=False) for _ in range(config.mid_blocks)]
        )
        self.up_blocks = nn.ModuleList([_UnetLevel(2 * width, config, with_conv=True)])
        self.final_block = _ConvNorm(width, width)
        self.final_proj = PointwiseConv(width, config.out_channels)

    def prepare(self) -> None:
        """Split the matrices for the fused kernels, where there are such kernels."""
        split_matrices(
            layer
            for layer in self.modules()
            if isinstance(layer, Linear | CausalConv | QkvProjection) and layer is not self.final_proj
        )

    def _levels(self) -> list["_UnetLevel"]:
        levels = [*self.down_blocks, *self.mid_blocks, *self.up_blocks]
        return [level for level in levels if isinstance(level, _UnetLevel)]

    def time_embedding(self, t: Tensor) -> Tensor:
        """(N,) solver times in 0..1 -> (N, 4 C)."""
        h = F.silu(self.time_mlp["linear_1"](sinusoidal_time_features(t, self.config.in_channels)))
        y: Tensor = self.time_mlp["linear_2"](h)
        return y

    def has_fused_kernels(self, device: torch.device) -> bool:
        """Whether kernels compute all transformer blocks there."""
        blocks = [module for module in self.modules() if isinstance(module, _TransformerBlock)]
        return all(block.has_fused_kernels(device) for block in blocks)

    def time_offsets(self, t: Tensor) -> Tensor:
        """What the solver time adds in each resnet: (N, resnets, C)."""
        embedding = self.time_embedding(t)
        return torch.stack([level.resnet.mlp(embedding) for level in self._levels()], 1)

    def init_state(self, rows: int, frames: int, cache_form: CacheForm, dtype: torch.dtype) -> UnetState:
        """The state before the first chunk, with slots for ``frames`` frames."""
        convs = [module for module in self.modules() if isinstance(module, CausalConv)]
        contexts = tuple(conv.initial_context(rows) for conv in convs)
        parts, depth = (
            (2, self.config.inner) if cache_form is CacheForm.KEYS_VALUES else (1, self.config.channels)
        )
        cache = torch.empty(
            rows,
            self.config.attention_layers,
            parts,
            frames,
            depth,
            dtype=dtype,
            device=contexts[0].device,
        )
        return UnetState(contexts, cache)

    def step(
        self,
        x: Tensor,
        conditions: Tensor,
        offsets: Tensor,
        state: UnetState,
        plan: AttentionPlan,
        cache_form: CacheForm,
    ) -> tuple[Tensor, UnetState]:
        """The velocity of a chunk, (N, T, 80), and the next state. The buffer is written in place.

        x: (N, T, 80). conditions: (N, T, 240) mu, speaker, prompt mel. offsets: (N or 1, resnets, C) of
        ``time_offsets``.
        """
        contexts = _UnetContexts(state.convs)
        layers = iter(layer_memories(state.cache))
        levels = self._levels()
        x = torch.cat([x, conditions], 2)  # (N, T, 320)
        skip = x
        for index, level in enumerate(levels):
            if index == len(levels) - 1:
                x = torch.cat([x, skip], 2)  # (N, T, 2 C)
            x = level.resnet(x, offsets[:, index, None], contexts)
            for transformer in level.transformers:
                x = transformer(x, next(layers), plan, cache_form)
            if index == 0:
                skip = x  # before the convolution of the outer level
            if level.conv is not None:
                x = contexts.run(level.conv, x)
        x = contexts.run(self.final_block, x)
        y: Tensor = self.final_proj(x)
        if plan.frame_mask is not None:
            y = y * plan.frame_mask
        return y, UnetState(tuple(contexts.following), state.cache)
