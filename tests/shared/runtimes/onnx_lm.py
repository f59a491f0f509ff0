"""The exported language model on tensors, to be compared with torch: the interface of ``SpeechLm``.

``ArraySpeechLm`` runs the graphs; tensors and its arrays share their memory.
"""

import numpy as np
import torch
from torch import Tensor

from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.config import SpeechLmConfig
from vivavoce.models.cosyvoice.lm.generation import LmInput, lm_input_index
from vivavoce.models.cosyvoice.onnx_runtime.language_model import ArrayLmState, ArraySpeechLm
from vivavoce.models.decoding.kv_memory import SpeechLmState
from vivavoce.models.devices.execution import Precision
from vivavoce.models.devices.torch_devices import CPU


class OnnxSpeechLm:
    """The exported graphs of a language model. ``load`` opens them."""

    device = CPU

    def __init__(self, arrays: ArraySpeechLm) -> None:
        self._arrays = arrays
        self.config: SpeechLmConfig = arrays.config

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, precision: Precision, digest: str = "") -> "OnnxSpeechLm":
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        return cls(ArraySpeechLm.load(bundle, precision, digest))

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """Empty memory for ``capacity`` ids a row; pages that are not written take no memory.

        Raises ValueError if the graph has fewer positions.
        """
        return _to_tensors(self._arrays.init_state(rows, capacity))

    def input_index(self, lm_input: LmInput) -> int:
        """Index of an input in the table of ``lm_embed``. Raises IndexError for an unknown id."""
        return lm_input_index(self.config, lm_input)

    def embed(self, indices: Tensor) -> Tensor:
        """Embed indices of ``input_index``: (...) int64 to (..., hidden)."""
        return torch.from_numpy(self._arrays.embed(indices.numpy()))

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
        counts = np.full(len(x), x.shape[1]) if valid is None else valid.numpy()
        arrays = ArrayLmState(state.kv.numpy(), state.lengths.numpy())
        hidden, after = self._arrays.step(x.numpy(), arrays, counts)
        return torch.from_numpy(hidden), SpeechLmState(state.kv, torch.from_numpy(after.lengths))

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores before softmax: (..., hidden) to (..., speech_vocab_size)."""
        return torch.from_numpy(self._arrays.logits(hidden.numpy()))


def _to_tensors(state: ArrayLmState) -> SpeechLmState:
    return SpeechLmState(torch.from_numpy(state.kv), torch.from_numpy(state.lengths))
