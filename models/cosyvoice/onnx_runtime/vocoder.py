"""The exported vocoder on arrays, and its noise: normal in version 2, upstream's table in version 3.

``uniform_numbers`` and ``normal_numbers`` are what ``torch.rand`` and ``torch.randn`` draw after a seed, from
numpy's same generator. Both are the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded
alike. Uniform numbers are equal; normal ones (Box and Muller, 1958) differ by the rounding of logarithm and
cosine.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import onnxruntime
from numpy.random import Generator, RandomState

from ...devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from ..checkpoint.bundle import CosyVoiceBundle
from ..config import (
    MEL_BANDS,
    V2_WITHHELD_FRAMES,
    V3_PENDING_FRAMES,
    CosyVoiceVersion,
    HiftConfig,
)
from ..onnx_graphs.graph_files import bundle_digest, graph_path, open_graph
from ..vocoder.normal_noise import draw_normal
from .graph_runs import Array, Float, OrtGraph, RunnableGraph, State, host_array, thread_count

_DRAWS_BEFORE_TABLE = MEL_BANDS * 15_000 + 3_852_970  # see vocoder/noise_table.py


class ArrayVocoder:
    """The exported graph of a vocoder. ``load`` opens it."""

    def __init__(self, config: HiftConfig, version: CosyVoiceVersion, graph: RunnableGraph) -> None:
        self.config, self.version, self._graph = config, version, graph

    @cached_property
    def _table(self) -> RandomState:
        """The generator of version 3's noise at the begin of upstream's table."""
        table = RandomState(0)
        uniform_numbers(table, _DRAWS_BEFORE_TABLE)
        return table

    @classmethod
    def load(
        cls,
        bundle: CosyVoiceBundle,
        digest: str = "",
        graph: Callable[[onnxruntime.InferenceSession], RunnableGraph] = OrtGraph,
        sessions: OnnxSessions = CPU_SESSIONS,
    ) -> "ArrayVocoder":
        """Open the graph of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        digest = digest or bundle_digest(bundle)
        session = open_graph(graph_path(bundle, "vocoder"), digest, thread_count(), sessions)
        return cls(bundle.network_config.hift, bundle.version, graph(session))

    def init_state(self, rows: int) -> State:
        """The ``past_`` inputs before the first chunk."""
        return self._graph.initial_state(rows)

    def noise_samples(self, mel_frames: int, state: State, *, last: bool) -> int:
        """Samples of noise that ``render`` needs for ``mel_frames`` new frames."""
        if self.version is CosyVoiceVersion.V3:
            begins = not state["past_mel"].shape[2]
            mel_frames = max(0, mel_frames + V3_PENDING_FRAMES * (int(last) - int(begins)))
        return self.config.samples_per_frame * mel_frames

    def render(self, mel: Array, noise: Array, state: State, *, last: bool) -> tuple[Array, State]:
        """Samples (B, N) of a chunk, less those that depend on the next one unless it is the last.

        mel: (B, 80, n). noise: (B, ``noise_samples``, waves).
        """
        if self.version is CosyVoiceVersion.V2:
            end = {"withheld": 0 if last else V2_WITHHELD_FRAMES}
        else:
            end = {"last": int(last)}
        outputs = self._graph.run({**state, **end, "mel": mel, "noise": noise})
        return outputs["samples"], {name: outputs[name.replace("past_", "present_")] for name in state}

    def open_stream(self, normal: Generator) -> "ArrayVocoderStream":
        """The vocoder of one sentence. normal: draws version 2's noise."""
        table = RandomState()
        if self.version is CosyVoiceVersion.V3:
            table.set_state(self._table.get_state())
        return ArrayVocoderStream(self, normal, table)


class ArrayVocoderStream:
    """State and noise of one sentence. Make it with ``ArrayVocoder.open_stream``."""

    def __init__(self, vocoder: ArrayVocoder, normal: Generator, table: RandomState) -> None:
        self._vocoder, self._normal, self._table = vocoder, normal, table
        self._state = vocoder.init_state(1)

    def draw_noise(self, frames: int, *, last: bool) -> Float:
        """The noise for that many new mel frames, (1, N, waves)."""
        vocoder = self._vocoder
        samples = vocoder.noise_samples(frames, self._state, last=last)
        shape = (1, samples, vocoder.config.sine_count)
        if vocoder.version is CosyVoiceVersion.V2:
            return draw_normal(self._normal, shape)
        return uniform_numbers(self._table, int(np.prod(shape))).reshape(shape)

    def render(self, mel: Float, noise: Float, *, last: bool) -> Float:
        """Samples (N,) of a chunk, as ``ArrayVocoder.render``. mel: (80, n). noise: of ``draw_noise``."""
        rendered, self._state = self._vocoder.render(mel[None], noise, self._state, last=last)
        return host_array(rendered[0])


def uniform_numbers(generator: RandomState, count: int) -> Float:
    """(count,) numbers in 0..1: the low 24 bits of each draw."""
    drawn = generator.randint(0, 2**32, count, dtype=np.uint32) & 0xFFFFFF
    return drawn.astype(np.float32) * np.float32(2**-24)


def normal_numbers(generator: RandomState, count: int) -> Float:
    """(count,) standard normal numbers, a multiple of 16: a pair of draws 8 apart gives a pair of numbers."""
    first, second = uniform_numbers(generator, count).reshape(-1, 2, 8).transpose(1, 0, 2)
    radius, angle = np.sqrt(-2 * np.log(1 - first)), np.float32(2 * np.pi) * second
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()
