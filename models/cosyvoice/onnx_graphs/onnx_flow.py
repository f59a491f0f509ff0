"""The flow in ONNX Runtime, on a CPU; the same interface and states as ``Flow``.

Attention memories are fed to the graphs in place. The graphs return the keys and values of a chunk, which are
written behind those of earlier chunks. Sessions are stepped one by one; a batch would save a few per cent.
"""

from dataclasses import replace

import onnxruntime
import torch
from torch import Tensor

from ..checkpoint.bundle import CosyVoiceBundle
from ..config import BLOCK_FRAMES, FRAMES_PER_SPEECH_ID, FlowConfig
from ..devices import CPU
from ..flow.attention_memory import AttentionMemory
from ..flow.dit import DitState
from ..flow.encoder import EncoderState
from ..flow.policy import EXACT_POLICY, CacheForm, FlowPolicy
from ..flow.state import FlowChunk, FlowState, check_chunk
from ..flow.streaming_flow import StreamingFlow
from ..flow.unet import UnetState
from ..state import tensors
from .graph_files import bundle_digest, graph_path, open_graph
from .onnx_vocoder import initial_state, run_graph


class OnnxFlow(StreamingFlow):
    """The exported graphs of a flow. ``load`` opens them."""

    device = CPU
    can_step_together = False

    def __init__(
        self,
        config: FlowConfig,
        speaker: onnxruntime.InferenceSession,
        encoder: onnxruntime.InferenceSession,
        step: onnxruntime.InferenceSession,
        policy: FlowPolicy = EXACT_POLICY,
    ) -> None:
        self.config, self.policy, self.noise_blocks = config, policy, {}
        self._speaker, self._encoder, self._step = speaker, encoder, step

    @classmethod
    def load(cls, bundle: CosyVoiceBundle, policy: FlowPolicy | None = None, digest: str = "") -> "OnnxFlow":
        """Open the graphs of a bundle. ``digest`` is the bundle's, if known.

        Raises InvalidBundleError, and ValueError for a policy that the graphs cannot run.
        """
        policy = policy or EXACT_POLICY
        if not can_run_policy(policy):
            raise ValueError(f"{policy}; the exported graphs keep all keys and values in float32")
        digest, threads = digest or bundle_digest(bundle), torch.get_num_threads()
        names = ("flow_speaker", "flow_encoder", "flow_step")
        speaker, encoder, step = (open_graph(graph_path(bundle, name), digest, threads) for name in names)
        return cls(bundle.network_config.flow, speaker, encoder, step, policy)

    def project_speaker(self, embedding: Tensor) -> Tensor:
        """(B, 192) speaker embedding -> (B, 80) conditioning."""
        return run_graph(self._speaker, {"embedding": embedding})["speaker"]

    def init_state(self, speaker: Tensor, frames: int | None = None) -> FlowState:
        """As ``StreamingFlow.init_state``; pages that are not written take no memory."""
        rows, capacity = len(speaker), frames or self.policy.reserve_frames
        solver = tuple(self._solver_state(rows, capacity) for _ in range(self.config.solver_steps))
        encoder = self._encoder_state(rows, capacity)
        return FlowState(torch.zeros(rows, dtype=torch.int64), speaker.clone(), encoder, solver)

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
        place = {"length": state.frames[0], "block": torch.tensor(block)}
        mu, encoder = self._encode(chunk, state.encoder, place)
        x = self.noise_rows(state.frames.tolist(), mu.shape[1])
        inputs = {"mu": mu, "speaker": state.speaker, "prompt_mel": chunk.prompt_mel.transpose(1, 2), **place}
        following = []
        for index, part in enumerate(state.solver):
            x, after = self._euler_step(x, inputs | {"solver_step": torch.tensor(index)}, part)
            following.append(after)
        return x.transpose(1, 2), replace(
            state, frames=state.frames + mu.shape[1], encoder=encoder, solver=tuple(following)
        )

    def _encode(
        self, chunk: FlowChunk, state: EncoderState | Tensor, place: dict[str, Tensor]
    ) -> tuple[Tensor, EncoderState | Tensor]:
        inputs = {"ids": chunk.ids, "future": chunk.future}
        if isinstance(state, Tensor):
            outputs = run_graph(self._encoder, {**inputs, "past_lookahead": state})
            return outputs["mu"], outputs["present_lookahead"]
        contexts = {"past_lookahead": state.lookahead_context, "past_upsample": state.upsample_context}
        memories = {"id": _buffer(state.id_memory), "frame": _buffer(state.frame_memory)}
        fed = {f"{unit}_memory": memory for unit, memory in memories.items()}
        outputs = run_graph(self._encoder, {**inputs, **place, **contexts, **fed})
        length = int(place["length"])
        for unit, begin in (("id", length // FRAMES_PER_SPEECH_ID), ("frame", length)):
            _write(memories[unit], outputs[f"new_{unit}_keys_values"], begin)
        return outputs["mu"], replace(
            state,
            lookahead_context=outputs["present_lookahead"],
            upsample_context=outputs["present_upsample"],
        )

    def _euler_step(
        self, x: Tensor, inputs: dict[str, Tensor], state: UnetState | DitState
    ) -> tuple[Tensor, UnetState | DitState]:
        *contexts, memory = tensors(state)
        past = {f"past_context.{index}": context for index, context in enumerate(contexts)}
        outputs = run_graph(self._step, {**inputs, **past, "x": x, "memory": memory})
        _write(memory, outputs["new_keys_values"], int(inputs["length"]))
        present = [outputs[f"present_context.{index}"] for index in range(len(contexts))]
        return outputs["next_x"], _solver_state(state, present, memory)

    def _solver_state(self, rows: int, frames: int) -> UnetState | DitState:
        contexts = [*initial_state(self._step, rows).values()]
        memory = _empty_memory(self._step, "memory", rows, frames)
        empty: UnetState | DitState = UnetState((), memory)
        if self.config.encoder is None:
            empty = DitState(memory, memory, memory)
        return _solver_state(empty, contexts, memory)

    def _encoder_state(self, rows: int, frames: int) -> EncoderState | Tensor:
        contexts = initial_state(self._encoder, rows)
        if self.config.encoder is None:
            return contexts["past_lookahead"]
        return EncoderState(
            contexts["past_lookahead"],
            contexts["past_upsample"],
            _empty_memory(self._encoder, "id_memory", rows, frames // FRAMES_PER_SPEECH_ID),
            _empty_memory(self._encoder, "frame_memory", rows, frames),
        )


def can_run_policy(policy: FlowPolicy) -> bool:
    """Whether the graphs can keep their memory as the policy says."""
    is_exact = policy.cache_form is CacheForm.KEYS_VALUES and policy.dtype == "float32"
    return is_exact and policy.window_frames is None


def _solver_state(like: UnetState | DitState, contexts: list[Tensor], memory: Tensor) -> UnetState | DitState:
    if isinstance(like, UnetState):
        return UnetState(tuple(contexts), memory)
    first, second = contexts
    return DitState(first, second, memory)


def _empty_memory(session: onnxruntime.InferenceSession, name: str, rows: int, slots: int) -> Tensor:
    shape = next(part.shape for part in session.get_inputs() if part.name == name)
    *fixed, _, width = shape[1:]
    return torch.empty(rows, *fixed, slots, width)


def _buffer(memory: AttentionMemory) -> Tensor:
    assert isinstance(memory, Tensor)
    return memory


def _write(memory: Tensor, new: Tensor, begin: int) -> None:
    """Write the keys and values of a chunk from slot ``begin`` on."""
    memory[..., begin : begin + new.shape[-2], :] = new
