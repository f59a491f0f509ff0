"""The exported flow on tensors; the same interface and states as ``Flow``.

``ArrayFlow`` runs the graphs; tensors and its arrays share their memory.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checkpoint.bundle import CosyVoiceBundle
from ..config import BLOCK_FRAMES, FRAMES_PER_SPEECH_ID
from ..devices import CPU
from ..flow.attention_memory import AttentionMemory
from ..flow.dit import DitState
from ..flow.encoder import EncoderState
from ..flow.policy import EXACT_POLICY, FlowPolicy
from ..flow.state import FlowChunk, FlowState, check_chunk
from ..flow.streaming_flow import StreamingFlow
from ..flow.unet import UnetState
from ..onnx_runtime.flow import ArrayFlow, ArrayFlowState
from ..onnx_runtime.graph_runs import Float, State
from ..onnx_runtime.networks import can_run_policy
from ..state import tensors


class OnnxFlow(StreamingFlow):
    """The exported graphs of a flow. ``load`` opens them."""

    device = CPU
    can_step_together = False

    def __init__(self, arrays: ArrayFlow) -> None:
        self._arrays, self.config, self.policy, self.noise_blocks = arrays, arrays.config, arrays.policy, {}

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, policy: FlowPolicy | None = None, digest: str = "") -> "OnnxFlow":
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known.

        Raises InvalidBundleError, and ValueError for a policy that the graphs cannot run.
        """
        policy = policy or EXACT_POLICY
        if not can_run_policy(policy):
            raise ValueError(f"{policy}; the exported graphs keep all keys and values in float32")
        return cls(ArrayFlow.load(bundle, policy, digest))

    def project_speaker(self, embedding: Tensor) -> Tensor:
        """(B, 192) speaker embedding -> (B, 80) conditioning."""
        return torch.from_numpy(self._arrays.project_speaker(embedding.numpy()))

    def init_state(self, speaker: Tensor, frames: int | None = None) -> FlowState:
        """As ``StreamingFlow.init_state``; pages that are not written take no memory."""
        capacity = frames or self.policy.reserve_frames
        return _to_tensors(self._arrays.init_state(speaker.numpy().copy(), capacity))

    def step(self, chunk: FlowChunk, state: FlowState) -> tuple[Tensor, FlowState]:
        """As ``StreamingFlow.step``. Raises ValueError also if rows are at different frames or end early."""
        begins = state.frames.tolist()
        check_chunk(chunk, begins)
        if len(set(begins)) > 1 or chunk.lengths:
            raise ValueError(f"rows are at frames {begins}; a step of the exported graphs is for equal rows")
        state = self.with_capacity_for(state, begins[0] + chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID)
        return self.compute(chunk, state, BLOCK_FRAMES)

    @torch.inference_mode()
    def compute(self, chunk: FlowChunk, state: FlowState, block: int) -> tuple[Tensor, FlowState]:
        """``step`` for a state with room for the chunk. block: frames that attend to each other."""
        x = self.noise_rows(state.frames.tolist(), chunk.ids.shape[1] * FRAMES_PER_SPEECH_ID)
        mel, following = self._arrays.compute(
            chunk.ids.numpy(),
            chunk.future.numpy(),
            chunk.prompt_mel.numpy(),
            x.numpy(),
            _to_arrays(state),
            block,
        )
        return torch.from_numpy(mel), _to_tensors(following)


def _to_arrays(state: FlowState) -> ArrayFlowState:
    solver = [_split_solver_state(part) for part in state.solver]
    encoder, memories = _split_encoder_state(state.encoder)
    return ArrayFlowState(
        int(state.frames[0]),
        state.speaker.numpy(),
        encoder,
        memories,
        tuple(contexts for contexts, _ in solver),
        tuple(memory for _, memory in solver),
    )


def _split_encoder_state(state: EncoderState | Tensor) -> tuple[State, dict[str, Float]]:
    """Contexts and memories by the names of the graph's inputs."""
    if isinstance(state, Tensor):
        return {"past_lookahead": state.numpy()}, {}
    contexts = {"lookahead": state.lookahead_context, "upsample": state.upsample_context}
    return {f"past_{name}": context.numpy() for name, context in contexts.items()}, {
        "id_memory": _buffer(state.id_memory),
        "frame_memory": _buffer(state.frame_memory),
    }


def _split_solver_state(state: UnetState | DitState) -> tuple[State, Float]:
    *contexts, memory = tensors(state)
    return {f"past_context.{index}": context.numpy() for index, context in enumerate(contexts)}, _buffer(
        memory
    )


def _buffer(memory: AttentionMemory) -> Float:
    assert isinstance(memory, Tensor)
    buffer: Float = memory.numpy()
    return buffer


def _to_tensors(arrays: ArrayFlowState) -> FlowState:
    encoder = {name: _tensor(context) for name, context in arrays.encoder.items()}
    memories = {name: _tensor(memory) for name, memory in arrays.encoder_memories.items()}
    is_unet = bool(memories)  # version 2, whose encoder has memories
    solver = zip(arrays.solver, arrays.solver_memories, strict=True)
    return FlowState(
        torch.full((len(arrays.speaker),), arrays.frames),
        _tensor(arrays.speaker),
        EncoderState(
            encoder["past_lookahead"],
            encoder["past_upsample"],
            memories["id_memory"],
            memories["frame_memory"],
        )
        if is_unet
        else encoder["past_lookahead"],
        tuple(_solver_state([*contexts.values()], memory, is_unet=is_unet) for contexts, memory in solver),
    )


def _solver_state(
    contexts: list[NDArray[np.generic]], memory: Float, *, is_unet: bool
) -> UnetState | DitState:
    parts = [_tensor(context) for context in contexts]
    if is_unet:
        return UnetState(tuple(parts), _tensor(memory))
    first, second = parts
    return DitState(first, second, _tensor(memory))


def _tensor(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array)
