"""Voice activity detection of one caller: audio in, beginnings and ends of speech out.

Silero's network classifies windows of 32 ms, one every 16 ms. Its windows must not overlap, so that two
memories of it take turns. The network doubts high voices, so the second memory hears the sound slower, as
from a tape at the wrong speed, and thereby deeper. What counts is the mean of both: a tone or music that only
one of them takes for speech is no speech.

The network is slow to call speech the first thing that it ever hears: it must know the silence before. So
silence, below -50 dBFS, is not classified, but its last 256 ms are kept, and given to the network when sound
begins. There is no clock: times are positions in the received audio.

::

    sound                        |begins
    history  |----- 256 ms ------|            given first, not counted
    windows            |--------|             the last one of the history
                              |------|        counted, 16 ms after the beginning; 27 ms, heard as 32 ms
                                 |--------|   and 32 ms after it, with the memory of the first

Source: Silero VAD (MIT), and the threshold for silence of its own iterator.
"""

import audioop
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .audio.input_resampler import DetectorResampler
from .speech_network import CONTEXT_SAMPLES, WINDOW_SAMPLES, SpeechNetworkState, load_speech_network

# Speech begins when the mean of so many last windows is at least that. Beeps, clicks, music and the
# rest of an echo are often speech for one memory, in one window, and seldom for both or for long; some
# voices are for one memory alone, for as long as they speak.
BEGINNINGS: Final = ((1, 0.95), (2, 0.65), (4, 0.6), (6, 0.46))
SILENCE_THRESHOLD: Final = 0.35
MIN_SILENCE_WINDOWS: Final = 32  # 512 ms; a pause between words is shorter
QUIET_DBFS: Final = -50.0
_QUIET_RMS: Final = 10 ** (QUIET_DBFS / 20) * 32_768
_BLOCK_S: Final = 0.008
_HISTORY_BLOCKS: Final = 32  # 256 ms: with 96 ms, callers are noticed 5 ms later in the median
_REST_BLOCKS: Final = 8  # 64 ms; a stop consonant is no longer
_MEMORIES: Final = 2
_HOP: Final = WINDOW_SAMPLES // _MEMORIES  # 16 ms
_SLOWDOWN: Final = 1.5  # of what the second memory hears: 400 Hz, a high voice, become 267 Hz


@dataclass(frozen=True, slots=True)
class VoiceActivityChange:
    """A beginning (``speaking``) or end of speech, ``at_s`` seconds into the received audio."""

    speaking: bool
    at_s: float


class VoiceActivityDetector:
    """Speech detection of one call.

    It costs 0.2 ms of CPU for 32 ms of audible sound, and 1.6 ms where sound begins. All calls of a process
    share the network, of 1.2 MB.
    """

    def __init__(self) -> None:
        self._resampler = DetectorResampler()
        self._sample_rate = 0  # Hz, of the last audio
        self._received = bytearray()  # s16le, less than a block
        self._received_s = 0.0  # in whole blocks
        self._history: deque[bytes] = deque(maxlen=_HISTORY_BLOCKS)
        self._windows: _Windows | None = None  # None: all is quiet
        self._quiet_blocks = 0  # in a row
        self.speaking = False

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        """Take whole milliseconds of s16le mono at any rate (Hz) and return the changes in them."""
        if sample_rate != self._sample_rate:
            self._sample_rate = sample_rate
            self._received.clear()  # less than a block
            self._history.clear()
        self._received += pcm
        size = 2 * round(_BLOCK_S * sample_rate)
        changes: list[VoiceActivityChange] = []
        while len(self._received) >= size:
            block = bytes(self._received[:size])
            del self._received[:size]
            self._received_s += size / 2 / sample_rate
            if self._has_changed(block):
                self.speaking = not self.speaking
                changes.append(VoiceActivityChange(self.speaking, self._received_s))
        return changes

    def _has_changed(self, block: bytes) -> bool:
        """Take a block and return whether speech begins or ends with it."""
        is_quiet = audioop.rms(block, 2) < _QUIET_RMS
        self._quiet_blocks = self._quiet_blocks + 1 if is_quiet else 0
        if self._windows is None and not is_quiet:
            self._windows = self._begin()
        self._history.append(block)
        if self._windows is None:
            return False
        samples = self._resampler.push(block, self._sample_rate)
        if self.speaking:
            return self._windows.speech_ends(samples)
        if self._windows.speech_begins(samples):
            return True
        if self._quiet_blocks >= _REST_BLOCKS:
            self._windows = None
        return False

    def _begin(self) -> "_Windows":
        self._resampler.reset()
        return _Windows(self._resampler.push(b"".join(self._history), self._sample_rate))


class _Windows:
    """The windows of audible sound.

    Args:
        history: what the network hears first, at 16 kHz.
    """

    def __init__(self, history: NDArray[np.float32]) -> None:
        self._network = load_speech_network()
        self._memories = [SpeechNetworkState.empty() for _ in range(_MEMORIES)]
        # Up to the next window's end; the windows end where the history ends, and every hop from there.
        missing = CONTEXT_SAMPLES + WINDOW_SAMPLES - _HOP + -len(history) % _HOP
        self._samples = np.concatenate([np.zeros(missing, np.float32), history])
        self._hops = 0
        self._recent: deque[float] = deque(maxlen=max(windows for windows, _ in BEGINNINGS))
        self._silent_windows = 0  # in a row
        for _ in self._probabilities():
            pass

    def speech_begins(self, samples: NDArray[np.float32]) -> bool:
        """Take samples at 16 kHz while the caller is silent."""
        begins = False
        for probability in self._probabilities(samples):
            self._recent.appendleft(probability)
            begins = begins or any(
                sum(islice(self._recent, windows)) >= windows * mean
                for windows, mean in BEGINNINGS
                if len(self._recent) >= windows
            )
        self._silent_windows = 0
        return begins

    def speech_ends(self, samples: NDArray[np.float32]) -> bool:
        """Take samples at 16 kHz while the caller speaks."""
        ends = False
        for probability in self._probabilities(samples):
            self._silent_windows = self._silent_windows + 1 if probability < SILENCE_THRESHOLD else 0
            ends = ends or self._silent_windows >= MIN_SILENCE_WINDOWS
        self._recent.clear()
        return ends

    def _probabilities(self, samples: NDArray[np.float32] | None = None) -> Iterator[float]:
        """Yield the probability of speech of each window that is complete."""
        if samples is not None:
            self._samples = np.concatenate([self._samples, samples])
        size = CONTEXT_SAMPLES + WINDOW_SAMPLES
        while len(self._samples) >= size:
            self._hops += 1
            turn = self._hops % _MEMORIES
            window = self._samples[:size]
            yield self._network.step(_slowed(window) if turn == 1 else window, self._memories[turn])
            self._samples = self._samples[_HOP:]


def _slowed(window: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the end of a window, stretched over all of it."""
    last = len(window) - 1
    places = np.arange(-last, 1) / _SLOWDOWN + last
    return np.interp(places, np.arange(len(window)), window).astype(np.float32)
