"""The interface of the flow for any library that computes it, and another speed of the mel on any device.

``prefill`` computes the state of a voice, ``copy_for_utterance`` copies it for a session, and ``step``
renders the chunks of the utterance from its noise.

Source: FunAudioLLM/CosyVoice@ace7c47 flow/flow_matching.py (rand_noise).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...devices.torch_devices import to_device
from ..config import BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS, MEL_BANDS, FlowConfig
from .array_mel_stretcher import ArrayMelStretcher
from .attention_memory import slot_capacity
from .policy import FlowPolicy
from .state import FlowChunk, FlowState, with_capacity

NOISE_FRAMES = 15_000  # 300 s, the length of upstream's table


class StreamingFlow(ABC):
    """Speech ids to mel in chunks.

    Attributes:
        noise_blocks: the solver's initial values by block of ``NOISE_FRAMES``, filled as they are used.
    """

    config: FlowConfig
    policy: FlowPolicy
    noise_blocks: dict[int, Tensor]

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of the states."""

    @property
    @abstractmethod
    def can_step_together(self) -> bool:
        """Whether states of different sessions can share a step where they are."""

    @abstractmethod
    def project_speaker(self, embedding: Tensor) -> Tensor:
        """(B, 192) speaker embedding -> (B, 80) conditioning."""

    @abstractmethod
    def init_state(self, speaker: Tensor, frames: int | None = None) -> FlowState:
        """The state before the first chunk.

        speaker: (B, 80) from ``project_speaker``. frames: initial capacity, the policy's by default.
        """

    @abstractmethod
    def step(self, chunk: FlowChunk, state: FlowState) -> tuple[Tensor, FlowState]:
        """The mel of a chunk, (B, 80, 2 T) float32, and the next state.

        The state given must not be used again. Raises ValueError if a chunk other than the last is not whole
        blocks, or follows a last one.
        """

    @torch.inference_mode()
    def prefill(self, ids: Tensor, prompt_mel: Tensor, speaker: Tensor) -> tuple[FlowState, int]:
        """The state after a voice's prompt, and the number of prompt ids it covers; step through the rest.

        ids: (1, P). prompt_mel: (1, 80, 2 P). Covers the whole blocks whose lookahead lies within the prompt:
        a prompt of a multiple of 25, plus 3, ids leaves the least to step through. Compute it once for a
        voice, then ``copy_for_utterance`` for each session.
        """
        covered = max(0, (ids.shape[1] - LOOKAHEAD_IDS) // BLOCK_IDS * BLOCK_IDS)
        state = self.init_state(speaker, frames=max(covered, BLOCK_IDS) * FRAMES_PER_SPEECH_ID)
        if covered:
            future = ids[:, covered : covered + LOOKAHEAD_IDS]
            _, state = self.step(
                FlowChunk(ids[:, :covered], future, prompt_mel[..., : covered * FRAMES_PER_SPEECH_ID]), state
            )
        return state, covered

    def copy_for_utterance(self, voice: FlowState, frames: int | None = None) -> FlowState:
        """A copy of a voice's state for a session; capacity: ``frames``, the policy's by default."""
        used = int(voice.frames.max())
        capacity = self.policy.window_frames or max(frames or self.policy.reserve_frames, used)
        return with_capacity(voice, used, capacity)

    def noise_rows(self, begins: Sequence[int], frames: int) -> Tensor:
        """``noise`` for rows at frames ``begins``: (B, frames, 80)."""
        return torch.stack([self.noise(begin, frames) for begin in begins])

    def noise(self, begin: int, frames: int) -> Tensor:
        """The solver's initial values from frame ``begin`` on, (frames, 80), the same for every utterance.

        The first 15,000 frames (300 s) are upstream's. The n-th 15,000 after them are drawn the same way with
        seed n.
        """
        first, last = begin // NOISE_FRAMES, (begin + frames - 1) // NOISE_FRAMES
        drawn = torch.cat([self._noise_block(index) for index in range(first, last + 1)])
        return drawn[begin - first * NOISE_FRAMES :][:frames]

    def _noise_block(self, index: int) -> Tensor:
        if index not in self.noise_blocks:
            drawn = torch.randn(MEL_BANDS, NOISE_FRAMES, generator=torch.Generator().manual_seed(index))
            self.noise_blocks[index] = to_device(drawn.T.contiguous(), self.device)
        return self.noise_blocks[index]

    def with_capacity_for(self, state: FlowState, frames: int) -> FlowState:
        """The state, in larger buffers if it has no room for ``frames`` frames in all."""
        capacity = slot_capacity(state.solver[0].cache)
        if self.policy.window_frames is not None or frames <= capacity:
            return state
        return with_capacity(state, int(state.frames.max()), max(frames, capacity * 3 // 2))


class MelStretcher(ArrayMelStretcher):
    """``ArrayMelStretcher`` for mels that are tensors."""

    def _join(self, frames: Any, more: Any) -> Tensor:
        return torch.cat([frames, more], -1)

    def _interpolate(self, before: Any, after: Any, weight: Any) -> Tensor:
        frames: Tensor = self._frames
        start, end, share = (
            to_device(torch.from_numpy(part), frames.device) for part in (before, after, weight)
        )
        return torch.lerp(frames[..., start], frames[..., end], share)
