"""The exported vocoders on tensors, to be compared with torch: one class for both versions.

``ArrayVocoder`` runs the graph, in ONNX Runtime on a CPU or in TensorRT on a card.
"""

from dataclasses import dataclass

from torch import Tensor

from shared.runtimes.tensor_graph import TensorOrtGraph
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.onnx_runtime.graph_runs import State
from vivavoce.models.cosyvoice.onnx_runtime.vocoder import ArrayVocoder
from vivavoce.models.cosyvoice.vocoder.hift_v3 import check_first_chunk


@dataclass(frozen=True, slots=True)
class VocoderGraphState:
    """Memory of the vocoder between steps. parts: in the order of the graph's inputs, rows first."""

    parts: tuple[Tensor, ...]


class OnnxVocoder:
    """The exported graph of a vocoder. ``load`` opens it."""

    def __init__(self, graph: ArrayVocoder) -> None:
        self._graph, self.config, self.version = graph, graph.config, graph.version
        self._names = list(graph.init_state(0))

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, digest: str = "") -> "OnnxVocoder":
        """Open the graph of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        return cls(ArrayVocoder.load(bundle, digest, TensorOrtGraph))

    def init_state(self, rows: int) -> VocoderGraphState:
        """The state before the first chunk."""
        return VocoderGraphState(tuple(self._graph.init_state(rows).values()))

    def noise_samples(self, mel_frames: int, state: VocoderGraphState, *, last: bool) -> int:
        """Samples of noise that ``step``, or ``finish`` if ``last``, needs for ``mel_frames`` new frames."""
        return self._graph.noise_samples(mel_frames, self._by_name(state), last=last)

    def step(self, mel: Tensor, noise: Tensor, state: VocoderGraphState) -> tuple[Tensor, VocoderGraphState]:
        """Render a chunk, as ``HiftV2.step`` or ``HiftV3.step``. Raises ValueError as they do."""
        if self.version is CosyVoiceVersion.V3:
            check_first_chunk(mel, self._by_name(state)["past_mel"])
        samples, after = self._graph.render(mel, noise, self._by_name(state), last=False)
        return samples, VocoderGraphState(tuple(after.values()))

    def finish(self, mel: Tensor, noise: Tensor, state: VocoderGraphState) -> Tensor:
        """Render all remaining samples, as ``HiftV2.finish`` or ``HiftV3.finish``."""
        samples: Tensor = self._graph.render(mel, noise, self._by_name(state), last=True)[0]
        return samples

    def _by_name(self, state: VocoderGraphState) -> State:
        return dict(zip(self._names, state.parts, strict=True))
