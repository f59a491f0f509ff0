"""Random weights that keep activations of order one, so that an untrained network computes finite numbers.

The scale of a tensor follows from its key: gains and norm scales lie around one, matrices are divided by the
root of their fan-in, biases are small. The golden vectors were made with the same rule.

Source: the weight rule in tests/golden/data/README.md; the keys of FunAudioLLM/CosyVoice@ace7c47.
"""

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]

ROTARY_KEY_SUFFIX = "rotary_embed.inv_freq"

_GAIN_KEY_SUFFIXES = (".original0", ".alpha")  # of weight norm, of the Snake activation
_ROTARY_BASE = 10000.0


def unit_noise(shape: Sequence[int], salt: str) -> Float:
    """Standard normal numbers, the same for the same salt."""
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(salt.encode())))
    return generator.standard_normal(shape, dtype=np.float32)


def scale_for_key(key: str, drawn: Float) -> Float:
    """Scale noise of unit variance for the tensor with this key."""
    if key.endswith(_GAIN_KEY_SUFFIXES) or (drawn.ndim == 1 and key.endswith("weight")):
        return np.float32(1) + np.float32(0.1) * drawn
    if drawn.ndim >= 2:
        return drawn / np.float32(math.sqrt(math.prod(drawn.shape[1:])))
    return np.float32(0.02) * drawn


def rotary_frequencies(shape: Sequence[int]) -> Float:
    """1 / 10000 ** (2 i / head width), (head width / 2,): upstream stores this formula as a tensor."""
    (count,) = shape
    exponents = np.arange(0, 2 * count, 2, dtype=np.float32) / np.float32(2 * count)
    return (np.float32(1) / np.float32(_ROTARY_BASE) ** exponents).astype(np.float32)
