"""Streaming upsamplers by whole factors, for speech recognition and speech detection.

Polyphase and half-band FIR filters of about 1 ms delay at 8 kHz input; general resamplers work in blocks and
withhold 60 to 116 ms. They are not for audio that people listen to: ``resample`` has flatter filters.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_TAPS_PER_PHASE: Final = 16
_CUTOFF: Final = 0.95  # of the input's Nyquist frequency
_HALF_BAND_TAPS: Final = 31


class Upsampler:
    """Multiplies the sample rate of s16le mono by ``factor``; pushes may have any size.

    The delay is 8 input samples: 1 ms at 8 kHz, 0.5 ms at 16 kHz.
    """

    def __init__(self, factor: int) -> None:
        length = _TAPS_PER_PHASE * factor
        time = (np.arange(length) - (length - 1) / 2) / factor  # input samples
        taps = np.sinc(_CUTOFF * time) * np.kaiser(length, 7.0)
        phases = taps.reshape(_TAPS_PER_PHASE, factor)
        # (taps, factor), newest sample last; each phase has unit gain
        self._phases: NDArray[np.float64] = (phases / phases.sum(axis=0))[::-1].copy()
        self._history: NDArray[np.float64] = np.zeros(_TAPS_PER_PHASE - 1)

    def push(self, pcm: bytes) -> bytes:
        """Return ``factor`` output samples for each input sample."""
        samples = np.concatenate([self._history, np.frombuffer(pcm, "<i2")])
        self._history = samples[-(_TAPS_PER_PHASE - 1) :]
        windows = np.lib.stride_tricks.sliding_window_view(samples, _TAPS_PER_PHASE)  # (samples, taps)
        out = np.rint(windows @ self._phases).clip(-32_768, 32_767)  # (samples, factor)
        return out.astype("<i2").tobytes()


class HalfBandUpsampler:
    """Doubles the sample rate of float32 mono with a half-band filter; the delay is 1 ms at 8 kHz."""

    def __init__(self) -> None:
        self._history = np.zeros(_HALF_BAND_TAPS - 1, np.float32)  # at the output's rate

    def reset(self) -> None:
        """Begin a new signal."""
        self._history = np.zeros(_HALF_BAND_TAPS - 1, np.float32)

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return two output samples for each input sample."""
        stretched = np.zeros(2 * len(samples), np.float32)
        stretched[::2] = samples
        line = np.concatenate([self._history, stretched])
        self._history = line[len(line) - len(self._history) :]
        return np.convolve(line, _half_band(), "valid").astype(np.float32, copy=False)


@cache
def _half_band() -> NDArray[np.float32]:
    position = np.arange(_HALF_BAND_TAPS) - _HALF_BAND_TAPS // 2
    return (np.sinc(position / 2) * np.kaiser(_HALF_BAND_TAPS, 6.0)).astype(np.float32)
