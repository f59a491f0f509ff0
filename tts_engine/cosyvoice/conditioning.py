"""TODO."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.cosyvoice.flow.encoder import FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS
from ...models.cosyvoice.flow.flow import BLOCK_IDS
from ...models.cosyvoice.lm.generation import LmPrompt
from ...models.cosyvoice.lm.sampling import SamplingParameters


@dataclass(frozen=True, slots=True, eq=False)
class FlowPrompt:
    """What the flow is conditioned on.

    id: names the value. embedding: (192,) float32. ids: (P,) of a recording, with mel: (80, 2 P); P may be 0.
    """

    id: str
    embedding: NDArray[np.float32]
    ids: NDArray[np.int32]
    mel: NDArray[np.float32]

    def truncated_to_last(self, max_ids: int) -> "FlowPrompt":
        """With the end of the recording: at most so many ids, whole blocks and the lookahead of the last."""
        count = (min(max_ids, len(self.ids)) - LOOKAHEAD_IDS) // BLOCK_IDS * BLOCK_IDS + LOOKAHEAD_IDS
        first = len(self.ids) - count if count > LOOKAHEAD_IDS else len(self.ids)
        return FlowPrompt(
            self.id, self.embedding, self.ids[first:], self.mel[:, FRAMES_PER_SPEECH_ID * first :]
        )

    @property
    def prompt_tail_ids(self) -> tuple[int, ...]:
        """The ids that the first chunk has to speak again, unheard."""
        return tuple(self.ids[len(self.ids) // BLOCK_IDS * BLOCK_IDS :].tolist())


@dataclass(frozen=True, slots=True)
class VoiceConditioning:
    """How a session speaks, decided when it opens.

    source_speech_ids: speech to be said again in the session's voice, instead of text.
    """

    flow_prompt: FlowPrompt
    prompt: LmPrompt
    sampling: SamplingParameters
    speed: float
    source_speech_ids: tuple[int, ...] | None = None
