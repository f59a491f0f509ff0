"""A chunk that is to be rendered. No tensors: the render state belongs to the stage that renders it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....models.cosyvoice.flow.hop_schedule import SpeechIdChunk

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RenderInput:
    """A chunk to render. ids: all speech ids of the sentence so far, after the recording's tail."""

    render_state: Any  # of the sentence, made by the stage
    chunk: SpeechIdChunk
    ids: list[int]
    runs_dry_at: float | None = None  # as of ``SlotTurn``
    trace_id: str = "-"  # of the stream, for logs

    @property
    def length(self) -> int:
        """Number of speech ids in the chunk."""
        return self.chunk.stop - self.chunk.start
