"""Resamples a whole recording between any two common rates by a windowed sinc, in numpy alone.

The kernel is that of the training pipelines, so that what is extracted from a recording equals upstream's.

Source: J. O. Smith, Digital Audio Resampling, band-limited interpolation with a Hann window;
pytorch/audio torchaudio.functional.resample (the width and the roll-off).
"""

import math
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float32]
Double = NDArray[np.float64]

_SINC_ZEROS = 6  # zero crossings on either side
_SINC_ROLL_OFF = 0.99


def resample(samples: ArrayLike, source_rate: int, target_rate: int) -> Float:
    """Resample to another rate (Hz): (ceil(N * target / source),) float32.

    The kernels have target x source entries after the ratio is reduced, so it should reduce to small numbers.
    """
    if source_rate == target_rate:
        return np.asarray(samples, np.float32)
    divisor = math.gcd(source_rate, target_rate)
    source, target = source_rate // divisor, target_rate // divisor
    kernels, width = _sinc_kernels(source, target)
    signal = np.asarray(samples, np.float64)
    blocks = sliding_window_view(np.pad(signal, (width, width + source)), kernels.shape[1])[::source]
    length = math.ceil(target * len(signal) / source)
    return (blocks @ kernels.T).reshape(-1)[:length].astype(np.float32)


@lru_cache(maxsize=8)
def _sinc_kernels(source: int, target: int) -> tuple[Double, int]:
    """Kernels (target, 2 * width + source), one for each phase, and their half width in source samples."""
    cutoff = min(source, target) * _SINC_ROLL_OFF
    width = math.ceil(_SINC_ZEROS * source / cutoff)
    times = np.arange(-width, width + source) / source - np.arange(target)[:, None] / target
    times = np.clip(times * cutoff, -_SINC_ZEROS, _SINC_ZEROS)
    window = np.cos(times * np.pi / _SINC_ZEROS / 2) ** 2
    return np.sinc(times) * window * (cutoff / source), width
