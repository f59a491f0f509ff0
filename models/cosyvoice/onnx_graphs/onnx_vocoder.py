"""The vocoders in ONNX Runtime, on a CPU: one class for both versions, whose graphs keep all that differs."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnxruntime
import torch
from torch import Tensor

from ..checkpoint.bundle import CosyVoiceBundle
from ..config import CosyVoiceVersion, HiftConfig
from ..onnx_runtime.graph_runs import initial_arrays, run_arrays
from ..vocoder.hift_v2 import HiftV2Policy
from ..vocoder.hift_v3 import check_first_chunk, noise_frames
from .graph_files import bundle_digest, graph_path, open_graph


@dataclass(frozen=True, slots=True)
class VocoderGraphState:
    """Memory of the vocoder between steps. parts: in the order of the graph's inputs, rows first."""

    parts: tuple[Tensor, ...]


class OnnxVocoder:
    """The exported graph of a vocoder. ``load`` opens it."""

    def __init__(
        self, config: HiftConfig, version: CosyVoiceVersion, session: onnxruntime.InferenceSession
    ) -> None:
        self.config, self.version, self._session = config, version, session
        self._names = [name.removeprefix("past_") for name in initial_state(session, 0)]

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, digest: str = "") -> "OnnxVocoder":
        """Open the graph of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        digest = digest or bundle_digest(bundle)
        session = open_graph(graph_path(bundle, "vocoder"), digest, torch.get_num_threads())
        return cls(bundle.network_config.hift, bundle.version, session)

    def init_state(self, rows: int) -> VocoderGraphState:
        """The state before the first chunk."""
        return VocoderGraphState(tuple(initial_state(self._session, rows).values()))

    def noise_samples(self, mel_frames: int, state: VocoderGraphState, *, last: bool) -> int:
        """Samples of noise that ``step``, or ``finish`` if ``last``, needs for ``mel_frames`` new frames."""
        if self.version is CosyVoiceVersion.V3:
            is_beginning = not self._past_mel(state).shape[2]
            mel_frames = noise_frames(mel_frames, is_beginning=is_beginning, last=last)
        return self.config.samples_per_frame * mel_frames

    def step(self, mel: Tensor, noise: Tensor, state: VocoderGraphState) -> tuple[Tensor, VocoderGraphState]:
        """Render a chunk, as ``HiftV2.step`` or ``HiftV3.step``. Raises ValueError as they do."""
        if self.version is CosyVoiceVersion.V3:
            check_first_chunk(mel, self._past_mel(state))
        return self._render(mel, noise, state, last=False)

    def finish(self, mel: Tensor, noise: Tensor, state: VocoderGraphState) -> Tensor:
        """Render all remaining samples, as ``HiftV2.finish`` or ``HiftV3.finish``."""
        return self._render(mel, noise, state, last=True)[0]

    def _past_mel(self, state: VocoderGraphState) -> Tensor:
        return state.parts[self._names.index("mel")]

    def _render(
        self, mel: Tensor, noise: Tensor, state: VocoderGraphState, *, last: bool
    ) -> tuple[Tensor, VocoderGraphState]:
        inputs = {f"past_{name}": part for name, part in zip(self._names, state.parts, strict=True)}
        if self.version is CosyVoiceVersion.V2:
            inputs["withheld"] = torch.tensor(0 if last else HiftV2Policy().overlap_frames)
        else:
            inputs["last"] = torch.tensor(int(last))
        outputs = run_graph(self._session, {**inputs, "mel": mel, "noise": noise})
        present = tuple(outputs[f"present_{name}"] for name in self._names)
        return outputs["samples"], VocoderGraphState(present)


def run_graph(session: onnxruntime.InferenceSession, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Run a graph; its outputs by name. Inputs that are contiguous are not copied."""
    outputs = run_arrays(session, {name: tensor.numpy() for name, tensor in inputs.items()})
    return {name: torch.from_numpy(output) for name, output in outputs.items()}


def initial_state(session: onnxruntime.InferenceSession, rows: int) -> dict[str, Tensor]:
    """Zeros for every ``past_`` input of a graph: 0 long on dynamic axes other than the rows."""
    return {name: torch.from_numpy(zeros) for name, zeros in initial_arrays(session, rows).items()}
