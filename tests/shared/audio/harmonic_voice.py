"""A synthetic recording that voice checks accept: harmonics whose level varies like that of speech."""

import numpy as np
from numpy.typing import NDArray


def harmonic_voice(seconds: float, rate: int = 24_000) -> NDArray[np.float32]:
    """Samples in [-1, 1] at a rate in Hz."""
    time = np.arange(round(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * time)) / rate
    tones = sum(np.sin(n * pitch) / n for n in range(1, 20))
    return (0.2 * tones * (1 + np.sin(2 * np.pi * 3 * time)) / 2).astype(np.float32)
