"""Active speech level after ITU-T P.56, for tests.

Source: ITU-T P.56 (12/2011), method B: the level of speech without its pauses.
"""

import numpy as np
from numpy.typing import NDArray

_SMOOTHING_S = 0.03
_HANGOVER_S = 0.2
_MARGIN_DB = 15.9
_THRESHOLDS = 15  # halvings of full scale


def active_speech_level(samples: NDArray[np.float32], sample_rate: int) -> float:
    """Active speech level in dB relative to full scale (1.0); -inf for silence.

    samples: (N,) float, full scale 1.0. The envelope is smoothed twice with 30 ms and held 200 ms; the
    level is that of the energy over the time in which the envelope exceeds a threshold 15.9 dB below it.
    """
    energy = float(np.sum(np.square(samples, dtype=np.float64)))
    if energy == 0.0:
        return float("-inf")
    envelope = _envelope(np.abs(samples).astype(np.float64), sample_rate)
    hangover = round(_HANGOVER_S * sample_rate)
    thresholds = 0.5 ** np.arange(_THRESHOLDS, -1, -1)
    active = np.array([_active_samples(envelope >= threshold, hangover) for threshold in thresholds])
    heard = active > 0
    level = 10 * np.log10(energy / active[heard])
    excess = level - 20 * np.log10(thresholds[heard]) - _MARGIN_DB
    return _crossing(excess, level)


def _envelope(rectified: NDArray[np.float64], sample_rate: int) -> NDArray[np.float64]:
    """Two one-pole low-pass filters in a row, as their (truncated) joint impulse response."""
    pole = np.exp(-1 / (_SMOOTHING_S * sample_rate))
    age = np.arange(round(10 * _SMOOTHING_S * sample_rate))
    response = (1 - pole) ** 2 * (age + 1) * pole**age
    size = 1 << int(np.ceil(np.log2(len(rectified) + len(response))))
    spectrum = np.fft.rfft(rectified, size) * np.fft.rfft(response, size)
    smooth: NDArray[np.float64] = np.fft.irfft(spectrum, size)[: len(rectified)]
    return smooth


def _active_samples(above: NDArray[np.bool_], hangover: int) -> int:
    """Samples that are above the threshold or at most ``hangover`` samples after one that is."""
    positions = np.flatnonzero(above)
    if not len(positions):
        return 0
    gaps = np.minimum(np.diff(positions), hangover + 1)
    return int(gaps.sum()) + min(hangover + 1, len(above) - int(positions[-1]))


def _crossing(excess: NDArray[np.float64], level: NDArray[np.float64]) -> float:
    """The level that exceeds its threshold by the margin, interpolated between two thresholds."""
    below = np.flatnonzero(excess <= 0)
    if not len(below) or below[0] == 0:
        return float(level[-1 if not len(below) else 0])
    right = int(below[0])
    share = excess[right - 1] / (excess[right - 1] - excess[right])
    return float(level[right - 1] + share * (level[right] - level[right - 1]))
