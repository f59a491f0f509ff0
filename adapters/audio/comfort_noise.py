"""Comfort noise: a quiet noise without a file, so that a line with nothing on it does not sound dead.

Its spectrum is that of a room, which falls by 5 dB an octave (Hoth), between 100 and 3,400 Hz: the same level
on a telephone as in a browser. It repeats after ten seconds without a joint.

Source: ITU-T P.800, annex B (Hoth noise); G.100.1 (0 dBm0 of a sine is 3.14 dB below the largest one).
"""

from typing import Final

import numpy as np

_SECONDS: Final = 10
_BAND_HZ: Final = (100.0, 3_400.0)
_SLOPE: Final = -5 / 20 / np.log10(2)  # exponent of the amplitude: -5 dB an octave
_SEED: Final = 3389  # the same noise in every process
_FULL_SCALE_DBM0: Final = 3.14  # of a sine whose peak is 32,768, ITU-T G.711 (A-law)


def comfort_noise(level_dbm0: float, sample_rate: int, repeated_s: float = 0.0) -> bytes:
    """Return ten seconds of noise and then its first ``repeated_s`` again, s16le.

    level_dbm0: of its mean power. For the root of the mean square relative to 32,768, dBFS, subtract 6.15.
    """
    count = _SECONDS * sample_rate
    frequencies = np.fft.rfftfreq(count, 1 / sample_rate)
    inside = (frequencies >= _BAND_HZ[0]) & (frequencies <= _BAND_HZ[1])
    amplitudes = np.zeros(len(frequencies))
    amplitudes[inside] = frequencies[inside] ** _SLOPE
    phases = np.random.default_rng(_SEED).uniform(0, 2 * np.pi, len(frequencies))
    noise = np.fft.irfft(amplitudes * np.exp(1j * phases), count)
    rms = 32_768 / np.sqrt(2) * 10 ** ((level_dbm0 - _FULL_SCALE_DBM0) / 20)
    samples = np.rint(noise * (rms / np.sqrt(np.mean(noise**2)))).astype("<i2")
    return np.concatenate([samples, samples[: round(repeated_s * sample_rate)]]).tobytes()
