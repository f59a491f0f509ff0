"""The exported language model on numpy arrays.

Steps write into the memory of a state, which ``models.onnx_graphs.decoder_steps`` describes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime

from ...devices.execution import Precision
from ...devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from ...onnx_graphs.decoder_steps import DecoderSteps
from ..checkpoint.bundle import CosyVoiceBundle
from ..config import SpeechLmConfig
from ..lm.decode_turn import DecodeTurn, collect_requests
from ..lm.generation import LmInput, lm_input_index
from ..lm.sampling import sample_ids
from ..onnx_graphs.graph_files import MAX_POSITIONS, bundle_digest, graph_path, open_graph
from .graph_runs import Float, Integers, paged_zeros, thread_count


@dataclass(frozen=True, slots=True)
class ArrayLmState:
    """Memory of each row, as ``SpeechLmState``. lengths: (B,), ids fed so far."""

    kv: Float
    lengths: Integers

    def clear_row(self, row: int) -> None:
        """Empty a row."""
        self.lengths[row] = 0


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
        self._embedding, self._head = embedding, head
        self._step = DecoderSteps(step, config.layers)

    @classmethod
    def load(
        cls,
        bundle: CosyVoiceBundle,
        precision: Precision,
        digest: str = "",
        sessions: OnnxSessions = CPU_SESSIONS,
    ) -> "ArraySpeechLm":
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        digest, threads = digest or bundle_digest(bundle), thread_count()
        paths = (
            graph_path(bundle, "lm_embed"),
            graph_path(bundle, "lm_step", precision),
            graph_path(bundle, "lm_head", precision),
        )
        graphs = (open_graph(path, digest, threads, sessions) for path in paths)
        return cls(bundle.network_config.lm, *graphs)

    def init_state(self, rows: int, capacity: int) -> ArrayLmState:
        """Empty memory for ``capacity`` ids a row; pages that are not written take no memory.

        Raises ValueError if the graph has fewer positions.
        """
        if capacity >= MAX_POSITIONS:
            raise ValueError(f"{capacity} ids a row; the graphs have {MAX_POSITIONS - 1} positions")
        config = self.config
        shape = (config.layers, 2, rows, config.kv_heads, capacity + 1, config.head_width)
        return ArrayLmState(paged_zeros(shape).transpose(2, 0, 1, 3, 4, 5), np.zeros(rows, np.int64))

    def prefill(self, state: ArrayLmState, inputs: Sequence[LmInput]) -> ArrayLmState:
        """Feed inputs to a state of one row. Raises ValueError if it has no room."""
        return self.step(self._embed_inputs(inputs)[None], state, np.array([len(inputs)]))[1]

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
        rows, counts = [each.row for each in requests], np.zeros(len(turns), np.int64)
        counts[rows] = [len(each.inputs) for each in requests]
        x = np.zeros((len(turns), counts.max(), self.config.hidden), np.float32)
        for each in requests:
            x[each.row, : len(each.inputs)] = self._embed_inputs(each.inputs)
        hidden, state_after = self.step(x, state, counts)
        logits = self.logits(hidden[rows, counts[rows] - 1])
        sampled = sample_ids(logits, [each.sampling_context for each in requests])
        return state_after, {each.row: one.id for each, one in zip(requests, sampled, strict=True)}

    def embed(self, index: Integers) -> Float:
        """Embed indices of ``lm_input_index``: (...) to (..., hidden)."""
        embedded: Float = self._embedding.run(None, {"index": index.reshape(1, -1)})[0]
        return embedded.reshape(*index.shape, self.config.hidden)

    def step(self, x: Float, state: ArrayLmState, counts: Integers) -> tuple[Float, ArrayLmState]:
        """Feed embedded inputs (B, T, hidden), of which ``counts`` (B,) are real; padding is at the right.

        Returns the hidden states (B, T, hidden), undefined at padding. A row without inputs may be written to
        behind its length. Raises ValueError if a row would outgrow its memory.
        """
        hidden, lengths = self._step.step(x, state.kv, state.lengths, counts)
        return hidden, ArrayLmState(state.kv, lengths)

    def logits(self, hidden: Float) -> Float:
        """Scores before softmax: (..., hidden) to (..., speech_vocab_size)."""
        rows = np.ascontiguousarray(hidden).reshape(1, -1, self.config.hidden)
        scores: Float = self._head.run(None, {"hidden": rows})[0]
        return scores.reshape(*hidden.shape[:-1], -1)

    def _embed_inputs(self, inputs: Sequence[LmInput]) -> Float:
        return self.embed(np.array([lm_input_index(self.config, one) for one in inputs], np.int64))
