"""The exported flow on tensors, to be compared with torch: the interface and the states of ``Flow``.

``ArrayFlow`` runs the graphs, in ONNX Runtime on a CPU or in TensorRT on a card.
"""

import torch
from torch import Tensor

from shared.runtimes.tensor_graph import TensorOrtGraph
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.config import BLOCK_FRAMES, FRAMES_PER_SPEECH_ID
from vivavoce.models.cosyvoice.flow.dit import DitState
from vivavoce.models.cosyvoice.flow.encoder import EncoderState
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY, FlowPolicy
from vivavoce.models.cosyvoice.flow.state import FlowChunk, FlowState, check_chunk
from vivavoce.models.cosyvoice.flow.streaming_flow import StreamingFlow
from vivavoce.models.cosyvoice.flow.unet import UnetState
from vivavoce.models.cosyvoice.onnx_runtime.flow import ArrayFlow, ArrayFlowState
from vivavoce.models.cosyvoice.onnx_runtime.graph_runs import State
from vivavoce.models.cosyvoice.onnx_runtime.networks import can_run_policy
from vivavoce.models.devices.torch_devices import CPU
from vivavoce.models.networks.state import tensors


class OnnxFlow(StreamingFlow):
    """The exported graphs of a flow. ``load`` opens them."""

    can_step_together = False

    def __init__(self, graphs: ArrayFlow, device: torch.device = CPU) -> None:
        self._graphs, self._device, self.noise_blocks = graphs, device, {}
        self.config, self.policy = graphs.config, graphs.policy

    @property
    def device(self) -> torch.device:
        """The device of the states."""
        return self._device

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, policy: FlowPolicy | None = None, digest: str = "") -> "OnnxFlow":
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known.

        Raises InvalidBundleError, and ValueError for a policy that the graphs cannot run.
        """
        policy = policy or EXACT_POLICY
        if not can_run_policy(policy):
            raise ValueError(f"{policy}; the exported graphs keep all keys and values in float32")
        return cls(ArrayFlow.load(bundle, policy, digest, TensorOrtGraph))

    def project_speaker(self, embedding: Tensor) -> Tensor:
        """(B, 192) speaker embedding -> (B, 80) conditioning."""
        speaker: Tensor = self._graphs.project_speaker(embedding)
        return speaker

    def init_state(self, speaker: Tensor, frames: int | None = None) -> FlowState:
        """As ``StreamingFlow.init_state``; pages that are not written take no memory."""
        capacity = frames or self.policy.reserve_frames
        return _to_flow_state(self._graphs.init_state(speaker.clone(), capacity))

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
        mel, following = self._graphs.compute(
            chunk.ids, chunk.future, chunk.prompt_mel, x, _to_graph_state(state), block
        )
        return mel, _to_flow_state(following)


def _to_graph_state(state: FlowState) -> ArrayFlowState:
    """The same tensors by the names of the graphs' inputs."""
    encoder, memories = _split_encoder_state(state.encoder)
    contexts_and_memories = [[*tensors(part)] for part in state.solver]
    return ArrayFlowState(
        int(state.frames[0]),
        state.capacity,
        state.speaker,
        encoder,
        memories,
        tuple(
            {f"past_context.{index}": context for index, context in enumerate(contexts)}
            for *contexts, _ in contexts_and_memories
        ),
        tuple(memory for *_, memory in contexts_and_memories),
    )


def _split_encoder_state(state: EncoderState | Tensor) -> tuple[State, State]:
    """Contexts and memories."""
    if isinstance(state, Tensor):
        return {"past_lookahead": state}, {}
    contexts = {"past_lookahead": state.lookahead_context, "past_upsample": state.upsample_context}
    return contexts, {"id_memory": state.id_memory, "frame_memory": state.frame_memory}


def _to_flow_state(state: ArrayFlowState) -> FlowState:
    encoder: EncoderState | Tensor = state.encoder["past_lookahead"]
    is_unet = bool(state.encoder_memories)  # version 2, whose encoder has memories
    if is_unet:
        encoder = EncoderState(
            state.encoder["past_lookahead"],
            state.encoder["past_upsample"],
            state.encoder_memories["id_memory"],
            state.encoder_memories["frame_memory"],
        )
    solver = (
        _solver_state([*contexts.values()], memory, is_unet=is_unet)
        for contexts, memory in zip(state.solver, state.solver_memories, strict=True)
    )
    frames = torch.full((len(state.speaker),), state.frames)
    return FlowState(frames, state.speaker, encoder, tuple(solver))


def _solver_state(contexts: list[Tensor], memory: Tensor, *, is_unet: bool) -> UnetState | DitState:
    if is_unet:
        return UnetState(tuple(contexts), memory)
    first, second = contexts
    return DitState(first, second, memory)
