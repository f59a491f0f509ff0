"""The exported flow in int8 on arrays, whose sentences read the memory of their voice where it is.

    voice       keys and values of the recording in every layer: made once, shared, never written
    sentence    those of its speech so far, in memory that each step replaces by a longer one

The encoder's memories, 1 MB a second, are copied for every sentence.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ...networks.execution import Precision
from ..checkpoint.bundle import CosyVoiceBundle
from ..flow.policy import EXACT_POLICY, FlowPolicy
from .flow import ArrayFlow, ArrayFlowState, with_encoder_capacity
from .graph_runs import Array, Float, Integers, OrtGraph, RunnableGraph, State, paged_zeros

_PARTS = ("key", "value")
_SENTENCE = "past_memory"  # among the contexts of a solver step


class SharedVoiceFlow(ArrayFlow):
    """The exported graphs of a flow in int8. ``load`` opens them.

    A memory is (layers, 2, B, 2, H, frames, d) float16 for each solver step: the voice's are the
    ``solver_memories`` of a state, the sentence's are with the contexts.
    """

    @classmethod
    def load(
        cls,
        bundle: CosyVoiceBundle,
        policy: FlowPolicy = EXACT_POLICY,
        digest: str = "",
        graph: Callable[[onnxruntime.InferenceSession], RunnableGraph] = OrtGraph,
        precision: Precision = Precision.INT8,
    ) -> Self:
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        return super().load(bundle, replace(policy, dtype="float16"), digest, graph, precision)

    @property
    def shares_voices(self) -> bool:
        """A sentence takes no memory for its voice."""
        return True

    def empty_voice(self, speaker: Array, frames: int) -> ArrayFlowState:
        """A state to unpack a voice of ``frames`` frames into."""
        state = self.init_state(speaker, frames)
        shapes = ((*memory.shape[:-2], frames, memory.shape[-1]) for memory in state.solver_memories)
        return replace(state, solver_memories=tuple(paged_zeros(shape, np.float16) for shape in shapes))

    def prefill(self, embedding: Float, ids: Integers, mel: Float) -> ArrayFlowState:
        """As ``ArrayFlow.prefill``; the memory becomes the voice's."""
        state = super().prefill(embedding, ids, mel)
        empty = self._initial_contexts(1)[_SENTENCE]
        return replace(
            state,
            solver=tuple({**contexts, _SENTENCE: empty} for contexts in state.solver),
            solver_memories=tuple(contexts[_SENTENCE] for contexts in state.solver),
        )

    def _initial_contexts(self, rows: int) -> State:
        contexts = self._step.initial_state(rows)
        names = [name for name in contexts if name.startswith(tuple(f"past_{part}." for part in _PARTS))]
        parts = np.stack([contexts.pop(name) for name in names])
        return {**contexts, _SENTENCE: parts.reshape(len(names) // 2, 2, *parts.shape[1:])}

    def _solver_memories(self, rows: int, frames: int) -> tuple[Array, ...]:
        """Those of no voice."""
        return (self._initial_contexts(rows)[_SENTENCE],) * self.config.solver_steps

    def _with_capacity(self, state: ArrayFlowState, frames: int) -> ArrayFlowState:
        return with_encoder_capacity(state, frames)

    def _run_step(self, inputs: State, contexts: State, memory: Array) -> State:
        assert isinstance(self._step, OrtGraph)
        others = {name: context for name, context in contexts.items() if name != _SENTENCE}
        past = contexts[_SENTENCE]
        frames = past.shape[-2] + inputs["x"].shape[1]
        present = paged_zeros((*past.shape[:-2], frames, past.shape[-1]), past.dtype)
        given = {**inputs, **others, **_by_layer("voice", memory), **_by_layer("past", past)}
        outputs = self._step.run_into(given, _by_layer("present", present))
        return {**outputs, _SENTENCE.replace("past", "present"): present}


def _by_layer(time: str, memory: NDArray[np.float16]) -> dict[str, NDArray[np.float16]]:
    """The parts of a memory by the names of inputs and outputs."""
    return {
        f"{time}_{part}.{layer}": memory[layer, place]
        for layer in range(len(memory))
        for place, part in enumerate(_PARTS)
    }
