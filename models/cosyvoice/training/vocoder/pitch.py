"""The fundamental frequency of recorded speech, the target of the vocoder's pitch predictor.

The correlation of a frame with itself, shifted by a period, is near 1. Each frame has a few candidate periods
and the candidate "unvoiced"; the path through all frames that gains most is taken, so that a frame whose
octave is in doubt follows its neighbours.

Upstream uses WORLD (Harvest and StoneMask), which needs a compiler where it is installed.

Source: P. Boersma, Accurate short-term analysis of the fundamental frequency (1993), costs of the path.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...config import FRAMES_PER_S, SAMPLE_RATE
from ...front_end.features import MEL_HOP

Double = NDArray[np.float64]

MIN_HZ, MAX_HZ = 60.0, 500.0
_MIN_LAG, _MAX_LAG = int(SAMPLE_RATE / MAX_HZ), int(SAMPLE_RATE / MIN_HZ)
_MIDDLE_LAG = SAMPLE_RATE // 150
_WINDOW = 720  # samples that are compared: 30 ms
_CANDIDATES = 6  # periods of a frame
_VOICED = 0.45  # correlation of a voiced frame
_SILENT = 0.03  # level, relative to the loudest frame, below which a frame tends to be unvoiced
_OCTAVE_COST = 0.02  # of a period, for each octave that it is longer than the shortest
_JUMP_COST = 0.35  # of an octave between two frames
_VOICING_COST = 0.14  # of a change between voiced and unvoiced
_SMALL = 1e-9


def estimate_pitch(samples: ArrayLike) -> NDArray[np.float32]:
    """The fundamental frequency of 24 kHz samples in [-1, 1], (T,) Hz, 50 a second; 0 where unvoiced."""
    signal = np.asarray(samples, np.float64)
    frames = len(signal) // MEL_HOP
    if not frames:
        return np.zeros(0, np.float32)
    windows = _windows(signal, frames)
    correlation = _correlations(windows)
    levels = np.sqrt(np.square(windows).mean(1))
    hz, gains = _candidates(correlation, levels / max(float(levels.max()), _SMALL))
    path = _best_path(hz, gains)
    return hz[np.arange(frames), path].astype(np.float32)


def _windows(signal: Double, frames: int) -> Double:
    """Samples around the middle of each mel frame: (T, window + longest period).

    Both parts that are compared lie evenly around the middle at a period of 150 Hz.
    """
    size = _WINDOW + _MAX_LAG
    padded = np.pad(signal - signal.mean(), size)
    first = size + MEL_HOP // 2 - (_WINDOW + _MIDDLE_LAG) // 2
    return np.lib.stride_tricks.sliding_window_view(padded, size)[first::MEL_HOP][:frames]


def _correlations(windows: Double) -> Double:
    """Of the begin of each window with its continuation, by lag: (T, longest period + 1), -1..1."""
    size = 1 << int(windows.shape[1] * 2 - 1).bit_length()
    begin = np.fft.rfft(windows[:, :_WINDOW], size)
    products = np.fft.irfft(np.conj(begin) * np.fft.rfft(windows, size), size)[:, : _MAX_LAG + 1]
    sums = np.cumsum(np.pad(np.square(windows), ((0, 0), (1, 0))), 1)
    energies = (sums[:, _WINDOW:] - sums[:, :-_WINDOW])[:, : _MAX_LAG + 1]
    return products / np.sqrt(energies[:, :1] * energies + _SMALL)  # type: ignore[no-any-return]


def _candidates(correlation: Double, levels: Double) -> tuple[Double, Double]:
    """Frequencies and gains of the candidates, (T, 1 + candidates) each; the first is unvoiced, 0 Hz."""
    middle = correlation[:, _MIN_LAG:_MAX_LAG]
    before, after = correlation[:, _MIN_LAG - 1 : _MAX_LAG - 1], correlation[:, _MIN_LAG + 1 :]
    lags = np.arange(_MIN_LAG, _MAX_LAG)
    is_peak = (middle > before) & (middle >= after) & (middle > 0)
    gains = np.where(is_peak, middle - _OCTAVE_COST * np.log2(lags / _MIN_LAG), -np.inf)
    best = np.argsort(-gains, 1)[:, :_CANDIDATES]
    # The top of the parabola through a peak and its neighbours.
    curvature = before - 2 * middle + after
    shift = np.where(is_peak, (before - after) / (2 * np.minimum(curvature, -_SMALL)), 0.0)
    rows = np.arange(len(best))[:, None]
    hz = SAMPLE_RATE / (lags[best] + shift[rows, best])
    unvoiced = _VOICED + np.maximum(0, 1 - levels / _SILENT) * (1 - _VOICED)
    return np.pad(hz, ((0, 0), (1, 0))), np.column_stack([unvoiced, gains[rows, best]])


def _best_path(hz: Double, gains: Double) -> NDArray[np.intp]:
    """The candidate of each frame on the path of the largest gain (Viterbi)."""
    total, choices = gains[0], list[NDArray[np.intp]]()
    for frame in range(1, len(hz)):
        options = total[:, None] - _costs(hz[frame - 1], hz[frame])
        choices.append(options.argmax(0))
        total = options.max(0) + gains[frame]
    path = [int(total.argmax())]
    for choice in reversed(choices):
        path.append(int(choice[path[-1]]))
    return np.array(path[::-1])


def _costs(before: Double, after: Double) -> Double:
    """Of going from each candidate of a frame to each of the next one."""
    voiced_before, voiced_after = before[:, None] > 0, after[None] > 0
    octaves = np.log2(np.maximum(after[None], MIN_HZ / 2)) - np.log2(np.maximum(before[:, None], MIN_HZ / 2))
    jump = _JUMP_COST * np.abs(octaves) * FRAMES_PER_S / 100  # the cost is for steps of 10 ms
    changed = np.where(voiced_before == voiced_after, 0.0, _VOICING_COST)
    return np.where(voiced_before & voiced_after, jump, changed)
