"""From a rate to a multiple of it, for ears: speech recognition wants 16 kHz of what a telephone has in 8.

A polyphase FIR of 1 ms delay at 8 kHz; general resamplers work in blocks and withhold 60-116 ms. Other rates,
and those that people listen to, are ``resample``'s.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_TAPS_PER_PHASE: Final = 16  # a phase


class Upsampler:
    """Speech at ``factor`` times its rate; s16le mono in and out, in pushes of any size."""

    def __init__(self, factor: int) -> None:
        length = _TAPS_PER_PHASE * factor
        time = (np.arange(length) - (length - 1) / 2) / factor
        taps = np.sinc(0.95 * time) * np.kaiser(length, 7.0)
        phases = taps.reshape(_TAPS_PER_PHASE, factor)
        self._phases: NDArray[np.float64] = (phases / phases.sum(axis=0))[::-1].copy()
        self._history: NDArray[np.float64] = np.zeros(_TAPS_PER_PHASE - 1)

    def push(self, pcm: bytes) -> bytes:
        """Take samples and return ``factor`` times as many: nothing is withheld but the filter's delay."""
        samples = np.concatenate([self._history, np.frombuffer(pcm, "<i2")])
        self._history = samples[-(_TAPS_PER_PHASE - 1) :]
        windows = np.lib.stride_tricks.sliding_window_view(samples, _TAPS_PER_PHASE)
        out = np.rint(windows @ self._phases).clip(-32_768, 32_767)
        return out.astype("<i2").tobytes()
