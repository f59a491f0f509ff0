"""A memoryless limiter of float samples."""

import numpy as np
from numpy.typing import NDArray

_KNEE = 0.85  # linear up to here, -1.4 dBFS

Float = NDArray[np.float32]


def limit(samples: Float) -> Float:
    """Compress magnitudes above 0.85 smoothly to below 1.0; smaller ones are unchanged. No delay."""
    magnitude = np.abs(samples)
    if not len(samples) or float(magnitude.max()) <= _KNEE:
        return samples
    room = np.float32(1 - _KNEE)
    compressed = np.sign(samples) * (_KNEE + room * np.tanh((magnitude - _KNEE) / room))
    return np.where(magnitude <= _KNEE, samples, compressed).astype(np.float32)
