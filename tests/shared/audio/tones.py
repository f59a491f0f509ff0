"""Tones for tests: synthesis, and the pitch of received audio."""

from collections.abc import Sequence

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


class PitchTags:
    """Tones by which speech of several speakers is told apart."""

    def __init__(self, pitches_hz: Sequence[int]) -> None:
        self._pitches_hz = pitches_hz

    def count(self, pcm: bytes, pitch_hz: int, sample_rate: int = 24_000) -> tuple[int, int]:
        """The samples of the speaker with that pitch, and of the others, by 50 ms; silence is neither."""
        length = sample_rate // 20
        samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2")
        own = foreign = 0
        for start in range(0, len(samples) - length, length):
            window = samples[start : start + length]
            if np.abs(window).max() < 500 or np.count_nonzero(window) < length // 2:
                continue
            found = pitch_of(window.tobytes(), sample_rate)
            nearest = min(self._pitches_hz, key=lambda each: abs(each - found))
            own, foreign = own + length * (nearest == pitch_hz), foreign + length * (nearest != pitch_hz)
        return own, foreign
