"""The exported vocoder on numpy arrays, and its noise: normal in version 2, upstream's table in version 3."""

import numpy as np
import onnxruntime
from numpy.random import Generator, RandomState

from ..checkpoint.bundle import CosyVoiceBundle
from ..config import (
    MEL_BANDS,
    V2_WITHHELD_FRAMES,
    V3_PENDING_FRAMES,
    CosyVoiceVersion,
    HiftConfig,
)
from ..onnx_graphs.graph_files import bundle_digest, graph_path, open_graph
from .graph_runs import Float, initial_arrays, run_arrays, thread_count
from .random_numbers import uniform_numbers

_DRAWS_BEFORE_TABLE = MEL_BANDS * 15_000 + 3_852_970  # see vocoder/noise_table.py


class ArrayVocoder:
    """The exported graph of a vocoder. ``load`` opens it."""

    def __init__(
        self, config: HiftConfig, version: CosyVoiceVersion, session: onnxruntime.InferenceSession
    ) -> None:
        self.config, self.version, self.session = config, version, session
        self._table = RandomState(0)
        if version is CosyVoiceVersion.V3:
            uniform_numbers(self._table, _DRAWS_BEFORE_TABLE)

    @classmethod
    def load(cls, bundle: CosyVoiceBundle) -> "ArrayVocoder":
        """Open the graph of a bundle. Raises InvalidBundleError."""
        session = open_graph(graph_path(bundle, "vocoder"), bundle_digest(bundle), thread_count())
        return cls(bundle.network_config.hift, bundle.version, session)

    def open_stream(self, normal: Generator) -> "ArrayVocoderStream":
        """The vocoder of one sentence. normal: draws version 2's noise."""
        table = RandomState()
        table.set_state(self._table.get_state())
        return ArrayVocoderStream(self, normal, table)


class ArrayVocoderStream:
    """State and noise of one sentence. Make it with ``ArrayVocoder.open_stream``."""

    def __init__(self, vocoder: ArrayVocoder, normal: Generator, table: RandomState) -> None:
        self._vocoder, self._normal, self._table = vocoder, normal, table
        self._state = initial_arrays(vocoder.session, 1)

    def draw_noise(self, frames: int, *, last: bool) -> Float:
        """The noise for that many new mel frames, (1, N, waves)."""
        config = self._vocoder.config
        if self._vocoder.version is CosyVoiceVersion.V2:
            shape = (1, config.samples_per_frame * frames, config.sine_count)
            return self._normal.standard_normal(shape, np.float32)
        begins = not self._state["past_mel"].shape[2]
        frames = max(0, frames + V3_PENDING_FRAMES * (int(last) - int(begins)))
        shape = (1, config.samples_per_frame * frames, config.sine_count)
        return uniform_numbers(self._table, int(np.prod(shape))).reshape(shape)

    def render(self, mel: Float, noise: Float, *, last: bool) -> Float:
        """Samples (N,) of a chunk, less those that depend on the next one unless it is the last.

        mel: (80, n). noise: of ``draw_noise``.
        """
        if self._vocoder.version is CosyVoiceVersion.V2:
            end = {"withheld": np.array(0 if last else V2_WITHHELD_FRAMES)}
        else:
            end = {"last": np.array(int(last))}
        inputs = {**self._state, **end, "mel": np.ascontiguousarray(mel[None]), "noise": noise}
        outputs = run_arrays(self._vocoder.session, inputs)
        self._state = {name: outputs[name.replace("past_", "present_")] for name in self._state}
        samples: Float = outputs["samples"][0].astype(np.float32, copy=False)
        return samples
