"""The flow's memory of a voice, lent to one sentence at a time.

For states of any library: they have ``frames``, ``capacity`` and ``release_behind``.
"""

import weakref
from collections.abc import Callable
from typing import Any

from ....models.cosyvoice.config import BLOCK_FRAMES, FRAMES_PER_SPEECH_ID


class OwnSequence:
    """A sentence's own state. return_memory: called when the sequence no longer uses its voice's memory."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.return_memory: Callable[[], object] | None = None

    def replace_state(self, state: Any) -> None:
        """Keep the state after a step, which may lie in a larger memory."""
        if self.return_memory and state.capacity != self.state.capacity:
            self.return_memory()
        self.state = state

    def free(self) -> None:
        """Drop the state."""
        if self.return_memory:
            self.return_memory()
        del self.state


class PreparedVoice:
    """A voice's state. kept_frames: room behind it that stays resident between sentences.

    Attributes:
        can_lend_memory: whether there is room behind the state that no sentence uses.
        resident_ids: speech ids of memory in use; 0 while it is lent, because the sentence counts it then.
    """

    def __init__(self, state: Any, *, can_lend_memory: bool, kept_frames: int = BLOCK_FRAMES) -> None:
        self.state, self.can_lend_memory, self._kept_frames = state, can_lend_memory, kept_frames
        self.resident_ids = int(state.frames) // FRAMES_PER_SPEECH_ID

    def lend_memory(self) -> OwnSequence:
        """A sequence that writes behind the voice's frames; the memory comes back when it is freed."""
        sequence = OwnSequence(self.state)
        self.can_lend_memory, self.resident_ids = False, 0
        sequence.return_memory = weakref.finalize(sequence, self._reclaim_memory)
        return sequence

    def _reclaim_memory(self) -> None:
        """Release the pages behind the kept frames, which speed up the next sentence's first chunk."""
        kept_frames = int(self.state.frames) + self._kept_frames
        self.state.release_behind(kept_frames)
        self.can_lend_memory, self.resident_ids = True, kept_frames // FRAMES_PER_SPEECH_ID
