"""TODO."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]


EMBEDDING_KEY = "llm.model.model.embed_tokens.weight"


TIED_HEAD_KEY = "llm.model.lm_head.weight"


ROTARY_KEY_END = "rotary_embed.inv_freq"


_ROTARY_BASE = 10000.0


def scale_for_key(key: str, drawn: Float) -> Float:
    """Noise of unit variance at the scale of the tensor that has this key."""
    if key.endswith((".original0", ".alpha")) or (drawn.ndim == 1 and key.endswith("weight")):
        return np.float32(1) + np.float32(0.1) * drawn
    if drawn.ndim >= 2:
        return drawn / np.float32(math.sqrt(math.prod(drawn.shape[1:])))
    return np.float32(0.02) * drawn


def rotary_frequencies(shape: Sequence[int]) -> Float:
    """The formula value 1 / 10000 ** (2 i / head width), which upstream keeps as a buffer."""
    (count,) = shape
    exponents = np.arange(0, 2 * count, 2, dtype=np.float32) / np.float32(2 * count)
    return (np.float32(1) / np.float32(_ROTARY_BASE) ** exponents).astype(np.float32)
