"""Extent and form of the flow's attention memory, as its callers choose them. No torch."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ...devices.execution import Precision
from ..config import BLOCK_FRAMES, FRAMES_PER_S, FRAMES_PER_SPEECH_ID, FlowConfig, UnetConfig

_ITEM_BYTES = {"float32": 4, "float16": 2}


class CacheForm(Enum):
    """The form in which a frame is kept: its keys and values, or the narrower inputs of their projection."""

    KEYS_VALUES = "keys and values"
    INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class FlowPolicy:
    """Extent and form of the attention memory. Raises ValueError for a window that is not whole blocks.

    block_frames: frames that attend to each other; more than an utterance has let every frame attend to all
    of a chunk, which is for comparison.
    """

    window_frames: int | None = None  # how far back a frame attends, a multiple of 50; None: all, exact
    cache_form: CacheForm = CacheForm.KEYS_VALUES
    dtype: Literal["float32", "float16"] = "float32"
    # Factors of the products that kernels on a card compute, see ``kernels.fused_kernels``; sums are float32.
    products: Precision = Precision.FP32
    # Initial capacity. Untouched memory costs nothing on Linux, and growing later costs a copy.
    reserve_frames: int = 40 * FRAMES_PER_S
    block_frames: int = BLOCK_FRAMES

    def __post_init__(self) -> None:
        if self.window_frames is not None and (self.window_frames < 1 or self.window_frames % BLOCK_FRAMES):
            raise ValueError(
                f"window_frames is {self.window_frames}; allowed: a multiple of {BLOCK_FRAMES}, or None"
            )


EXACT_POLICY = FlowPolicy()
HALF_PRECISION_POLICY = FlowPolicy(dtype="float16")


def state_bytes_per_s(config: FlowConfig, policy: FlowPolicy) -> int:
    """Bytes that each second of speech adds to a session's state if the window is unbounded."""
    estimator = config.estimator
    layers = estimator.attention_layers if isinstance(estimator, UnetConfig) else estimator.depth
    width = estimator.channels if isinstance(estimator, UnetConfig) else estimator.width
    depth = 2 * estimator.inner if policy.cache_form is CacheForm.KEYS_VALUES else width
    solver = 2 * config.solver_steps * layers * depth * _ITEM_BYTES[policy.dtype] * FRAMES_PER_S
    if config.encoder is None:
        return solver
    encoder = config.encoder
    rates = encoder.layers * FRAMES_PER_S // FRAMES_PER_SPEECH_ID + encoder.up_layers * FRAMES_PER_S
    return solver + 2 * encoder.width * _ITEM_BYTES["float32"] * rates
