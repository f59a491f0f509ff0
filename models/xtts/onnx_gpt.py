"""The language model of XTTS in 8 bits for a CPU: layers and head in ONNX Runtime, embeddings in torch.

Only the matrices have 8 bits, and their inputs while they are multiplied. The memory, the norms and the
latents stay float32.
"""

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from ..decoding.kv_memory import SpeechLmState, lazy_zeros
from ..networks.layers import load_weights
from ..onnx_graphs.decoder_steps import DecoderSteps
from ..onnx_graphs.matrix_products import MatrixFormat
from .config import XttsGptConfig
from .gpt import XttsGpt, renamed_weights
from .gpt_graphs import LATENTS, SCORES, head_session, step_session

# With blocks of up to 64 inputs, a row of a product has the same bits among any number of rows, so that a
# session speaks the same alone and among others. With 128 inputs a product takes 0.87 of the time, but bits
# change and then ids; with 32 it takes 1.15. 4 bits in the MLPs have 50 times the error.
INT8_MATRICES = MatrixFormat(8, 64)


class OnnxXttsGpt(XttsGpt):
    """The network. Built by ``load`` and constant afterwards."""

    def __init__(
        self,
        config: XttsGptConfig,
        start_text_id: int,
        stop_text_id: int,
        step: onnxruntime.InferenceSession,
        head: onnxruntime.InferenceSession,
    ) -> None:
        super().__init__(config, start_text_id, stop_text_id)
        self._steps, self._head = DecoderSteps(step, config.layers), head

    @classmethod
    def load(
        cls,
        config: XttsGptConfig,
        weights: dict[str, Tensor],
        start_text_id: int,
        stop_text_id: int,
        matrices: MatrixFormat = INT8_MATRICES,
    ) -> "OnnxXttsGpt":
        """Build from the tensors of model.pth whose keys start with ``gpt.``, as ``TorchXttsGpt.load``."""
        named, threads = dict(renamed_weights(config, weights)), torch.get_num_threads()
        step = step_session(config, named, matrices, threads)
        head = head_session(config, named, matrices, threads)
        with torch.device("meta"):
            network = cls(config, start_text_id, stop_text_id, step, head)
        load_weights(network, named)
        return network

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """Empty memory for ``capacity`` columns a row."""
        config = self.config
        shape = (config.layers, 2, rows, config.heads, capacity + 1, config.head_width)
        memory = lazy_zeros(shape, self.speech_embedding.weight)
        return SpeechLmState(memory.permute(2, 0, 1, 3, 4, 5), torch.zeros(rows, dtype=torch.int64))

    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]:
        """Feed columns, as ``XttsGpt.step``; a row without inputs may be written to behind its length."""
        counts = np.full(len(x), x.shape[1]) if valid is None else valid.numpy()
        hidden, lengths = self._steps.step(x.numpy(), state.kv.numpy(), state.lengths.numpy(), counts)
        return torch.from_numpy(hidden), SpeechLmState(state.kv, torch.from_numpy(lengths))

    def logits(self, latents: Tensor) -> Tensor:
        """Scores before softmax: (..., hidden) to (..., speech_vocab_size)."""
        rows = latents.reshape(-1, self.config.hidden).numpy()
        scores = torch.from_numpy(self._head.run([SCORES], {LATENTS: rows})[0])
        return scores.view(*latents.shape[:-1], -1)
