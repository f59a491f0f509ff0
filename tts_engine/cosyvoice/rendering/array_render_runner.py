"""Runs the exported flow and vocoder; the interface of ``RenderRunner``, without torch.

The library that runs the graphs keeps the states, on the host or on its card; mels and samples are numpy's.

A chunk is rendered for one sentence at a time, so a step of several sessions runs them one after the other.
"""

import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from ....models.cosyvoice.config import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    FRAMES_PER_S,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    MEL_BANDS,
)
from ....models.cosyvoice.flow.array_mel_stretcher import ArrayMelStretcher
from ....models.cosyvoice.flow.policy import state_bytes_per_s
from ....models.cosyvoice.onnx_runtime.flow import ArrayFlowState
from ....models.cosyvoice.onnx_runtime.networks import ArrayRenderNetworks
from ....models.cosyvoice.onnx_runtime.vocoder import ArrayVocoderStream
from ....models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ....models.devices.host_memory import free_host_bytes, release_free_heap
from ....models.devices.planned_captures import CaptureQueue
from ...backends.recently_used import RecentlyUsed
from ..conditioning import FlowPrompt
from ..policy import CosyVoicePolicy
from .render_stage import RenderInput, Samples
from .voice_memory import OwnSequence, PreparedVoice


@dataclass(slots=True)
class ArrayRenderState:
    """The state of flow, speed change and vocoder for one sentence."""

    flow: OwnSequence
    prompt_tail_mel: Samples  # as of ``FlowPrompt``
    speed: ArrayMelStretcher
    vocoder: ArrayVocoderStream


@dataclass(frozen=True, slots=True)
class ArrayVocoderInput:
    """The vocoder's input for a chunk. mel: (80, T). noise: (1, N, waves)."""

    vocoder: ArrayVocoderStream
    mel: Samples
    noise: Samples
    final: bool


class ArrayRenderRunner:
    """The exported flow and vocoder of a bundle, and its prepared voices. Methods as of ``RenderRunner``."""

    def __init__(
        self,
        networks: ArrayRenderNetworks,
        policy: CosyVoicePolicy,
        voice_files: PreparedVoiceFolder | None,
    ) -> None:
        self.captures = CaptureQueue()
        self._flow, self._vocoder = networks.flow, networks.vocoder
        self._free_card_bytes = networks.free_card_bytes
        self._voice_files = voice_files if networks.free_card_bytes is None else None
        self._reserve_frames = policy.flow.reserve_frames
        bytes_per_s = state_bytes_per_s(networks.flow.config, networks.flow.policy)
        self._bytes_per_id = bytes_per_s * FRAMES_PER_SPEECH_ID / FRAMES_PER_S
        free = (networks.free_card_bytes or free_host_bytes)()
        self.memory_ids = int(policy.memory_share * free / self._bytes_per_id)
        self._prepared: RecentlyUsed[str, PreparedVoice] = RecentlyUsed(policy.max_prepared_voices)

    @property
    def prepared_voice_ids(self) -> int:
        """Speech ids of memory that prepared voices take."""
        return sum(voice.resident_ids for voice in self._prepared.values)

    def copied_voice_ids(self, flow_prompt: FlowPrompt) -> int:
        """Speech ids of memory that each sentence takes for its voice; 0 if it reads the voice's own."""
        return 0 if self._flow.shares_voices else len(flow_prompt.ids)

    def begin_sentence(
        self, flow_prompt: FlowPrompt, speed: float, noise: np.random.Generator
    ) -> ArrayRenderState:
        """The state of a new sentence. Raises MemoryError."""
        voice = self._prepared_voice(flow_prompt)
        flow = voice.lend_memory() if voice.can_lend_memory else OwnSequence(self._with_reserve(voice.state))
        # Each thread keeps what its steps have freed; a sentence leaves up to 0.1 GB.
        weakref.finalize(flow, release_free_heap)
        stream = self._vocoder.open_stream(noise)
        return ArrayRenderState(flow, flow_prompt.prompt_tail_mel, ArrayMelStretcher(speed), stream)

    def flow_batch_key(self, render_input: RenderInput) -> Hashable:
        """Another one for each sentence: the graphs take equal rows only."""
        return id(render_input.render_state)

    def run_flow(self, render_inputs: Mapping[int, RenderInput]) -> dict[int, Samples]:
        """The mel of each chunk, (80, T). Raises MemoryError."""
        return {row: self._run_chunk(render_input) for row, render_input in render_inputs.items()}

    def vocoder_input(self, render_input: RenderInput, mel: Samples) -> ArrayVocoderInput:
        """Stretch a chunk's mel to the session's speed and draw its noise; advances both, so call it once."""
        state, final = render_input.render_state, render_input.chunk.final
        prompt_frames = max(
            0, state.prompt_tail_mel.shape[1] - FRAMES_PER_SPEECH_ID * render_input.chunk.start
        )
        mel = state.speed.push(mel[:, prompt_frames:])
        if final:
            mel = np.concatenate([mel, state.speed.finish()], 1)
        noise = state.vocoder.draw_noise(mel.shape[1], last=final)
        return ArrayVocoderInput(state.vocoder, mel, noise, final)

    def vocoder_batch_key(self, vocoder_input: ArrayVocoderInput) -> Hashable:
        """Another one for each sentence."""
        return id(vocoder_input)

    def run_vocoder(self, vocoder_inputs: Mapping[int, ArrayVocoderInput]) -> dict[int, Samples]:
        """The samples of each chunk, except those that depend on the next chunk."""
        return {
            row: given.vocoder.render(given.mel, given.noise, last=given.final)
            for row, given in vocoder_inputs.items()
        }

    def free(self, render_state: ArrayRenderState) -> None:
        """Free the flow's state of a sentence that is not rendered further."""
        render_state.flow.free()
        release_free_heap()

    def _run_chunk(self, render_input: RenderInput) -> Samples:
        self._require_free_memory(render_input.length)
        state, chunk = render_input.render_state, render_input.chunk
        ids = np.array(render_input.ids[chunk.start : chunk.stop], np.int64)
        future = np.array(render_input.ids[chunk.stop : chunk.lookahead_stop], np.int64)
        prompt_mel = np.zeros((MEL_BANDS, FRAMES_PER_SPEECH_ID * len(ids)), np.float32)
        tail = state.prompt_tail_mel[:, FRAMES_PER_SPEECH_ID * chunk.start :]
        prompt_mel[:, : tail.shape[1]] = tail
        mel, following = self._flow.step(ids, future, prompt_mel, state.flow.state)
        state.flow.replace_state(following)
        return mel

    def _prepared_voice(self, flow_prompt: FlowPrompt) -> PreparedVoice:
        return self._prepared.get(flow_prompt.key, lambda: self._new_prepared_voice(flow_prompt))

    def _new_prepared_voice(self, flow_prompt: FlowPrompt) -> PreparedVoice:
        state = self._with_reserve(self._prefilled_voice(flow_prompt))
        # To write the pages of a block anew takes 0.1 s of a first chunk's 2 s; to keep them, 0.2 GB.
        can_lend = not self._flow.shares_voices and self._free_card_bytes is None
        return PreparedVoice(state, can_lend_memory=can_lend, kept_frames=0)

    def _prefilled_voice(self, flow_prompt: FlowPrompt) -> ArrayFlowState:
        blocks = max(0, len(flow_prompt.ids) - LOOKAHEAD_IDS) // BLOCK_IDS
        files, frames = self._voice_files, blocks * BLOCK_FRAMES
        if files is None or not frames or not files.keeps(flow_prompt.id):
            return self._prefill(flow_prompt)
        part = f"{type(self._flow).__name__}{len(flow_prompt.ids)}"  # ids are kept by speed
        speaker = self._flow.project_speaker(flow_prompt.embedding[None])
        empty = self._flow.empty_voice(speaker, frames)
        if stored := files.load(flow_prompt.id, part, empty.packed_form()):
            return empty.unpacked(stored, frames)
        state = self._prefill(flow_prompt)
        packed = state.packed()
        files.save(flow_prompt.id, part, packed)
        # Rounded now as it will be when it is read, so that a voice sounds the same after a restart.
        return state.unpacked(packed, frames)

    def _prefill(self, flow_prompt: FlowPrompt) -> ArrayFlowState:
        ids = flow_prompt.ids.astype(np.int64)
        return self._flow.prefill(flow_prompt.embedding, ids, flow_prompt.mel)

    def _with_reserve(self, voice: ArrayFlowState) -> ArrayFlowState:
        if not self._flow.shares_voices:
            self._require_free_memory(voice.frames // FRAMES_PER_SPEECH_ID)
        return self._flow.copy_for_utterance(voice, voice.frames + self._reserve_frames)

    def _require_free_memory(self, ids: int) -> None:
        if self._free_card_bytes is not None:
            return
        # Linux overcommits: without this check the OOM killer would end the process and all its sessions.
        required, free = int(ids * self._bytes_per_id), free_host_bytes()
        if required > free:
            raise MemoryError(f"out of memory: {required:,} bytes needed, {free:,} free")
