"""The exported flow in int8 on arrays, whose sentences read the memory of their voice where it is.

    voice       keys and values of the recording in every layer: made once, shared, never written
    sentence    those of its speech so far, in a memory with room for more, which the graph writes into

The encoder's memories, 1 MB a second, are copied for every sentence. Two threads compute the halves of the
guidance, conditioned and free.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Self

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ...devices.execution import Precision
from ...devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from ..checkpoint.bundle import CosyVoiceBundle
from ..config import UnetConfig
from ..flow.policy import EXACT_POLICY, FlowPolicy
from .flow import ArrayFlow, ArrayFlowState, present
from .graph_runs import Array, Float, Integers, OrtGraph, RunnableGraph, State, paged_zeros

_PARTS = ("key", "value")
_HALVES = 2


class SharedVoiceFlow(ArrayFlow):
    """The exported graphs of a flow in int8. ``load`` opens them.

    A memory is (layers, 2, frames, B * H * d) float16 for each solver step and half, keys before values: the
    ``voice_memories`` of a state, and the ``solver_memories`` of its sentence.
    """

    @classmethod
    def load(
        cls,
        bundle: CosyVoiceBundle,
        policy: FlowPolicy = EXACT_POLICY,
        digest: str = "",
        graph: Callable[[onnxruntime.InferenceSession], RunnableGraph] = OrtGraph,
        precision: Precision = Precision.INT8,
        sessions: OnnxSessions = CPU_SESSIONS,
    ) -> Self:
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        return super().load(bundle, replace(policy, dtype="float16"), digest, graph, precision, sessions)

    @staticmethod
    def _step_threads(threads: int) -> int:
        return max(1, threads // _HALVES)

    @property
    def _runs(self) -> int:
        return _HALVES * self.config.solver_steps

    @property
    def shares_voices(self) -> bool:
        """A sentence takes no memory for its voice."""
        return True

    def init_state(self, speaker: Array, frames: int) -> ArrayFlowState:
        """As ``ArrayFlow.init_state``, without a voice."""
        state = super().init_state(speaker, frames)
        return replace(state, voice_memories=self._solver_memories(len(speaker), 0))

    def empty_voice(self, speaker: Array, frames: int) -> ArrayFlowState:
        """A state to unpack a voice of ``frames`` frames into."""
        return _as_voice(replace(self.init_state(speaker, frames), frames=frames))

    def prefill(self, embedding: Float, ids: Integers, mel: Float) -> ArrayFlowState:
        """As ``ArrayFlow.prefill``; the memory becomes the voice's."""
        state = super().prefill(embedding, ids, mel)
        return _as_voice(state) if state.frames else state

    def _initial_contexts(self, rows: int) -> State:
        memories = tuple(f"past_{part}." for part in _PARTS)
        contexts = self._step.initial_state(rows)
        return {name: context for name, context in contexts.items() if not name.startswith(memories)}

    def _solver_memories(self, rows: int, frames: int) -> tuple[Array, ...]:
        estimator = self.config.estimator
        layers = estimator.attention_layers if isinstance(estimator, UnetConfig) else estimator.depth
        shape = (layers, len(_PARTS), frames, rows * estimator.inner)
        return tuple(paged_zeros(shape, np.float16) for _ in range(self._runs))

    def _solve(self, inputs: State, state: ArrayFlowState) -> tuple[Array, list[State]]:
        with ThreadPoolExecutor(1) as other_thread:
            free = other_thread.submit(self._run_half, 1, inputs, state)
            conditioned_change, conditioned = self._run_half(0, inputs, state)
        free_change, others = free.result()
        return inputs["x"] + conditioned_change + free_change, [conditioned, others]

    def _run_half(self, half: int, inputs: State, state: ArrayFlowState) -> tuple[Array, State]:
        """What a half changes in x, and its next contexts."""
        assert isinstance(self._step, OrtGraph)
        rows, frames, _ = inputs["x"].shape
        run = _HALVES * inputs["solver_step"] + half
        contexts, voice, memory = state.solver[run], state.voice_memories[run], state.solver_memories[run]
        used = state.frames - state.voice_frames
        past, new = memory[:, :, :used], memory[:, :, used : used + frames]
        memories = {**_by_layer("voice", voice, rows), **_by_layer("past", past, rows)}
        outputs = self._step.run_into(
            {**inputs, **contexts, **memories, "half": half}, _by_layer("new", new, rows)
        )
        return outputs["change"], present(outputs, contexts)


def _as_voice(state: ArrayFlowState) -> ArrayFlowState:
    """The state behind a recording, whose frames become those of the voice; it has no room for others."""
    whole = state.solver_memories
    return replace(
        state,
        voice_memories=tuple(memory[:, :, : state.frames] for memory in whole),
        solver_memories=tuple(memory[:, :, :0] for memory in whole),
    )


def _by_layer(time: str, memory: NDArray[np.float16], rows: int) -> dict[str, NDArray[np.float16]]:
    """The parts of a memory by the names of inputs and outputs, (frames, B, H * d)."""
    _, _, frames, width = memory.shape
    return {
        f"{time}_{part}.{layer}": memory[layer, place].reshape(frames, rows, width // rows)
        for layer in range(len(memory))
        for place, part in enumerate(_PARTS)
    }
