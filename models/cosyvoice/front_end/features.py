"""Spectral features of recorded speech, in numpy alone.

    mel_spectrogram     24 kHz, 50 frames/s, natural log: prompt of the flow (v2 up to 8 kHz, v3 up to 12 kHz)
    whisper_log_mel     16 kHz, 100 frames/s, 128 bands: input of the speech tokenizer
    kaldi_filter_bank   16 kHz, 100 frames/s, 80 bands: input of the speaker encoder

All features are computed in float64 and returned as float32. The limits of a recording (length, rate,
channels) are checked in ``recording``.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:95-126 (use of each feature), and the
definitions behind it: Slaney's Auditory Toolbox mel scale, Whisper's and Kaldi's feature front ends.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..config import FRAMES_PER_S, MEL_BANDS, SAMPLE_RATE

Float = NDArray[np.float32]
Double = NDArray[np.float64]

MEL_HOP = SAMPLE_RATE // FRAMES_PER_S  # samples
MEL_WINDOW = 1920  # samples
MIN_MEL_SAMPLES = 721  # one more than the 720 that are mirrored at each end
SPEECH_RATE = 16_000  # Hz, input of both encoders
MIN_FILTER_BANK_SAMPLES = 400  # one window

_MEL_FLOOR = 1e-5
_WHISPER_WINDOW = 400
_WHISPER_HOP = 160
_WHISPER_BANDS = 128
_WHISPER_FLOOR = 1e-10
_WHISPER_RANGE = 8.0  # decades below the loudest point; lower values are raised to it
_KALDI_WINDOW = 400
_KALDI_HOP = 160
_KALDI_TRANSFORM = 512
_KALDI_BANDS = 80
_KALDI_MIN_HZ = 20.0
_KALDI_PREEMPHASIS = 0.97
_KALDI_FLOOR = float(np.finfo(np.float32).eps)
_SLANEY_HZ_PER_MEL = 200 / 3  # linear up to 1 kHz, which is 15 mel
_SLANEY_STEP = math.log(6.4) / 27  # 27 mel from 1 kHz to 6.4 kHz


def mel_spectrogram(samples: ArrayLike, max_hz: float | None) -> Float:
    """Log-mel spectrogram of 24 kHz samples: (80, T) float32, natural log, 50 frames/s, T = N // 480.

    ``max_hz`` is 8000 in version 2, None (half the rate) in version 3. Needs MIN_MEL_SAMPLES samples.
    """
    edge = (MEL_WINDOW - MEL_HOP) // 2
    padded = np.pad(np.asarray(samples, np.float64), edge, mode="reflect")
    spectrum = _spectrum(padded, MEL_WINDOW, MEL_HOP, _hann(MEL_WINDOW), MEL_WINDOW)
    magnitude = np.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-9)
    filters = slaney_filters(SAMPLE_RATE, MEL_WINDOW, MEL_BANDS, max_hz or SAMPLE_RATE / 2)
    mel: Double = np.log(np.maximum(magnitude @ filters.T, _MEL_FLOOR))
    return mel.T.astype(np.float32)


def whisper_log_mel(samples: ArrayLike) -> Float:
    """Whisper's log-mel features of 16 kHz samples: (128, T) float32, 100 frames/s, T = N // 160."""
    padded = np.pad(np.asarray(samples, np.float64), _WHISPER_WINDOW // 2, mode="reflect")
    spectrum = _spectrum(padded, _WHISPER_WINDOW, _WHISPER_HOP, _hann(_WHISPER_WINDOW), _WHISPER_WINDOW)
    power = np.abs(spectrum[:-1]) ** 2
    filters = slaney_filters(SPEECH_RATE, _WHISPER_WINDOW, _WHISPER_BANDS, SPEECH_RATE / 2)
    decades: Double = np.log10(np.maximum(power @ filters.T, _WHISPER_FLOOR))
    decades = np.maximum(decades, decades.max() - _WHISPER_RANGE)
    return ((decades + 4) / 4).T.astype(np.float32)


def kaldi_filter_bank(samples: ArrayLike) -> Float:
    """Kaldi's log filter bank of 16 kHz samples in [-1, 1]: (T, 80) float32, windows of 25 ms every 10 ms.

    The mean over the utterance is not subtracted. Needs MIN_FILTER_BANK_SAMPLES samples.
    """
    windows = _windows(np.asarray(samples, np.float64), _KALDI_WINDOW, _KALDI_HOP)
    centred = windows - windows.mean(axis=1, keepdims=True)
    before = np.concatenate([centred[:, :1], centred[:, :-1]], axis=1)
    emphasised = (centred - _KALDI_PREEMPHASIS * before) * _povey(_KALDI_WINDOW)
    power = np.abs(np.fft.rfft(emphasised, _KALDI_TRANSFORM)) ** 2
    return np.log(np.maximum(power @ _kaldi_filters().T, _KALDI_FLOOR)).astype(np.float32)


def _windows(signal: Double, window: int, hop: int) -> Double:
    """All whole windows as a view, (T, window)."""
    return np.lib.stride_tricks.sliding_window_view(signal, window)[::hop]


def _spectrum(signal: Double, window: int, hop: int, shape: Double, size: int) -> NDArray[np.complex128]:
    return np.fft.rfft(_windows(signal, window, hop) * shape, size)


def _hann(size: int) -> Double:
    """The periodic Hann window, the usual one for spectra."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)


def _povey(size: int) -> Double:
    """Kaldi's window: a symmetric Hann window to the power of 0.85."""
    symmetric = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / (size - 1))
    return np.asarray(symmetric**0.85)


@lru_cache(maxsize=8)
def slaney_filters(rate: int, transform: int, bands: int, max_hz: float) -> Double:
    """(bands, transform // 2 + 1): triangles of unit area, evenly spaced on Slaney's mel scale from 0 Hz."""
    frequencies = np.linspace(0, rate / 2, transform // 2 + 1)
    edges = _slaney_hz(np.linspace(0, _slaney_mel(max_hz), bands + 2))
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    # (bands, bins)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(triangles * (2 / (edges[2:] - edges[:-2]))[:, None])


def _slaney_mel(hz: float) -> float:
    if hz < 1000:
        return hz / _SLANEY_HZ_PER_MEL
    return 15 + math.log(hz / 1000) / _SLANEY_STEP


def _slaney_hz(mel: Double) -> Double:
    return np.where(mel < 15, mel * _SLANEY_HZ_PER_MEL, 1000 * np.exp(_SLANEY_STEP * (mel - 15)))


@lru_cache(maxsize=1)
def _kaldi_filters() -> Double:
    """(80, 257): triangles of unit height in mel, from 20 Hz to half the rate; the last bin stays empty."""
    min_mel, max_mel = _kaldi_mel(np.array([_KALDI_MIN_HZ, SPEECH_RATE / 2]))
    edges = np.linspace(min_mel, max_mel, _KALDI_BANDS + 2)
    bins = _kaldi_mel(np.arange(_KALDI_TRANSFORM // 2 + 1) * (SPEECH_RATE / _KALDI_TRANSFORM))
    rising = (bins - edges[:-2, None]) / (edges[1] - edges[0])
    falling = (edges[2:, None] - bins) / (edges[1] - edges[0])
    filters = np.maximum(0, np.minimum(rising, falling))
    filters[:, -1] = 0
    return np.asarray(filters)


def _kaldi_mel(hz: NDArray[np.floating]) -> Double:
    return np.asarray(1127 * np.log1p(hz / 700))
