"""A limiter that cannot clip."""

import numpy as np
from numpy.typing import NDArray

_KNEE = 0.85


def limit(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bend what exceeds 0.85 smoothly below 1.0; everything else passes as it is. No memory, no delay."""
    magnitude = np.abs(samples)
    if not len(samples) or float(magnitude.max()) <= _KNEE:
        return samples
    room = np.float32(1 - _KNEE)
    bent = np.sign(samples) * (_KNEE + room * np.tanh((magnitude - _KNEE) / room))
    return np.where(magnitude <= _KNEE, samples, bent).astype(np.float32)
