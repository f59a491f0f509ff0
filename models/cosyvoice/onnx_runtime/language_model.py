"""The exported language model on numpy arrays.

    kv     (B, layers, 2, kv_heads, capacity + 1, head_width), as in ``SpeechLm``
    memory (layers, 2, B, kv_heads, capacity + 1, head_width), so that a range of rows is contiguous in each
           of the graph's buffers

Keys and values are written into the state's memory in place: past and present of a step are bound to it.
Rows with one input share a step. A row with more takes a step of its own, without padding: ONNX Runtime's
attention does not accept several such rows.
"""

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ..checkpoint.bundle import CosyVoiceBundle
from ..config import SpeechLmConfig
from ..execution import Precision
from ..lm.decode_turn import DecodeTurn, RowRequest, collect_requests
from ..lm.generation import LmInput, lm_input_index
from ..lm.sampling import sample_ids
from ..onnx_graphs.graph_files import MAX_POSITIONS, bundle_digest, graph_path, open_graph, state_names
from .graph_runs import Float, Integers, thread_count

_FLOAT, _INT64 = 1, 7  # TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True, slots=True)
class ArrayLmState:
    """Memory of each row, as ``SpeechLmState``. kv: see above. lengths: (B,), ids fed so far."""

    kv: Float
    lengths: Integers


class ArraySpeechLm:
    """The exported graphs of a language model. ``load`` opens them."""

    def __init__(
        self,
        config: SpeechLmConfig,
        embedding: onnxruntime.InferenceSession,
        step: onnxruntime.InferenceSession,
        head: onnxruntime.InferenceSession,
    ) -> None:
        self.config = config
        self._embedding, self._step, self._head = embedding, step, head
        self._states = state_names(config)

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, precision: Precision) -> "ArraySpeechLm":
        """Open the graphs of a bundle. Raises InvalidBundleError."""
        digest, threads = bundle_digest(bundle), thread_count()
        paths = (
            graph_path(bundle, "lm_embed"),
            graph_path(bundle, "lm_step", precision),
            graph_path(bundle, "lm_head", precision),
        )
        return cls(bundle.network_config.lm, *(open_graph(path, digest, threads) for path in paths))

    def init_state(self, rows: int, capacity: int) -> ArrayLmState:
        """Empty memory for ``capacity`` ids a row; pages that are not written take no memory.

        Raises ValueError if the graph has fewer positions.
        """
        if capacity >= MAX_POSITIONS:
            raise ValueError(f"{capacity} ids a row; the graphs have {MAX_POSITIONS - 1} positions")
        config = self.config
        shape = (config.layers, 2, rows, config.kv_heads, capacity + 1, config.head_width)
        # Pages of 4 kB: numpy's own come in 2 MB, of which the keys of every head would occupy one.
        pages = mmap.mmap(-1, 4 * math.prod(shape))
        kv = np.frombuffer(pages, np.float32).reshape(shape).transpose(2, 0, 1, 3, 4, 5)
        return ArrayLmState(kv, np.zeros(rows, np.int64))

    def prefill(self, state: ArrayLmState, inputs: Sequence[LmInput]) -> ArrayLmState:
        """Feed inputs to a state of one row. Raises ValueError if it has no room."""
        lengths = self._lengths_after(state, [len(inputs)])
        self._run(self._embed(inputs)[None], state.kv, state.lengths)
        return ArrayLmState(state.kv, lengths)

    def choose(
        self, state: ArrayLmState, turns: Sequence[DecodeTurn | None]
    ) -> tuple[ArrayLmState, dict[int, int]]:
        """Sample an id for every generation that has a request; the new state and the ids by row.

        Raises ValueError if a row would outgrow its memory or has no id to choose from; then no generation,
        random number or length has changed.
        """
        requests = collect_requests(enumerate(turns))
        if not requests:
            return state, {}
        counts = np.zeros(len(turns), np.int64)
        counts[[each.row for each in requests]] = [len(each.inputs) for each in requests]
        lengths = self._lengths_after(state, counts)
        logits = self._logits(self._last_hidden(state, requests))
        sampled = sample_ids(logits, [each.sampling_context for each in requests])
        chosen = {each.row: one.id for each, one in zip(requests, sampled, strict=True)}
        return ArrayLmState(state.kv, lengths), chosen

    def _last_hidden(self, state: ArrayLmState, requests: Sequence[RowRequest]) -> Float:
        """Hidden state of each request's last input, (requests, hidden)."""
        last = np.empty((len(requests), self.config.hidden), np.float32)
        singles = [index for index, each in enumerate(requests) if len(each.inputs) == 1]
        if singles:
            rows = np.array([requests[index].row for index in singles])
            # Rows in between get a key behind their length, which their next input overwrites.
            first, stop = rows.min(), rows.max() + 1
            x = np.zeros((stop - first, 1, self.config.hidden), np.float32)
            x[rows - first, 0] = self._embed([requests[index].inputs[0] for index in singles])
            last[singles] = self._run(x, state.kv[first:stop], state.lengths[first:stop])[rows - first, 0]
        for index, each in enumerate(requests):
            if len(each.inputs) > 1:
                rows_of_one = slice(each.row, each.row + 1)
                x = self._embed(each.inputs)[None]
                last[index] = self._run(x, state.kv[rows_of_one], state.lengths[rows_of_one])[0, -1]
        return last

    def _lengths_after(self, state: ArrayLmState, counts: Sequence[int] | Integers) -> Integers:
        lengths: Integers = state.lengths + np.asarray(counts)
        capacity = state.kv.shape[4] - 1
        if lengths.max() > capacity:
            raise ValueError(f"a row would hold {lengths.max()} ids; its memory was made for {capacity}")
        return lengths

    def _embed(self, inputs: Sequence[LmInput]) -> Float:
        index = np.array([[lm_input_index(self.config, one) for one in inputs]], np.int64)
        embedded: Float = self._embedding.run(None, {"index": index})[0][0]
        return embedded

    def _logits(self, hidden: Float) -> Float:
        scores: Float = self._head.run(None, {"hidden": hidden[None]})[0][0]
        return scores

    def _run(self, x: Float, kv: NDArray[np.float32], lengths: Integers) -> Float:
        """Run the graph on rows with T inputs each; keys and values are written into ``kv``."""
        binding = self._step.io_binding()
        x, lengths, hidden = np.ascontiguousarray(x), np.ascontiguousarray(lengths), np.empty_like(x)
        binding.bind_input("embedded", "cpu", 0, _FLOAT, x.shape, x.ctypes.data)
        binding.bind_input("lengths", "cpu", 0, _INT64, lengths.shape, lengths.ctypes.data)
        binding.bind_output("hidden", "cpu", 0, _FLOAT, hidden.shape, hidden.ctypes.data)
        buffers = (part for layer in kv.transpose(1, 2, 0, 3, 4, 5) for part in layer)
        for name, buffer in zip(self._states, buffers, strict=True):
            if not buffer.flags.c_contiguous:
                raise ValueError("the state was not made by init_state; its rows are not adjacent")
            place = ("cpu", 0, _FLOAT, buffer.shape, buffer.ctypes.data)
            binding.bind_input(f"past_{name}", *place)
            binding.bind_output(f"present_{name}", *place)
        self._step.run_with_iobinding(binding)
        return hidden
