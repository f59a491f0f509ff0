"""The conditioning of a session: the flow's prompt, the language model's prompt, and sampling."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.cosyvoice.config import BLOCK_IDS, FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS
from ...models.cosyvoice.lm.generation import LmPrompt
from ...models.cosyvoice.lm.sampling import SamplingParameters


@dataclass(frozen=True, slots=True, eq=False)
class FlowPrompt:
    """A voice as the flow takes it.

    id: equal for equal content. embedding: (192,) float32. ids: (P,) int32, the recording's speech ids, P may
    be 0. mel: (80, 2 P) float32, natural log, 50 frames/s.
    """

    id: str
    embedding: NDArray[np.float32]
    ids: NDArray[np.int32]
    mel: NDArray[np.float32]

    def truncated_to_last(self, max_ids: int) -> "FlowPrompt":
        """The prompt with the end of its recording: whole blocks, and the lookahead of the last one."""
        count = (min(max_ids, len(self.ids)) - LOOKAHEAD_IDS) // BLOCK_IDS * BLOCK_IDS + LOOKAHEAD_IDS
        first = len(self.ids) - count if count > LOOKAHEAD_IDS else len(self.ids)
        return FlowPrompt(
            self.id, self.embedding, self.ids[first:], self.mel[:, FRAMES_PER_SPEECH_ID * first :]
        )

    @property
    def prompt_tail_ids(self) -> tuple[int, ...]:
        """The ids after the last whole block; the first chunk renders them again and drops their sound."""
        return tuple(self.ids[len(self.ids) // BLOCK_IDS * BLOCK_IDS :].tolist())


@dataclass(frozen=True, slots=True)
class VoiceConditioning:
    """How a session sounds; fixed when it opens."""

    flow_prompt: FlowPrompt
    prompt: LmPrompt
    sampling: SamplingParameters
    speed: float  # 0.5 to 2.0; 1.0 is the voice's own pace
    source_speech_ids: tuple[int, ...] | None = None  # speech to convert to this voice; None speaks text
    first_hop: int | None = None  # speech ids of the first chunk; None: the backend's policy
