"""The exported vocoders on tensors: one class for both versions, whose graphs keep all that differs.

``ArrayVocoder`` runs the graph; tensors and its arrays share their memory.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..checkpoint.bundle import CosyVoiceBundle
from ..config import CosyVoiceVersion
from ..onnx_runtime.graph_runs import State
from ..onnx_runtime.vocoder import ArrayVocoder
from ..vocoder.hift_v3 import check_first_chunk


@dataclass(frozen=True, slots=True)
class VocoderGraphState:
    """Memory of the vocoder between steps. parts: in the order of the graph's inputs, rows first."""

    parts: tuple[Tensor, ...]


class OnnxVocoder:
    """The exported graph of a vocoder. ``load`` opens it."""

    def __init__(self, arrays: ArrayVocoder) -> None:
        self._arrays, self.config, self.version = arrays, arrays.config, arrays.version
        self._names = list(arrays.init_state(0))

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, digest: str = "") -> "OnnxVocoder":
        """Open the graph of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        return cls(ArrayVocoder.load(bundle, digest))

    def init_state(self, rows: int) -> VocoderGraphState:
        """The state before the first chunk."""
        return _to_tensors(self._arrays.init_state(rows))

    def noise_samples(self, mel_frames: int, state: VocoderGraphState, *, last: bool) -> int:
        """Samples of noise that ``step``, or ``finish`` if ``last``, needs for ``mel_frames`` new frames."""
        return self._arrays.noise_samples(mel_frames, self._to_arrays(state), last=last)

    def step(self, mel: Tensor, noise: Tensor, state: VocoderGraphState) -> tuple[Tensor, VocoderGraphState]:
        """Render a chunk, as ``HiftV2.step`` or ``HiftV3.step``. Raises ValueError as they do."""
        if self.version is CosyVoiceVersion.V3:
            check_first_chunk(mel, state.parts[self._names.index("past_mel")])
        samples, after = self._arrays.render(mel.numpy(), noise.numpy(), self._to_arrays(state), last=False)
        return torch.from_numpy(samples), _to_tensors(after)

    def finish(self, mel: Tensor, noise: Tensor, state: VocoderGraphState) -> Tensor:
        """Render all remaining samples, as ``HiftV2.finish`` or ``HiftV3.finish``."""
        samples, _ = self._arrays.render(mel.numpy(), noise.numpy(), self._to_arrays(state), last=True)
        return torch.from_numpy(samples)

    def _to_arrays(self, state: VocoderGraphState) -> State:
        return {name: part.numpy() for name, part in zip(self._names, state.parts, strict=True)}


def _to_tensors(arrays: State) -> VocoderGraphState:
    return VocoderGraphState(tuple(torch.from_numpy(array) for array in arrays.values()))
