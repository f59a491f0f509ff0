"""Concealment of lost audio: the last pitch period is repeated and faded out; the return is cross-faded.

    received   ~~~~~~~~~~~|  lost  |~~~~~~~~
    output     ~~~~~~~~~~~|~period~|x~~~~~~~      x: 4 ms of both

It serves speech detection and recognition; nobody listens to it. Received audio is not delayed.

Source: the method of ITU-T G.711 Appendix I (pitch search, repetition, fading), simplified.
"""

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MIN_PITCH_HZ, _MAX_PITCH_HZ = 66, 400
_TEMPLATE_S: Final = 0.010  # end of the audio that is compared with what is before it
_HISTORY_S: Final = 0.040
_FULL_S: Final = 0.010  # of concealment at the full level
_FADE_S: Final = 0.060  # until it is silent
_CROSS_FADE_S: Final = 0.004


class LossConcealer:
    """Replaces lost audio of one stream of s16le mono."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._history_bytes = 2 * round(_HISTORY_S * sample_rate)
        self._recent: deque[bytes] = deque()  # received, the last 40 ms or more
        self._recent_bytes = 0
        self._period: NDArray[np.float64] | None = None  # repeated; None: nothing is lost
        self._concealed = 0  # samples since the last received one

    def push(self, pcm: bytes) -> bytes:
        """Return received audio, with its beginning faded in after a loss."""
        if self._period is not None:
            pcm = self._fade_in(pcm)
        self._recent.append(pcm)
        self._recent_bytes += len(pcm)
        while self._recent_bytes - len(self._recent[0]) >= self._history_bytes:
            self._recent_bytes -= len(self._recent.popleft())
        return pcm

    def conceal(self, samples: int) -> bytes:
        """Return audio in place of ``samples`` that were lost after the audio so far."""
        if self._period is None:
            history = np.frombuffer(b"".join(self._recent), "<i2").astype(np.float64)
            self._period = _last_period(history, self._sample_rate)
        return _as_pcm(self._synthesize(samples))

    def reset(self) -> None:
        """Forget the audio so far: silence follows, or another stream."""
        self._recent.clear()
        self._recent_bytes = 0
        self._end_loss()

    def _synthesize(self, samples: int) -> NDArray[np.float64]:
        assert self._period is not None
        at = self._concealed + np.arange(samples)
        self._concealed += samples
        if not len(self._period):
            return np.zeros(samples)
        seconds = at / self._sample_rate
        gain = np.clip((_FADE_S - seconds) / (_FADE_S - _FULL_S), 0.0, 1.0)
        repeated: NDArray[np.float64] = self._period[at % len(self._period)] * gain
        return repeated

    def _fade_in(self, pcm: bytes) -> bytes:
        received = np.frombuffer(pcm, "<i2").astype(np.float64)
        length = min(len(received), round(_CROSS_FADE_S * self._sample_rate))
        ramp = np.linspace(0, 1, length)
        received[:length] = received[:length] * ramp + self._synthesize(length) * (1 - ramp)
        self._end_loss()
        return _as_pcm(received)

    def _end_loss(self) -> None:
        self._period = None
        self._concealed = 0


def _last_period(history: NDArray[np.float64], sample_rate: int) -> NDArray[np.float64]:
    """Return the last pitch period, with an end that leads into its beginning; empty without history."""
    template = round(_TEMPLATE_S * sample_rate)
    min_lag, max_lag = sample_rate // _MAX_PITCH_HZ, sample_rate // _MIN_PITCH_HZ
    max_lag = min(max_lag, len(history) - template)
    if max_lag <= min_lag:
        return np.empty(0)
    tail = history[-template:]
    before = history[-template - max_lag : -min_lag]
    products = np.correlate(before, tail, "valid")  # index 0 is the greatest lag
    energies = np.convolve(before**2, np.ones(template), "valid")
    lag = max_lag - int(np.argmax(products / np.sqrt(energies + 1.0)))
    period = history[-lag:].copy()
    overlap = min(lag // 4, len(history) - lag)
    ramp = np.linspace(0, 1, overlap)
    period[-overlap:] = period[-overlap:] * (1 - ramp) + history[-lag - overlap : -lag] * ramp
    return period


def _as_pcm(samples: NDArray[np.float64]) -> bytes:
    return np.clip(np.rint(samples), -32_768, 32_767).astype("<i2").tobytes()
