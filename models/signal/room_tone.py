"""Room tone: noise like a voice's own silence, for the pauses that are put between its clauses.

A voice learnt from recordings is never digitally silent: its pauses inside a sentence have a faint noise. A
pause of zeros beside them sounds as if the line were cut. The tone has the power spectrum of the voice's
silence and random phases. It is one period of a periodic signal, so that its end goes on at its start without
a seam.

Source: Welch 1967, The use of fast Fourier transform for the estimation of power spectra.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PERIOD = 48_000  # samples, 2 s at 24 kHz; longer than usual pauses
_WINDOW = 512  # samples of the spectrum's estimate
_FADE_S = 0.005
_SEED = 20_261_123

_MAX_LEVEL_DB = -62.0  # dBFS; a louder tone is made fainter
_LEVEL_WINDOW = 480  # samples, 20 ms at 24 kHz
_MIN_WINDOWS = 3  # of a quiet part
_MAX_STEP_DB = 4.0  # between windows of a steady noise; sounds that die away fall faster
_AUDIBLE_DB = -50.0  # dBFS
_DIGITAL_SILENCE_DB = -96.0  # below half a step of 16 bits

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class RoomTone:
    """The tone of one voice. period: (N,) float32 samples that repeat. sample_rate: Hz."""

    period: Float
    sample_rate: int = 24_000

    @classmethod
    def like(cls, silence: Float) -> "RoomTone":
        """The tone with the spectrum and level of a voice's silence.

        silence: (N,) float32, at least 512 samples. One above -62 dBFS is made fainter.
        """
        frequencies, estimated_at = (np.linspace(0, 1, size // 2 + 1) for size in (_PERIOD, _WINDOW))
        magnitudes = np.sqrt(_PERIOD * np.interp(frequencies, estimated_at, _power_spectrum(silence)))
        magnitudes[[0, -1]] = 0  # they have no phase
        phases = np.random.default_rng(_SEED).uniform(0, 2 * np.pi, len(magnitudes))
        period = np.fft.irfft(magnitudes * np.exp(1j * phases), _PERIOD)
        level = float(np.sqrt(np.mean(period**2)))
        return cls((period * min(1.0, 10 ** (_MAX_LEVEL_DB / 20) / max(level, 1e-12))).astype(np.float32))

    @classmethod
    def of_speech(cls, speech: Float) -> "RoomTone | None":
        """The tone of the longest steady quiet part of speech; None if that is too short or digital silence.

        speech: (N,) float32 at 24 kHz, with its pauses.
        """
        whole = len(speech) // _LEVEL_WINDOW
        powers = np.mean(np.square(speech[: whole * _LEVEL_WINDOW].reshape(whole, _LEVEL_WINDOW)), axis=1)
        levels_db = 10 * np.log10(np.maximum(powers, 1e-20))
        is_quiet = (levels_db > _DIGITAL_SILENCE_DB) & (levels_db < _AUDIBLE_DB)
        longest, run = range(0), range(0)
        for at in range(whole):
            goes_on = is_quiet[at] and len(run) and abs(levels_db[at] - levels_db[at - 1]) <= _MAX_STEP_DB
            run = range(run.start if goes_on else at, at + bool(is_quiet[at]))
            longest = max(longest, run, key=len)
        if len(longest) < _MIN_WINDOWS:
            return None
        quiet = speech[longest.start * _LEVEL_WINDOW : longest.stop * _LEVEL_WINDOW]
        return cls.like(quiet)

    def at_rate(self, sample_rate: int) -> "RoomTone":
        """What remains of the tone at a lower sample rate, Hz."""
        size = len(self.period) * sample_rate // self.sample_rate
        spectrum = np.fft.rfft(self.period)[: size // 2 + 1] * (size / len(self.period))
        spectrum[-1] = 0
        return RoomTone(np.fft.irfft(spectrum, size).astype(np.float32), sample_rate)

    def pause(self, start: int, samples: int) -> Float:
        """A pause at the sample ``start`` of a stream: (samples,) float32, faded in and out over 5 ms."""
        tone = self.period[np.arange(start, start + samples) % len(self.period)]
        fade = min(round(_FADE_S * self.sample_rate), samples // 2)
        rise = np.linspace(0, 1, fade, endpoint=False, dtype=np.float32)
        tone[:fade] *= rise
        tone[samples - fade :] *= rise[::-1]
        return tone


def _power_spectrum(samples: Float) -> NDArray[np.float64]:
    """Mean power of a sample by frequency: (257,)."""
    window = np.hanning(_WINDOW)
    blocks = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[:: _WINDOW // 4]
    power: NDArray[np.float64] = np.mean(np.abs(np.fft.rfft(blocks * window, axis=1)) ** 2, axis=0)
    return power / np.sum(window**2)
