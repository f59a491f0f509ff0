"""Detection of what answered an outgoing call: a person, an answering machine, a fax, or nothing.

    silence of 5 s --> silence
    fax's tone of 1100 or 2100 Hz, before anything is said --> fax
    speech of less than 3.3 s --> 1 s of silence --> person
          '--> goes on -----------------> machine --> beep, or 2.5 s of silence --> greeting is over

It knows no words: somebody who answers with a long sentence is taken for a machine, and a machine of two
words for a person. Speak after the result: our own voice, if it comes back, would be taken for the callee's.
No clock: times are positions in the audio.

Source: ITU-T T.30, 4.3.3 (CNG 1100 Hz for 0.5 s, CED 2100 Hz for at least 2.6 s), 5.3.3 (tolerances).
"""

import audioop
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .answerer import AnswerDetected, Answerer

_RATE: Final = 8_000  # Hz
_BLOCK: Final = 160  # samples, 20 ms
_BLOCK_S: Final = _BLOCK / _RATE
_TRANSFORM: Final = 1_024
_HERTZ: Final = _RATE / _TRANSFORM  # of a line of the spectrum
_WINDOW: Final = np.hanning(2 * _BLOCK)
_LOBE: Final = 7  # lines on each side of a tone, that the window spreads it over
_TONE_SHARE: Final = 0.95  # of the energy above 200 Hz, in a tone
_MIN_TONE_HZ, _MAX_TONE_HZ = 350.0, 2_600.0
_STEADY_HZ: Final = 20.0  # between two blocks of a tone
_FAX_HZ: Final = ((1_100.0, 40.0, 0.40), (2_100.0, 40.0, 0.60))  # tone, tolerance, shortest length in s
_QUIET_POWER: Final = 10.0**-4.5  # -45 dBFS
_ABOVE_NOISE: Final = 6.0  # as power, of speech
_MAX_NOISE_POWER: Final = 10.0**-3.6  # -36 dBFS, taken until something quieter is heard
_NOISE_RISE: Final = 1.01  # a block, of the estimate
_MIN_SPEECH_S: Final = 0.16  # less is a click
_NOTHING_S: Final = 5.0
_PERSON_SILENT_S: Final = 1.0
_MACHINE_S: Final = 3.3
_BEEP_S: Final = 0.16
_GREETED_SILENT_S: Final = 2.5
_MAX_S: Final = 60.0  # of a greeting


class AnswerDetector:
    """One call, from its answer on."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._rate = _RATE
        self._conversion: Any = None
        self._last = np.zeros(_BLOCK)  # the block before, as a window has two
        self._noise = _MAX_NOISE_POWER
        self._blocks = 0
        self._result: Answerer | None = None
        self._tone_hz, self._tone_s = 0.0, 0.0  # of the tone that lasts
        self._speech_s = 0.0  # heard so far, without tones
        self._run_s = 0.0  # of blocks of speech without a quiet one
        self._spoke_at: float | None = None  # the beginning of the first speech
        self._heard_at = 0.0  # the end of the last sound

    @property
    def is_over(self) -> bool:
        """Whether no result follows."""
        return self._result is not None and self._result.is_final

    def push(self, pcm: bytes, sample_rate: int) -> list[AnswerDetected]:
        """Take s16le mono; return the results in it."""
        if sample_rate != self._rate:
            self._rate, self._conversion = sample_rate, None
        if sample_rate != _RATE:
            pcm, self._conversion = audioop.ratecv(pcm, 2, 1, sample_rate, _RATE, self._conversion)
        self._received += pcm
        results = []
        while len(self._received) >= 2 * _BLOCK and not self.is_over:
            block = np.frombuffer(bytes(self._received[: 2 * _BLOCK]), "<i2") / 32_768
            del self._received[: 2 * _BLOCK]
            if (result := self._take(block)) is not None:
                self._result = result
                results.append(AnswerDetected(result, round(self._now, 2)))
        return results

    @property
    def _now(self) -> float:
        return self._blocks * _BLOCK_S

    def _take(self, block: NDArray[Any]) -> Answerer | None:
        self._blocks += 1
        window, self._last = np.concatenate([self._last, block]), block
        power = float(np.mean(block**2))
        self._noise = min(power + 1e-9, self._noise * _NOISE_RISE, _MAX_NOISE_POWER)
        is_loud = power > max(_QUIET_POWER, _ABOVE_NOISE * self._noise)
        self._follow_tone(_tone_of(window) if is_loud else 0.0)
        if is_loud:
            self._heard_at = self._now
        self._run_s = self._run_s + _BLOCK_S if is_loud and not self._tone_hz else 0.0
        if self._run_s >= _MIN_SPEECH_S:
            self._speech_s += _BLOCK_S
            if self._spoke_at is None:
                self._spoke_at = self._now - self._run_s
        return self._after_greeting() if self._result is Answerer.MACHINE else self._at_first()

    def _follow_tone(self, hertz: float) -> None:
        is_same = hertz and abs(hertz - self._tone_hz) <= _STEADY_HZ
        self._tone_s = self._tone_s + _BLOCK_S if is_same else 0.0
        self._tone_hz = hertz

    def _at_first(self) -> Answerer | None:
        if self._spoke_at is None:
            for hertz, tolerance, seconds in _FAX_HZ:
                if abs(self._tone_hz - hertz) <= tolerance and self._tone_s >= seconds:
                    return Answerer.FAX
            return Answerer.SILENCE if self._now - self._heard_at >= _NOTHING_S else None
        if self._now - self._heard_at >= _PERSON_SILENT_S:
            return Answerer.PERSON
        return Answerer.MACHINE if self._heard_at - self._spoke_at >= _MACHINE_S else None

    def _after_greeting(self) -> Answerer | None:
        has_beeped = self._tone_s >= _BEEP_S
        is_silent = self._now - self._heard_at >= _GREETED_SILENT_S
        return Answerer.GREETED if has_beeped or is_silent or self._now >= _MAX_S else None


def _tone_of(window: NDArray[Any]) -> float:
    """Return the frequency (Hz) of a tone that is nearly all there is in a window; 0: there is none."""
    spectrum = np.abs(np.fft.rfft(window * _WINDOW, _TRANSFORM)) ** 2
    spectrum[: round(200 / _HERTZ)] = 0.0
    peak = int(np.argmax(spectrum))
    share = np.sum(spectrum[max(0, peak - _LOBE) : peak + _LOBE + 1]) / (np.sum(spectrum) + 1e-12)
    hertz = peak * _HERTZ
    return hertz if share >= _TONE_SHARE and _MIN_TONE_HZ <= hertz <= _MAX_TONE_HZ else 0.0
