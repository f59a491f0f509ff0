"""The conditioning of a session: the flow's prompt, the language model's prompt, and sampling."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.cosyvoice.config import BLOCK_IDS, FRAMES_PER_SPEECH_ID, MEL_BANDS
from ...models.cosyvoice.lm.generation import LmPrompt
from ...models.cosyvoice.lm.sampling import SamplingParameters


@dataclass(frozen=True, slots=True, eq=False)
class FlowPrompt:
    """A voice as the flow takes it.

    id: equal for equal content. embedding: (192,) float32. ids: (P,) int32, the recording's speech ids, P may
    be 0. mel: (80, 2 P) float32, natural log, 50 frames/s. lead_in_ids: without a recording, how often a
    sentence's first id is repeated before it.
    """

    id: str
    embedding: NDArray[np.float32]
    ids: NDArray[np.int32]
    mel: NDArray[np.float32]
    lead_in_ids: int = 0

    def truncated_to_last(self, max_ids: int, tail: int) -> "FlowPrompt":
        """The prompt with the end of its recording: whole blocks, and ``tail`` ids, at least the lookahead.

        A recording that is shorter than ``tail`` is dropped.
        """
        count = (min(max_ids, len(self.ids)) - tail) // BLOCK_IDS * BLOCK_IDS + tail
        if count < tail:
            return FlowPrompt(self.id, self.embedding, self.ids[:0], self.mel[:, :0], tail)
        first = len(self.ids) - count
        return FlowPrompt(
            self.id, self.embedding, self.ids[first:], self.mel[:, FRAMES_PER_SPEECH_ID * first :]
        )

    @property
    def key(self) -> str:
        """Equal for equal content of which equally much is kept."""
        return f"{self.id}:{len(self.ids)}:{self.prompt_tail_length}"

    @property
    def prompt_tail_ids(self) -> tuple[int, ...]:
        """The ids after the last whole block; the first chunk renders them again and drops their sound."""
        return tuple(self.ids[len(self.ids) // BLOCK_IDS * BLOCK_IDS :].tolist())

    @property
    def prompt_tail_length(self) -> int:
        """The number of ids whose sound the first chunk drops."""
        return len(self.prompt_tail_ids) or self.lead_in_ids

    @property
    def prompt_tail_mel(self) -> NDArray[np.float32]:
        """Their mel, (80, 2 n); zeros, which condition nothing, without a recording."""
        if not len(self.ids):
            return np.zeros((MEL_BANDS, FRAMES_PER_SPEECH_ID * self.lead_in_ids), np.float32)
        return self.mel[:, FRAMES_PER_SPEECH_ID * (len(self.ids) - self.prompt_tail_length) :]


@dataclass(frozen=True, slots=True)
class VoiceConditioning:
    """How a session sounds; fixed when it opens."""

    flow_prompt: FlowPrompt
    prompt: LmPrompt
    sampling: SamplingParameters
    speed: float  # 0.5 to 2.0; 1.0 is the voice's own pace
    source_speech_ids: tuple[int, ...] | None = None  # speech to convert to this voice; None speaks text
    first_hop: int | None = None  # speech ids of the first chunk; None: the backend's policy
    expected_pace: float = 1.0  # of the first sentence, as of ``SpeakingPace``
