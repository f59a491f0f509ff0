"""The language model in ONNX Runtime, on a CPU; the same interface and state as ``SpeechLm``.

Keys and values are written into the state's memory in place: past and present of a step are bound to it.

    kv     (B, layers, 2, kv_heads, capacity + 1, head_width), as in ``SpeechLm``
    memory (layers, 2, B, kv_heads, capacity + 1, head_width), so that a range of rows is contiguous in each
           of the graph's buffers

Rows with one input share a step. A row with more takes a step of its own, without padding: ONNX Runtime's
attention does not accept several such rows.
"""

import onnxruntime
import torch
from torch import Tensor

from ..checkpoint.bundle import CosyVoiceBundle
from ..config import SpeechLmConfig
from ..devices import CPU
from ..execution import Precision
from ..lm.generation import LmInput, lm_input_index
from ..lm.speech_lm import SpeechLmState, lazy_zeros, lengths_after
from .graph_files import MAX_POSITIONS, bundle_digest, graph_path, open_graph, state_names

_FLOAT, _INT64 = 1, 7  # TensorProto.FLOAT, TensorProto.INT64


class OnnxSpeechLm:
    """The exported graphs of a language model. ``load`` opens them."""

    device = CPU

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
    def load(cls, bundle: CosyVoiceBundle, precision: Precision, digest: str = "") -> "OnnxSpeechLm":
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        digest, threads = digest or bundle_digest(bundle), torch.get_num_threads()
        sessions = (
            open_graph(path, digest, threads)
            for path in (
                graph_path(bundle, "lm_embed"),
                graph_path(bundle, "lm_step", precision),
                graph_path(bundle, "lm_head", precision),
            )
        )
        return cls(bundle.network_config.lm, *sessions)

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """Empty memory for ``capacity`` ids a row; pages that are not written take no memory.

        Raises ValueError if the graph has fewer positions.
        """
        if capacity >= MAX_POSITIONS:
            raise ValueError(f"{capacity} ids a row; the graphs have {MAX_POSITIONS - 1} positions")
        config = self.config
        shape = (config.layers, 2, rows, config.kv_heads, capacity + 1, config.head_width)
        kv = lazy_zeros(shape, torch.empty(0)).permute(2, 0, 1, 3, 4, 5)
        return SpeechLmState(kv, torch.zeros(rows, dtype=torch.int64))

    def input_index(self, lm_input: LmInput) -> int:
        """Index of an input in the table of ``lm_embed``. Raises IndexError for an unknown id."""
        return lm_input_index(self.config, lm_input)

    def embed(self, indices: Tensor) -> Tensor:
        """Embed indices of ``input_index``: (...) int64 to (..., hidden)."""
        rows = indices.reshape(1, -1).numpy()
        embedded = torch.from_numpy(self._embedding.run(None, {"index": rows})[0])
        return embedded.view(*indices.shape, self.config.hidden)

    def embed_speech(self, speech_ids: Tensor) -> Tensor:
        """Embed speech ids: (...) int64 to (..., hidden)."""
        return self.embed(speech_ids + self.config.text_vocab_size)

    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]:
        """Feed embedded inputs (B, T, hidden); as ``SpeechLm.step``, and rows of equal speed.

        A row without inputs may be written to behind its length. Raises ValueError if a row would outgrow its
        memory.
        """
        if valid is None:
            valid = state.lengths.new_full(x.shape[:1], x.shape[1])
        lengths = lengths_after(state, valid)
        hidden = torch.empty_like(x)
        single_rows = (valid == 1).nonzero().flatten().tolist()
        if single_rows:
            # Rows in between get a key behind their length, which their next input overwrites.
            rows = slice(single_rows[0], single_rows[-1] + 1)
            hidden[rows, :1] = self._run(x[rows, :1], state.kv[rows], state.lengths[rows])
        for row in (valid > 1).nonzero().flatten().tolist():
            rows, columns = slice(row, row + 1), int(valid[row])
            hidden[rows, :columns] = self._run(x[rows, :columns], state.kv[rows], state.lengths[rows])
        return hidden, SpeechLmState(state.kv, lengths)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores before softmax: (..., hidden) to (..., speech_vocab_size)."""
        rows = hidden.reshape(1, -1, self.config.hidden).contiguous().numpy()
        scores = torch.from_numpy(self._head.run(None, {"hidden": rows})[0])
        return scores.view(*hidden.shape[:-1], -1)

    def _run(self, x: Tensor, kv: Tensor, lengths: Tensor) -> Tensor:
        """Run the graph on rows with T inputs each; keys and values are written into ``kv``."""
        binding = self._step.io_binding()
        x, hidden = x.contiguous(), torch.empty(x.shape)
        binding.bind_input("embedded", "cpu", 0, _FLOAT, x.shape, x.data_ptr())
        lengths = lengths.contiguous()
        binding.bind_input("lengths", "cpu", 0, _INT64, lengths.shape, lengths.data_ptr())
        binding.bind_output("hidden", "cpu", 0, _FLOAT, hidden.shape, hidden.data_ptr())
        for name, buffer in zip(self._states, kv.permute(1, 2, 0, 3, 4, 5).flatten(0, 1), strict=True):
            if not buffer.is_contiguous():
                raise ValueError("the state was not made by init_state; its rows are not adjacent")
            place = ("cpu", 0, _FLOAT, buffer.shape, buffer.data_ptr())
            binding.bind_input(f"past_{name}", *place)
            binding.bind_output(f"present_{name}", *place)
        self._step.run_with_iobinding(binding)
        return hidden
