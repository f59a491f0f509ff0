"""Tones for tests: synthesis, and the pitch of received audio."""

import numpy as np


def tone(frequency_hz: float, sample_rate: int, start: int, samples: int) -> bytes:
    """Samples ``start`` to ``start + samples`` of a continuous tone, s16le."""
    time_s = (start + np.arange(samples)) / sample_rate
    return bytes(np.rint(8_000 * np.sin(2 * np.pi * frequency_hz * time_s)).astype("<i2").tobytes())


def pitch_of(pcm: bytes, sample_rate: int = 24_000) -> float:
    """The strongest frequency, Hz."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * sample_rate / len(samples)
