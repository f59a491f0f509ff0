"""Attention of the solver over a voice's frames, which all its sentences share, and over a sentence's own.

    keys, values    |voice ........|past .......|chunk .....|    float16
                     read only                   new: the caller writes it behind the past

Frames are the first axis, so that the past is the begin of a buffer and nothing is copied to lengthen it.
Keys and values of a chunk are rounded to float16 before they are used, as those of earlier chunks were.

The products take their matrices by head as they lie in memory (FusedMatMul, transBatch). ONNX Runtime's
operator for attention copies them, which costs more than the products of a chunk.

Source: FusedMatMul in docs/ContribOperators.md of microsoft/onnxruntime v1.24.
"""

import numpy as np

from ...onnx_graphs.graph_builder import CONTRIB_DOMAIN
from .graph_values import GraphValue, concat
from .network_graph import NetworkGraph, block_mask


class SharedVoiceAttentionGraph:
    """Attention of a chunk (B, T, H * d), layer by layer, with memories as inputs and outputs of the graph.

    Those of layer L are ``voice_key.L``, ``past_key.L`` and ``new_key.L``, (frames, B, H * d), and the same
    of values.
    """

    def __init__(self, graph: NetworkGraph, head_width: int, chunk: GraphValue) -> None:
        self._graph, self._head_width, self._layers = graph, head_width, 0
        self.length, self.frames = graph.number("length"), chunk.size(1)
        self._rows = chunk.size(0)
        self._mask = block_mask(self.frames, self.length, graph.number("block"))

    def attend(self, query: GraphValue, keys: GraphValue, values: GraphValue, heads: int) -> GraphValue:
        """Attention output, (B, T, H * d), of the next layer."""
        whole_keys, whole_values = (
            self._remember(f"{part}.{self._layers}", new, heads)
            for part, new in (("key", keys), ("value", values))
        )
        self._layers += 1
        queries = self._by_head(query.transpose(1, 0, 2))
        scores = queries.apply(
            "FusedMatMul",
            whole_keys,
            domain=CONTRIB_DOMAIN,
            alpha=self._head_width**-0.5,
            transBatchA=1,
            transBatchB=1,
            transB=1,
        )  # (B * H, T, S)
        weights = (scores + self._mask).apply("Softmax", axis=-1)
        attended = weights.apply("FusedMatMul", whole_values, domain=CONTRIB_DOMAIN, transBatchB=1)
        by_row = attended.reshape(self._rows, heads, self.frames, self._head_width)
        return by_row.transpose(0, 2, 1, 3).reshape(self._rows, self.frames, heads * self._head_width)

    def _by_head(self, x: GraphValue) -> GraphValue:
        """(frames, B, H * d) -> (frames, B * H, d)."""
        return x.reshape(x.size(0), -1, self._head_width)

    def _remember(self, name: str, new: GraphValue, heads: int) -> GraphValue:
        """Keys or values of all frames, (S, B * H, d) float32."""
        graph, inner = self._graph, heads * self._head_width
        voice, past = (
            graph.input(f"{time}_{name}", (f"{time}_frames", "batch", inner), np.float16)
            for time in ("voice", "past")
        )
        chunk = new.cast(np.float16).transpose(1, 0, 2)
        chunk = graph.output(f"new_{name}", chunk, ("frames", "batch", inner))
        return self._by_head(concat([voice, past, chunk], 0).cast(np.float32))
