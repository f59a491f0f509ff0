"""Extent and form of the flow's attention memory, as its callers choose them. No torch."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ..config import BLOCK_FRAMES, FRAMES_PER_S


class CacheForm(Enum):
    """The form in which a frame is kept: its keys and values, or the narrower inputs of their projection."""

    KEYS_VALUES = "keys and values"
    INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class FlowPolicy:
    """Extent and form of the attention memory. Raises ValueError for a window that is not whole blocks."""

    window_frames: int | None = None  # how far back a frame attends, a multiple of 50; None: all, exact
    cache_form: CacheForm = CacheForm.KEYS_VALUES
    dtype: Literal["float32", "float16"] = "float32"
    # Initial capacity. Untouched memory costs nothing on Linux, and growing later costs a copy.
    reserve_frames: int = 40 * FRAMES_PER_S

    def __post_init__(self) -> None:
        if self.window_frames is not None and (self.window_frames < 1 or self.window_frames % BLOCK_FRAMES):
            raise ValueError(
                f"window_frames is {self.window_frames}; allowed: a multiple of {BLOCK_FRAMES}, or None"
            )


EXACT_POLICY = FlowPolicy()
HALF_PRECISION_POLICY = FlowPolicy(dtype="float16")
