"""A streaming resampler between any two rates with a delay of under 1 ms.

An output sample is a windowed sinc over the input samples around it, with a table of one kernel for each
phase. soxr holds back up to 155 ms of a stream, which a first sound cannot wait for.

Source: J. O. Smith, Digital Audio Resampling, band-limited interpolation.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

_HALF_WIDTH = 16  # input samples to either side at an equal or higher rate
_BETA = 8.0  # of the Kaiser window: 80 dB in the stop band
_ROLL_OFF = 0.95  # of the Nyquist frequency

Float = NDArray[np.float32]


class StreamResampler:
    """Converts one stream of samples; ``flush`` ends it."""

    def __init__(self, from_rate: int, to_rate: int) -> None:
        common = math.gcd(from_rate, to_rate)
        self._up, self._down = to_rate // common, from_rate // common
        self._half, self._kernels = _kernel_table(self._up, self._down)
        self._input = np.zeros(self._half, np.float32)
        self._start = -self._half  # position of its first sample in the stream
        self._written = 0

    def push(self, samples: Float) -> Float:
        """The output samples that more input does not change."""
        if self._up == self._down:
            return samples
        self._input = np.concatenate([self._input, samples])
        end = self._start + len(self._input) - self._half  # positions below this have all their neighbours
        stop = max(self._written, -(-end * self._up // self._down))
        output = np.arange(self._written, stop, dtype=np.int64)
        positions, phases = np.divmod(output * self._down, self._up)
        first = positions - self._half + 1 - self._start
        windows = sliding_window_view(self._input, 2 * self._half)[first] if len(output) else None
        self._written = stop
        self._forget()
        if windows is None:
            return np.zeros(0, np.float32)
        return np.asarray(np.einsum("nk,nk->n", windows, self._kernels[phases]), np.float32)

    def flush(self) -> Float:
        """The rest of the stream, as if silence followed."""
        return self.push(np.zeros(self._half, np.float32))

    def _forget(self) -> None:
        needed = self._written * self._down // self._up - self._half + 1
        surplus = min(max(0, needed - self._start), len(self._input))
        self._input, self._start = self._input[surplus:], self._start + surplus


def _kernel_table(up: int, down: int) -> tuple[int, Float]:
    """Half the width of a kernel in input samples, and the kernels, (up, width) float32."""
    cutoff = min(1.0, up / down) * _ROLL_OFF
    half = math.ceil(_HALF_WIDTH / min(1.0, up / down))
    offsets = np.arange(-half + 1, half + 1)[None] - np.arange(up)[:, None] / up
    window = np.i0(_BETA * np.sqrt(np.clip(1 - (offsets / half) ** 2, 0, 1))) / np.i0(_BETA)
    kernels = cutoff * np.sinc(cutoff * offsets) * window
    return half, (kernels / kernels.sum(axis=1, keepdims=True)).astype(np.float32)
