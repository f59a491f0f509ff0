"""Writes one Euler step of the flow, with classifier-free guidance, as an ONNX graph.

    flow_step         x (B, T, 80), mu, speaker, prompt_mel, solver_step, memory of that step
                      -> next_x (B, T, 80), new keys and values, next contexts
    flow_step.int8    the same and ``half``, memory of that step and half
                      -> change (B, T, 80), new keys and values, next contexts

In float32 the graph runs the estimator, U-Net or DiT, on 2 B rows, a conditioned and a free one for each of
B. Memories and contexts have an axis for the two: (B, 2, ...). In int8 it runs one half, conditioned or free,
so that two threads compute both without waiting for each other at every operator: ``next_x`` is ``x`` and
both changes. What the solver time adds is a table, made at export.

Source: ``flow.flow``, ``flow.unet`` and ``flow.dit``, whose computation and weights these are.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

from ...devices.execution import Precision
from ...networks.layers import load_weights
from ...onnx_graphs.graph_builder import OnnxGraphFile
from ..config import MEL_BANDS, DitConfig, FlowConfig, UnetConfig
from ..flow.dit import MODULATION_PARTS, NORM_EPSILON, POSITION_GROUPS, POSITION_KERNEL
from ..flow.flow import Flow
from .graph_values import GraphValue, arange, concat
from .network_graph import AttentionGraph, NetworkGraph
from .products import PRODUCTS
from .shared_voice_attention import SharedVoiceAttentionGraph

STEPS_KEY = "solver_steps"  # metadata of flow_step

_ESTIMATOR = "decoder.estimator"

EstimatorAttention = AttentionGraph | SharedVoiceAttentionGraph


def write_flow_step(
    path: Path,
    config: FlowConfig,
    weights: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    precision: Precision = Precision.FP32,
) -> None:
    """Write ``flow_step`` from the tensors of flow.pt, in float32 or int8.

    With int8, a graph is for half of the guidance, the matrices of the transformers have 8 bits, keys and
    values 16, and a voice has a memory of its own, which its sentences share.
    """
    with OnnxGraphFile(path) as builder:
        graph = NetworkGraph(builder, weights, product=PRODUCTS[precision])
        flow = _torch_flow(config, weights)
        assert flow.solver_offsets is not None
        index = graph.number("solver_step")
        x, mu, prompt_mel = (
            graph.input(name, ("batch", "frames", MEL_BANDS)) for name in ("x", "mu", "prompt_mel")
        )
        speaker = graph.input("speaker", ("batch", MEL_BANDS)).unsqueeze(1).expand(1, x.size(1), 1)
        offsets = graph.constant(flow.solver_offsets.numpy()).gather(index, 0)
        estimator = _UnetGraph if isinstance(config.estimator, UnetConfig) else _DitGraph
        network = estimator(graph.part(_ESTIMATOR), config.estimator, offsets)  # type: ignore[arg-type]
        conditions = [prompt_mel, mu, speaker] if estimator is _DitGraph else [mu, speaker, prompt_mel]
        widths = graph.constant(np.array([dt for _, dt in flow.times])).gather(index, 0)
        shares = (1 + config.guidance, -config.guidance)  # of a conditioned and a free velocity
        if graph.is_exact:
            velocity = network.run(_guidance_rows(x, conditions))
            halves = velocity.reshape(x.size(0), 2, x.size(1), MEL_BANDS)
            conditioned, free = (
                halves.slice(1, half, half + 1).reshape(*_shape(x)) * share
                for half, share in enumerate(shares)
            )
            graph.output("next_x", x + (conditioned + free) * widths, ("batch", "frames", MEL_BANDS))
        else:
            half = graph.number("half")
            is_conditioned = (half < 1).cast(np.float32)
            velocity = network.run(concat([x, *(each * is_conditioned for each in conditions)], 2))
            change = velocity * (widths * graph.constant(np.array(shares)).gather(half, 0))
            graph.output("change", change, ("batch", "frames", MEL_BANDS))
        builder.save({**metadata, STEPS_KEY: str(config.solver_steps)})


def _torch_flow(config: FlowConfig, weights: Mapping[str, Tensor]) -> Flow:
    """The flow in torch, for what it derives from the solver times."""
    flow = Flow(config)
    load_weights(flow, dict(weights))
    return flow


def _shape(x: GraphValue) -> tuple[GraphValue, GraphValue, int]:
    return x.size(0), x.size(1), MEL_BANDS


def _guidance_rows(x: GraphValue, conditions: list[GraphValue]) -> GraphValue:
    """(B, T, 80) -> (2 B, T, 320): of each row one with conditions and one with zeros."""
    conditioned = concat([x, *conditions], 2).unsqueeze(1)
    free = concat([x, *([x * 0.0] * len(conditions))], 2).unsqueeze(1)
    return concat([conditioned, free], 1).reshape(-1, x.size(1), (1 + len(conditions)) * MEL_BANDS)


class _EstimatorGraph:
    """What both estimators have in common: the memory, and contexts of convolutions by number."""

    def __init__(self, graph: NetworkGraph, layers: int, heads: int, head_width: int) -> None:
        self.graph, self._layers, self._heads, self._head_width = graph, layers, heads, head_width
        self._halves = (2,) if graph.is_exact else ()  # axis of contexts
        self._contexts = 0

    def _begin_attention(self, x: GraphValue) -> EstimatorAttention:
        graph = self.graph
        if not graph.is_exact:
            return SharedVoiceAttentionGraph(graph, self._head_width, x)
        inner = self._heads * self._head_width
        memory = graph.input("memory", ("batch", 2, self._layers, 2, "capacity", inner))
        return AttentionGraph(memory, 2, self._layers, x, graph.number("length"), graph.number("block"))

    def _end_attention(self, attention: EstimatorAttention) -> None:
        if isinstance(attention, AttentionGraph):
            new = attention.new_keys_values([-1, 2])
            shape = ("batch", 2, self._layers, 2, "frames", self._heads * self._head_width)
            self.graph.output("new_keys_values", new, shape)

    def _past_context(self, frames: int, width: int) -> GraphValue:
        shape = ("batch", *self._halves, frames, width)
        return self.graph.input(f"past_context.{self._contexts}", shape).reshape(-1, frames, width)

    def _keep_context(self, context: GraphValue, frames: int, width: int) -> None:
        shape = (*self._halves, frames, width)
        following = context.reshape(-1, *shape)
        self.graph.output(f"present_context.{self._contexts}", following, ("batch", *shape))
        self._contexts += 1

    def _causal_conv(self, graph: NetworkGraph, x: GraphValue, name: str) -> GraphValue:
        _, width, kernel = graph.array(f"{name}.weight").shape
        y, context = graph.causal_conv(x, self._past_context(kernel - 1, width), name)
        self._keep_context(context, kernel - 1, width)
        return y


class _UnetGraph(_EstimatorGraph):
    """Adds the estimator of version 2. offsets: (1, resnets, C) of the solver step."""

    def __init__(self, graph: NetworkGraph, config: UnetConfig, offsets: GraphValue) -> None:
        super().__init__(graph, config.attention_layers, config.heads, config.head_width)
        self._config, self._offsets = config, offsets

    def run(self, x: GraphValue) -> GraphValue:
        """(2 B, T, 320) -> velocity (2 B, T, 80)."""
        attention = self._begin_attention(x)
        middle = [f"mid_blocks.{block}" for block in range(self._config.mid_blocks)]
        skip = x
        for index, name in enumerate(["down_blocks.0", *middle, "up_blocks.0"]):
            level = self.graph.part(name)
            if name == "up_blocks.0":
                x = concat([x, skip], 2)
            x = self._resnet(level.part("0"), x, self._offsets.slice(1, index, index + 1))
            for block in range(self._config.blocks):
                x = self._transformer(level.part(f"1.{block}"), x, attention)
            if name == "down_blocks.0":
                skip = x
            if level.has("2.weight"):
                x = self._causal_conv(level, x, "2")
        self._end_attention(attention)
        return self.graph.exact.linear(self._conv_norm(self.graph.part("final_block"), x), "final_proj")

    def _resnet(self, graph: NetworkGraph, x: GraphValue, offset: GraphValue) -> GraphValue:
        h = self._conv_norm(graph.part("block1"), x) + offset
        return self._conv_norm(graph.part("block2"), h) + graph.exact.linear(x, "res_conv")

    def _conv_norm(self, graph: NetworkGraph, x: GraphValue) -> GraphValue:
        return graph.layer_norm(self._causal_conv(graph, x, "block.0"), "block.2").mish()

    def _transformer(self, graph: NetworkGraph, x: GraphValue, attention: EstimatorAttention) -> GraphValue:
        normed = graph.layer_norm(x, "norm1")
        query, keys, values = (graph.linear(normed, f"attn1.to_{name}") for name in "qkv")
        x = x + graph.linear(attention.attend(query, keys, values, self._config.heads), "attn1.to_out.0")
        inner = graph.linear(graph.layer_norm(x, "norm3"), "ff.net.0.proj").apply("Gelu")
        return x + graph.linear(inner, "ff.net.2")


class _DitGraph(_EstimatorGraph):
    """Adds the estimator of version 3. offsets: (1, 6 depth + 2, C) of the solver step."""

    def __init__(self, graph: NetworkGraph, config: DitConfig, offsets: GraphValue) -> None:
        super().__init__(graph, config.depth, config.heads, config.head_width)
        self._config, self._offsets = config, offsets
        self._ones = graph.constant(np.ones(config.width))

    def run(self, x: GraphValue) -> GraphValue:
        """(2 B, T, 320) -> velocity (2 B, T, 80)."""
        graph, config = self.graph, self._config
        attention = self._begin_attention(x)
        x = graph.exact.linear(x, "input_embed.proj")
        positions = x
        for name in ("conv1", "conv2"):
            positions = self._grouped_conv(positions, f"input_embed.conv_pos_embed.{name}.0")
        x = x + positions
        rotary = _RotaryGraph(graph, attention)
        for layer in range(config.depth):
            x = self._block(graph.part(f"transformer_blocks.{layer}"), layer, x, attention, rotary)
        self._end_attention(attention)
        last = config.depth * MODULATION_PARTS
        return graph.exact.linear(self._modulate(x, scale=last, shift=last + 1), "proj_out")

    def _grouped_conv(self, x: GraphValue, name: str) -> GraphValue:
        frames, width = POSITION_KERNEL - 1, self._config.width
        with_context = concat([self._past_context(frames, width), x], 1)
        self._keep_context(with_context.slice(1, x.size(1)), frames, width)
        weight, bias = self.graph.weight_and_bias(name)
        y = with_context.transpose(0, 2, 1).apply("Conv", weight, bias, group=POSITION_GROUPS)
        return y.mish().transpose(0, 2, 1)

    def _block(
        self,
        graph: NetworkGraph,
        layer: int,
        x: GraphValue,
        attention: EstimatorAttention,
        rotary: "_RotaryGraph",
    ) -> GraphValue:
        shift, scale, gate, ff_shift, ff_scale, ff_gate = (
            MODULATION_PARTS * layer + part for part in range(MODULATION_PARTS)
        )
        inputs = self._modulate(x, scale=scale, shift=shift)
        query, keys, values = (graph.linear(inputs, f"attn.to_{name}") for name in "qkv")
        query, keys = rotary.rotate(query), rotary.rotate(keys)
        attended = graph.linear(attention.attend(query, keys, values, self._config.heads), "attn.to_out.0")
        x = x + self._offset(gate) * attended
        inner = graph.linear(self._modulate(x, scale=ff_scale, shift=ff_shift), "ff.ff.0.0")
        return x + self._offset(ff_gate) * graph.linear(inner.apply("Gelu", approximate="tanh"), "ff.ff.2")

    def _modulate(self, x: GraphValue, *, scale: int, shift: int) -> GraphValue:
        normed = x.apply("LayerNormalization", self._ones, axis=-1, epsilon=NORM_EPSILON)
        return normed * (self._offset(scale) + 1.0) + self._offset(shift)

    def _offset(self, part: int) -> GraphValue:
        """(1, 1, C)."""
        return self._offsets.slice(1, part, part + 1)


class _RotaryGraph:
    """Rotates the channels of the first head by the position of their frame."""

    def __init__(self, graph: NetworkGraph, attention: EstimatorAttention) -> None:
        rates = graph.array("rotary_embed.inv_freq").repeat(2)
        self._width = len(rates)
        positions = (arange(attention.frames) + attention.length).cast(np.float32).unsqueeze(1)
        angles = positions * graph.constant(rates)
        self._cos, self._sin = angles.apply("Cos"), angles.apply("Sin")

    def rotate(self, x: GraphValue) -> GraphValue:
        """(N, T, D) -> (N, T, D)."""
        head, others = x.slice(2, 0, self._width), x.slice(2, self._width)
        even, odd = (head.slice(2, start, step=2).unsqueeze(3) for start in (0, 1))
        turned = concat([odd * -1.0, even], 3).reshape(x.size(0), x.size(1), self._width)
        return concat([head * self._cos + turned * self._sin, others], 2)
