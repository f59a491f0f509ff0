"""Attention of the solver over a voice's frames, which all its sentences share, and over a sentence's own.

    keys, values    |voice ........|past .......|chunk .....|    float16
                     read only      present: the next past

Keys and values of a chunk are rounded to float16 before they are used, as those of earlier chunks were.
"""

import numpy as np

from .graph_values import GraphValue, concat
from .network_graph import NetworkGraph, block_mask


class SharedVoiceAttentionGraph:
    """Attention of a chunk (2 B, T, H * d), layer by layer, with memories as inputs and outputs of the graph.

    Those of layer L are ``voice_key.L``, ``past_key.L`` and ``present_key.L``, (B, 2, H, frames, d), and the
    same of values.
    """

    def __init__(self, graph: NetworkGraph, head_width: int, chunk: GraphValue) -> None:
        self._graph, self._head_width, self._layers = graph, head_width, 0
        self.length, self.frames = graph.number("length"), chunk.size(1)
        self._rows = chunk.size(0)
        self._mask = block_mask(self.frames, self.length, graph.number("block"))

    def attend(self, query: GraphValue, keys: GraphValue, values: GraphValue, heads: int) -> GraphValue:
        """Attention output, (2 B, T, H * d), of the next layer."""
        rows, frames = self._rows, self.frames
        whole = [
            self._remember(f"{part}.{self._layers}", self._split(new, heads), heads)
            for part, new in (("key", keys), ("value", values))
        ]
        queries = self._split(query, heads).reshape(rows, heads, frames, self._head_width)
        attended = queries.apply("Attention", *whole, self._mask)
        self._layers += 1
        return attended.transpose(0, 2, 1, 3).reshape(rows, frames, heads * self._head_width)

    def _split(self, x: GraphValue, heads: int) -> GraphValue:
        """(2 B, T, H * d) -> (B, 2, H, T, d)."""
        by_head = x.reshape(self._rows / 2, 2, self.frames, heads, self._head_width)
        return by_head.transpose(0, 1, 3, 2, 4)

    def _remember(self, name: str, new: GraphValue, heads: int) -> GraphValue:
        """Keys or values of all frames, (2 B, H, S, d) float32."""
        graph = self._graph
        shapes = {
            time: ("batch", 2, heads, f"{time}_frames", self._head_width)
            for time in ("voice", "past", "present")
        }
        voice, past = (graph.input(f"{time}_{name}", shapes[time], np.float16) for time in ("voice", "past"))
        chunk = new.cast(np.float16)
        graph.output(f"present_{name}", concat([past, chunk], 3), shapes["present"])
        whole = concat([voice, past, chunk], 3).cast(np.float32)
        return whole.reshape(self._rows, heads, self.length + self.frames, self._head_width)
