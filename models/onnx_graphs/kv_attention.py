"""Attention of a decoder over buffers of keys and values, as nodes of its step graph.

    embedded (B, T, hidden), lengths (B,), past_key.0, past_value.0, ...
    -> hidden (B, T, hidden), present_key.0, present_value.0, ...

Each layer has one buffer for keys and one for values, (B, kv_heads, capacity, head_width). A step writes
those of its T inputs at ``lengths[row]`` and attends to all up to there. If past and present are bound to the
same memory, as ``decoder_steps`` does, nothing is copied. With T above 1, a step takes one row (a limit of
GroupQueryAttention).

Source: GroupQueryAttention in docs/ContribOperators.md of microsoft/onnxruntime v1.24.
"""

from dataclasses import dataclass

import numpy as np

from .decoder_steps import EMBEDDED, LENGTHS, state_names
from .graph_builder import CONTRIB_DOMAIN, OnnxGraphBuilder

_INT32 = 6  # TensorProto.INT32


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Sizes of the attention of all layers."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int


class KvAttention:
    """Adds a step graph's inputs and outputs but for the hidden states, and the attention of its layers."""

    def __init__(self, graph: OnnxGraphBuilder, sizes: AttentionSizes) -> None:
        self._graph, self._sizes = graph, sizes
        width = sizes.heads * sizes.head_width
        graph.input(EMBEDDED, np.float32, ("batch", "inputs", width))
        graph.input(LENGTHS, np.int64, ("batch",))
        self._past = [
            graph.input(f"past_{name}", np.float32, self._buffer_shape("capacity"))
            for name in state_names(sizes.layers)
        ]
        self._last_positions, self._total_length = self._add_positions()

    def attend(self, layer: int, qkv: str, rotary: tuple[str, str] | None = None) -> str:
        """Add the attention of a layer, from queries, keys and values side by side: (B, T, width).

        rotary: tables of cosines and sines, (positions, head_width / 2).
        """
        past = self._past[2 * layer : 2 * layer + 2]
        inputs = [qkv, "", "", *past, self._last_positions, self._total_length, *(rotary or ())]
        outputs = [f"attended_{layer}", *(name.replace("past", "present") for name in past)]
        self._graph.add_outputs(
            "GroupQueryAttention",
            inputs,
            outputs,
            domain=CONTRIB_DOMAIN,
            num_heads=self._sizes.heads,
            kv_num_heads=self._sizes.kv_heads,
            do_rotary=int(rotary is not None),
        )
        return outputs[0]

    def declare_present(self) -> None:
        """Declare the buffers as outputs, after the hidden states."""
        for name in state_names(self._sizes.layers):
            self._graph.output(f"present_{name}", np.float32, self._buffer_shape("present_capacity"))

    def _buffer_shape(self, capacity: str) -> tuple[int | str, ...]:
        return ("batch", self._sizes.kv_heads, capacity, self._sizes.head_width)

    def _add_positions(self) -> tuple[str, str]:
        """Position of each row's last input, (B,) int32, and the largest count of positions, () int32."""
        graph = self._graph
        shape = graph.add("Shape", [EMBEDDED], start=1, end=2)
        stop = graph.add("Add", [LENGTHS, shape])
        last = graph.add("Sub", [stop, graph.weight(np.array(1))])
        total = graph.add("ReduceMax", [stop], keepdims=0)
        return graph.add("Cast", [last], to=_INT32), graph.add("Cast", [total], to=_INT32)
