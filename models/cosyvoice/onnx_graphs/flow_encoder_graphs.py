"""Writes the encoder of the flow as ONNX graphs: speech ids to the conditioning of the solver.

    flow_speaker    embedding (B, 192)                  -> speaker (B, 80)
    flow_encoder    ids (B, T), future (B, 3), contexts -> mu (B, 2 T, 80), next contexts
                    and in version 2 with attention memories at 25 and 50 Hz

Source: ``flow.encoder``, whose computation and weights these are.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

from ...devices.execution import Precision
from ...onnx_graphs.graph_builder import OnnxGraphFile
from ..config import FRAMES_PER_SPEECH_ID, MEL_BANDS, EncoderConfig, FlowConfig
from .graph_values import GraphValue, arange, concat
from .network_graph import AttentionGraph, NetworkGraph
from .products import PRODUCTS

_NORM_EPSILON = 1e-12  # of the layers


def write_flow_speaker(
    path: Path, config: FlowConfig, weights: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write ``flow_speaker`` from the tensors of flow.pt."""
    with OnnxGraphFile(path) as builder:
        graph = NetworkGraph(builder, weights)
        embedding = graph.input("embedding", ("batch", config.speaker_width))
        # Operators that old versions of ONNX Runtime have too; LpNormalization of this opset they lack.
        length = embedding.apply("ReduceL2", graph.constant(np.array([1]), np.int64), keepdims=1)
        graph.output(
            "speaker", graph.linear(embedding / length, "spk_embed_affine_layer"), ("batch", MEL_BANDS)
        )
        builder.save(metadata)


def write_flow_encoder(
    path: Path,
    config: FlowConfig,
    weights: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    precision: Precision = Precision.FP32,
) -> None:
    """Write ``flow_encoder`` from the tensors of flow.pt; with int8, matrices of the layers have 8 bits."""
    with OnnxGraphFile(path) as builder:
        graph = NetworkGraph(builder, weights, product=PRODUCTS[precision])
        table = graph.constant(graph.array("input_embedding.weight"))
        x, future = (
            table.gather(
                graph.input(name, ("batch", length), np.int64).apply("Max", graph.constant(0, np.int64)), 0
            )
            for name, length in (("ids", "ids"), ("future", "future"))
        )
        if config.encoder is None:
            mu = _add_lookahead_only(graph, x, future, config)
        else:
            mu = graph.exact.linear(_EncoderGraph(graph, config.encoder).run(x, future), "encoder_proj")
        graph.output("mu", mu, ("batch", "frames", MEL_BANDS))
        builder.save(metadata)


def _add_lookahead_only(
    graph: NetworkGraph, x: GraphValue, future: GraphValue, config: FlowConfig
) -> GraphValue:
    shape = ("batch", 2, config.lookahead_width)
    context = graph.input("past_lookahead", shape)
    h, context = graph.lookahead(x, future, context, "pre_lookahead_layer")
    graph.output("present_lookahead", context, shape)
    return h.repeat_frames(FRAMES_PER_SPEECH_ID)


class _EncoderGraph:
    """Adds the encoder of version 2."""

    def __init__(self, graph: NetworkGraph, config: EncoderConfig) -> None:
        self._graph, self._config = graph.part("encoder"), config

    def run(self, x: GraphValue, future: GraphValue) -> GraphValue:
        """(B, T, C) embedded ids -> (B, 2 T, C)."""
        graph, width = self._graph, self._config.width
        length = graph.number("length") / FRAMES_PER_SPEECH_ID
        block = graph.number("block") / FRAMES_PER_SPEECH_ID
        lookahead, upsample = (
            graph.input(f"past_{name}", ("batch", size, width))
            for name, size in (("lookahead", 2), ("upsample", 2 * FRAMES_PER_SPEECH_ID))
        )
        x, future = (self._project_input(part, "embed") for part in (x, future))
        x, lookahead = graph.lookahead(x, future, lookahead, "pre_lookahead_layer")
        x = self._run_layers(x, "encoders", self._config.layers, "id", length, block)
        x, upsample = graph.causal_conv(x.repeat_frames(FRAMES_PER_SPEECH_ID), upsample, "up_layer.conv")
        graph.output("present_lookahead", lookahead, ("batch", 2, width))
        graph.output("present_upsample", upsample, ("batch", 2 * FRAMES_PER_SPEECH_ID, width))
        x, length, block = self._project_input(x, "up_embed"), length * 2, block * 2
        x = self._run_layers(x, "up_encoders", self._config.up_layers, "frame", length, block)
        return graph.layer_norm(x, "after_norm")

    def _project_input(self, x: GraphValue, name: str) -> GraphValue:
        projected = self._graph.exact.linear(x, f"{name}.out.0")
        return self._graph.layer_norm(projected, f"{name}.out.1") * float(np.sqrt(self._config.width))

    def _run_layers(
        self, x: GraphValue, stack: str, layers: int, unit: str, length: GraphValue, block: GraphValue
    ) -> GraphValue:
        graph, width = self._graph, self._config.width
        memory = graph.input(f"{unit}_memory", ("batch", layers, 2, f"{unit}_capacity", width))
        attention = AttentionGraph(memory, 1, layers, x, length, block)
        distances = _DistanceGraph(graph, attention, width)
        for layer in range(layers):
            part = graph.part(f"{stack}.{layer}")
            normed = part.layer_norm(x, "norm_mha", _NORM_EPSILON)
            x = x + self._attend(part.part("self_attn"), normed, attention, distances)
            inner = part.linear(part.layer_norm(x, "norm_ff", _NORM_EPSILON), "feed_forward.w_1").silu()
            x = x + part.linear(inner, "feed_forward.w_2")
        new = attention.new_keys_values([x.size(0)])
        graph.output(f"new_{unit}_keys_values", new, ("batch", layers, 2, f"{unit}s", width))
        return x

    def _attend(
        self, part: NetworkGraph, x: GraphValue, attention: AttentionGraph, distances: "_DistanceGraph"
    ) -> GraphValue:
        heads, head_width = self._config.heads, self._config.width // self._config.heads
        query, keys, values = (part.linear(x, f"linear_{name}") for name in "qkv")
        bias_u, bias_v = (part.constant(part.array(f"pos_bias_{name}").ravel()) for name in "uv")
        split = (query + bias_v).reshape(x.size(0), x.size(1), heads, head_width).transpose(0, 2, 1, 3)
        scores = distances.scores(part, split, heads, head_width) + attention.mask
        return part.linear(attention.attend(query + bias_u, keys, values, heads, scores), "linear_out")


class _DistanceGraph:
    """Scores by relative position: each query times a projected sine at its distance to each slot.

    Row r of the sines is of distance ``visible - 1 - r``, so that frame i finds slot j in row j - i + T - 1.
    """

    def __init__(self, graph: NetworkGraph, attention: AttentionGraph, width: int) -> None:
        self._visible, frames = attention.visible, attention.frames
        rows = arange(attention.visible + frames - 1)
        rates = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-(np.log(10000.0) / width)))
        distance = (attention.visible - 1 - rows).cast(np.float32)
        angles = distance.unsqueeze(1) * graph.constant(rates)
        both = [angles.apply(name).unsqueeze(2) for name in ("Sin", "Cos")]
        self._sines = concat(both, 2).reshape(rows.size(0), width)
        self._frames = frames
        slots, places = arange(attention.visible).unsqueeze(0), arange(frames).unsqueeze(1)
        self._index = (slots - places + frames - 1).unsqueeze(0, 1)  # (1, 1, T, S)

    def scores(self, part: NetworkGraph, query: GraphValue, heads: int, head_width: int) -> GraphValue:
        """query: (B, H, T, d) -> (B, H, T, S)."""
        projected = part.exact.linear(self._sines, "linear_pos").reshape(-1, heads, head_width)
        by_row = (query * float(head_width**-0.5)) @ projected.transpose(1, 2, 0)
        index = self._index.expand(query.size(0), heads, self._frames, self._visible)
        return by_row.apply("GatherElements", index, axis=3)
