"""The exported flow on arrays. The memory of the state is fed to the graphs in place.

The graphs return the keys and values of a chunk, which are written behind those of earlier chunks. Sessions
are stepped one by one; a batch would save a few per cent. States stay in the library that runs the graphs;
ids, voices and mels are numpy's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import onnxruntime
from numpy.random import RandomState
from numpy.typing import NDArray

from ...devices.execution import Precision
from ...devices.host_memory import release_array_pages
from ...devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from ..checkpoint.bundle import CosyVoiceBundle
from ..config import BLOCK_FRAMES, BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, MEL_BANDS, FlowConfig
from ..flow.policy import EXACT_POLICY, FlowPolicy
from ..onnx_graphs.graph_files import bundle_digest, flow_graph_path, open_graph
from .graph_runs import Array, Float, Integers, OrtGraph, RunnableGraph, State, host_array, thread_count
from .vocoder import normal_numbers

_NOISE_FRAMES = 15_000


@dataclass(frozen=True, slots=True)
class ArrayFlowState:
    """Memory of B utterances between chunks; a step writes into it, so it must not be used again.

    encoder, solver: ``past_`` inputs of the encoder, and of each run of ``flow_step``. memories: of the
    encoder by name, and of each run, with slots on the last axis but one. Steps read those of a voice and
    write into the others.
    """

    frames: int  # mel frames so far, of all rows
    capacity: int  # frames for which the memories that a step writes into have room
    speaker: Array  # (B, 80)
    encoder: State
    encoder_memories: State  # none in version 3
    solver: tuple[State, ...]
    solver_memories: tuple[Array, ...]
    voice_memories: tuple[Array, ...] = ()  # of ``SharedVoiceFlow``, in front of ``solver_memories``

    @property
    def voice_frames(self) -> int:
        """Frames in the memories of a voice, which begin ``frames``."""
        return self.voice_memories[0].shape[-2] if self.voice_memories else 0

    @property
    def memories(self) -> list[Array]:
        """All memories that have slots."""
        memories = [*self.encoder_memories.values(), *self.voice_memories, *self.solver_memories]
        return [memory for memory in memories if memory.shape[-2]]

    def release_behind(self, frames: int) -> None:
        """Return the memory after the first ``frames`` frames to the system. Raises OSError if it refuses."""
        for memory in self.memories:
            release_array_pages(memory, frames * memory.shape[-2] // self.capacity)

    def packed(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of a voice's state by name, to be kept on file; memories in float16.

        The rounding changes a mel by 4e-5.
        """
        memories = enumerate(self.memories)
        packed = {f"memory.{index}": memory.astype(np.float16, copy=False) for index, memory in memories}
        return self._named_contexts() | packed

    def packed_form(self) -> dict[str, NDArray[np.generic]]:
        """Arrays of the names, shapes and types of ``packed``; their contents are undefined."""
        memories = enumerate(self.memories)
        unwritten = {f"memory.{index}": np.empty(memory.shape, np.float16) for index, memory in memories}
        return self._named_contexts() | unwritten

    def _named_contexts(self) -> dict[str, NDArray[np.generic]]:
        parts = enumerate((self.encoder, *self.solver))
        return {
            f"{index}.{name}": array for index, part in parts for name, array in part.items() if array.size
        }

    def unpacked(self, stored: Mapping[str, NDArray[np.generic]], frames: int) -> "ArrayFlowState":
        """The state of ``packed`` for that many frames, written into the memories of this one."""
        for index, memory in enumerate(self.memories):
            np.copyto(memory, stored[f"memory.{index}"])
        encoder, *solver = (
            {name: stored.get(f"{index}.{name}", array) for name, array in part.items()}
            for index, part in enumerate((self.encoder, *self.solver))
        )
        return replace(self, frames=frames, encoder=encoder, solver=tuple(solver))


@dataclass(slots=True)
class ArrayFlow:
    """The exported graphs of a flow. ``load`` opens them."""

    config: FlowConfig
    _speaker: RunnableGraph
    _encoder: RunnableGraph
    _step: RunnableGraph
    policy: FlowPolicy = EXACT_POLICY
    _noise: dict[int, Float] = field(default_factory=dict)

    @classmethod
    def load(
        cls,
        bundle: CosyVoiceBundle,
        policy: FlowPolicy = EXACT_POLICY,
        digest: str = "",
        graph: Callable[[onnxruntime.InferenceSession], RunnableGraph] = OrtGraph,
        precision: Precision = Precision.FP32,
        sessions: OnnxSessions = CPU_SESSIONS,
    ) -> Self:
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known. Raises InvalidBundleError."""
        digest, threads = digest or bundle_digest(bundle), thread_count()
        paths = (
            flow_graph_path(bundle, "flow_speaker", Precision.FP32),
            flow_graph_path(bundle, "flow_encoder", precision),
            flow_graph_path(bundle, "flow_step", precision),
        )
        counts = (threads, threads, cls._step_threads(threads))
        speaker, encoder, step = (
            graph(open_graph(path, digest, count, sessions))
            for path, count in zip(paths, counts, strict=True)
        )
        return cls(bundle.network_config.flow, speaker, encoder, step, policy)

    @staticmethod
    def _step_threads(threads: int) -> int:
        """Threads of a run of ``flow_step``."""
        return threads

    @property
    def _runs(self) -> int:
        """Runs of ``flow_step`` in a chunk."""
        return self.config.solver_steps

    def project_speaker(self, embedding: Array) -> Array:
        """(B, 192) speaker embedding -> (B, 80) conditioning."""
        return self._speaker.run({"embedding": embedding})["speaker"]

    def init_state(self, speaker: Array, frames: int) -> ArrayFlowState:
        """The state before the first chunk. speaker: of ``project_speaker``. frames: initial capacity."""
        rows = len(speaker)
        return ArrayFlowState(
            0,
            frames,
            speaker,
            self._encoder.initial_state(rows),
            self._encoder_memories(rows, frames),
            tuple(self._initial_contexts(rows) for _ in range(self._runs)),
            self._solver_memories(rows, frames),
        )

    @property
    def shares_voices(self) -> bool:
        """Whether a sentence reads the memory of its voice where it is, and takes none for it."""
        return False

    def empty_voice(self, speaker: Array, frames: int) -> ArrayFlowState:
        """A state to unpack a voice of ``frames`` frames into."""
        return self.init_state(speaker, frames)

    def _initial_contexts(self, rows: int) -> State:
        """Of a run."""
        return self._step.initial_state(rows)

    def _encoder_memories(self, rows: int, frames: int) -> State:
        if self.config.encoder is None:
            return {}
        sizes = {"id_memory": frames // FRAMES_PER_SPEECH_ID, "frame_memory": frames}
        return {name: self._encoder.empty_memory(name, rows, slots) for name, slots in sizes.items()}

    def _solver_memories(self, rows: int, frames: int) -> tuple[Array, ...]:
        return tuple(self._step.empty_memory("memory", rows, frames) for _ in range(self._runs))

    def prefill(self, embedding: Float, ids: Integers, mel: Float) -> ArrayFlowState:
        """The state after the whole blocks of a recording. embedding: (192,). ids: (P,). mel: (80, 2 P)."""
        covered = max(0, (len(ids) - LOOKAHEAD_IDS) // BLOCK_IDS * BLOCK_IDS)
        speaker = self.project_speaker(embedding[None])
        state = self.init_state(speaker, max(covered, BLOCK_IDS) * FRAMES_PER_SPEECH_ID)
        if not covered:
            return state
        future = ids[covered : covered + LOOKAHEAD_IDS]
        return self.step(ids[:covered], future, mel[:, : covered * FRAMES_PER_SPEECH_ID], state)[1]

    def copy_for_utterance(self, voice: ArrayFlowState, frames: int) -> ArrayFlowState:
        """A copy of a voice's state with room for ``frames`` frames."""
        return self._with_capacity(voice, max(frames, voice.frames))

    def step(
        self, ids: Integers, future: Integers, prompt_mel: Float, state: ArrayFlowState
    ) -> tuple[Float, ArrayFlowState]:
        """The mel of a chunk, (80, 2 T), and the next state.

        ids: (T,). future: (3,) the ids after them, or (0,) at the end. prompt_mel: (80, 2 T).
        """
        begin, length = state.frames, FRAMES_PER_SPEECH_ID * len(ids)
        x = self._noise_rows(begin, length)[None]
        state = self.with_capacity_for(state, begin + length)
        mel, state = self.compute(ids[None], future[None], prompt_mel[None], x, state, BLOCK_FRAMES)
        return host_array(mel[0]), state

    def with_capacity_for(self, state: ArrayFlowState, frames: int) -> ArrayFlowState:
        """The state, in larger memories if it has no room for ``frames`` frames in all."""
        if frames <= state.capacity:
            return state
        return self._with_capacity(state, max(frames, state.capacity * 3 // 2))

    def _with_capacity(self, state: ArrayFlowState, frames: int) -> ArrayFlowState:
        rows, own_frames = len(state.speaker), state.frames - state.voice_frames
        solver = self._solver_memories(rows, frames - state.voice_frames)
        for larger, memory in zip(solver, state.solver_memories, strict=True):
            larger[..., :own_frames, :] = memory[..., :own_frames, :]
        encoder = self._encoder_memories(rows, frames)
        for name, memory in state.encoder_memories.items():
            used = state.frames * memory.shape[-2] // state.capacity
            encoder[name][..., :used, :] = memory[..., :used, :]
        return replace(state, capacity=frames, encoder_memories=encoder, solver_memories=solver)

    def compute(
        self,
        ids: Array,
        future: Array,
        prompt_mel: Array,
        x: Array,
        state: ArrayFlowState,
        block: int,
    ) -> tuple[Array, ArrayFlowState]:
        """The mel (B, 80, 2 T) of a chunk for a state with room for it, and the next state.

        ids: (B, T). future: (B, 3) or (B, 0). prompt_mel: (B, 80, 2 T). x: (B, 2 T, 80), the noise. block:
        frames that attend to each other.
        """
        place = {"length": state.frames, "block": block}
        mu, encoder = self._encode({"ids": ids, "future": future}, place, state)
        inputs = {"mu": mu, "speaker": state.speaker, "prompt_mel": prompt_mel.swapaxes(1, 2), **place}
        solver: list[State] = []
        for step in range(self.config.solver_steps):
            x, contexts = self._solve({**inputs, "x": x, "solver_step": step}, state)
            solver += contexts
        return x.swapaxes(1, 2), replace(
            state, frames=state.frames + x.shape[1], encoder=encoder, solver=tuple(solver)
        )

    def _solve(self, inputs: State, state: ArrayFlowState) -> tuple[Array, list[State]]:
        """Take a solver step, and write what it has to remember of the chunk: the next x, and contexts."""
        step = inputs["solver_step"]
        contexts, memory = state.solver[step], state.solver_memories[step]
        outputs = self._step.run({**inputs, **contexts, "memory": memory})
        _write(memory, outputs["new_keys_values"], state.frames)
        return outputs["next_x"], [present(outputs, contexts)]

    def _encode(self, inputs: State, place: State, state: ArrayFlowState) -> tuple[Array, State]:
        """The conditioning of the solver (B, 2 T, 80), and the encoder's next contexts."""
        given = {**inputs, **state.encoder, **state.encoder_memories}
        outputs = self._encoder.run(given if self.config.encoder is None else given | place)
        for name, memory in state.encoder_memories.items():
            begin = state.frames if name == "frame_memory" else state.frames // FRAMES_PER_SPEECH_ID
            _write(memory, outputs[f"new_{name.removesuffix('_memory')}_keys_values"], begin)
        return outputs["mu"], present(outputs, state.encoder)

    def _noise_rows(self, begin: int, frames: int) -> Float:
        """The solver's initial values from frame ``begin`` on, (frames, 80), as ``StreamingFlow.noise``."""
        blocks = range(begin // _NOISE_FRAMES, (begin + frames - 1) // _NOISE_FRAMES + 1)
        drawn = np.concatenate([self._noise_block(index) for index in blocks])
        return drawn[begin - blocks[0] * _NOISE_FRAMES :][:frames]

    def _noise_block(self, index: int) -> Float:
        if index not in self._noise:
            drawn = normal_numbers(RandomState(index), MEL_BANDS * _NOISE_FRAMES)
            self._noise[index] = np.ascontiguousarray(drawn.reshape(MEL_BANDS, _NOISE_FRAMES).T)
        return self._noise[index]


def present(outputs: State, past: State) -> State:
    """The next contexts, by the names of the past ones."""
    return {name: outputs[name.replace("past_", "present_")] for name in past}


def _write(memory: Array, keys_values: Array, begin: int) -> None:
    """Write the keys and values of a chunk from slot ``begin`` on."""
    memory[..., begin : begin + keys_values.shape[-2], :] = keys_values
