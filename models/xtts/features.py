"""Spectral features of a recorded voice for XTTS, in numpy alone.

    conditioning_mel    22,050 Hz, 86.1 frames/s, 80 bands: input of the conditioning encoder
    speaker_mel         16 kHz, 100 frames/s, 64 bands: input of the speaker encoder
    resample            the sinc resampler of the CosyVoice features, which is the same

All features are computed in float64 and returned as float32. Filters and windows that a checkpoint holds are
those computed here, so that a checkpoint converted without them works too.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/models/xtts.py (wav_to_mel_cloning),
TTS/encoder/models/resnet.py, TTS/encoder/models/base_encoder.py; mel scale of HTK, filters of equal area
(Slaney) for the conditioning.
"""

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from .config import CONDITIONING_MEL_BANDS, SPEAKER_MEL_BANDS, SPEAKER_RATE, XTTS_INPUT_RATE

Float = NDArray[np.float32]
Double = NDArray[np.float64]

MIN_MEL_SAMPLES = 1025  # one more than the 1,024 that are mirrored at each end
_MAX_HZ = 8000.0
_MEL_FLOOR = 1e-5
_CONDITIONING_TRANSFORM, _CONDITIONING_WINDOW, _CONDITIONING_HOP = 2048, 1024, 256
_SPEAKER_TRANSFORM, _SPEAKER_WINDOW, _SPEAKER_HOP = 512, 400, 160
_SPEAKER_OFFSET = 1e-6  # added before the logarithm
PREEMPHASIS = 0.97


def conditioning_mel(samples: ArrayLike, mel_norms: ArrayLike) -> Float:
    """Log-mel of 22,050 Hz samples: (80, T) float32, natural log divided by ``mel_norms`` (80,).

    T = N // 256 + 1. Needs MIN_MEL_SAMPLES samples.
    """
    mel = conditioning_power(samples)
    return (np.log(np.maximum(mel, _MEL_FLOOR)) / np.asarray(mel_norms, np.float64)[:, None]).astype(
        np.float32
    )


def conditioning_power(samples: ArrayLike) -> Double:
    """Power mel of 22,050 Hz samples before the logarithm: (80, T)."""
    window = np.pad(hann_window(), (_CONDITIONING_TRANSFORM - _CONDITIONING_WINDOW) // 2)
    power = _power(np.asarray(samples, np.float64), window, _CONDITIONING_TRANSFORM, _CONDITIONING_HOP)
    return np.asarray(power @ conditioning_filters()).T


def speaker_mel(samples: ArrayLike) -> Float:
    """Power mel of 16 kHz samples after pre-emphasis: (64, T) float32, T = N // 160 + 1."""
    size = (_SPEAKER_TRANSFORM - _SPEAKER_WINDOW) // 2
    window = np.pad(hamming_window(), size)
    power = _power(preemphasized(samples), window, _SPEAKER_TRANSFORM, _SPEAKER_HOP)
    return np.asarray(power @ speaker_filters()).T.astype(np.float32)


def normalized_log_mel(mel: Float) -> Float:
    """Logarithm of a power mel (64, T), each band with mean 0 and variance 1 over time: float32."""
    logarithm = np.log(mel.astype(np.float64) + _SPEAKER_OFFSET)
    centred = logarithm - logarithm.mean(axis=1, keepdims=True)
    variance = np.square(centred).mean(axis=1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + 1e-5)).astype(np.float32)


def preemphasized(samples: ArrayLike) -> Double:
    """Each sample less 0.97 of the one before it; before the first stands the second."""
    signal = np.asarray(samples, np.float64)
    before = np.concatenate([signal[1:2], signal[:-1]])
    return signal - PREEMPHASIS * before


def hann_window() -> Double:
    """The window of the conditioning: periodic Hann, (1024,)."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_CONDITIONING_WINDOW) / _CONDITIONING_WINDOW)


def hamming_window() -> Double:
    """The window of the speaker encoder: periodic Hamming, (400,)."""
    return 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(_SPEAKER_WINDOW) / _SPEAKER_WINDOW)


@lru_cache(maxsize=1)
def conditioning_filters() -> Double:
    """(1025, 80): triangles of equal area on HTK's mel scale, 0 to 8 kHz."""
    edges = _mel_edges(CONDITIONING_MEL_BANDS)
    filters = _triangles(edges, XTTS_INPUT_RATE, _CONDITIONING_TRANSFORM)
    return np.asarray(filters * (2 / (edges[2:] - edges[:-2])))


@lru_cache(maxsize=1)
def speaker_filters() -> Double:
    """(257, 64): triangles of unit height on HTK's mel scale, 0 to 8 kHz."""
    return _triangles(_mel_edges(SPEAKER_MEL_BANDS), SPEAKER_RATE, _SPEAKER_TRANSFORM)


def _power(signal: Double, window: Double, size: int, hop: int) -> Double:
    """Power spectra (T, size // 2 + 1) of windows centred on every ``hop`` samples, ends mirrored."""
    padded = np.pad(signal, size // 2, mode="reflect")
    windows = sliding_window_view(padded, size)[::hop] * window
    return np.abs(np.fft.rfft(windows, size)) ** 2


def _mel_edges(bands: int) -> Double:
    """Frequencies (bands + 2,) Hz, evenly spaced on HTK's mel scale."""
    max_mel = 2595 * np.log10(1 + _MAX_HZ / 700)
    return np.asarray(700 * (10 ** (np.linspace(0, max_mel, bands + 2) / 2595) - 1))


def _triangles(edges: Double, rate: int, size: int) -> Double:
    frequencies = np.linspace(0, rate / 2, size // 2 + 1)[:, None]
    rising = (frequencies - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - frequencies) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rising, falling))
