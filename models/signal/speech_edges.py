"""Cuts the silence around a clause while it is streamed, and measures the gain that a voice needs."""

import numpy as np
from numpy.typing import NDArray

TARGET_LEVEL_DB = -20.0  # active speech level, dBFS, as the packaged voice has it

_AUDIBLE = 10 ** (-50 / 20)
_WINDOW_S = 0.001
_LEAD_S = 0.004  # kept before the first audible window
_FADE_S = 0.010  # kept after the last one, and faded out
_MARGIN_DB = 15.9  # of ITU-T P.56: windows this far below the level are pauses
_LEVEL_WINDOW_S = 0.02
_MAX_GAIN = 10.0

Float = NDArray[np.float32]


class SilenceTrimmer:
    """Trims one clause. Quiet samples are held back until an audible one follows.

    Attributes:
        lead_samples: leading silence that was cut; valid once ``push`` has returned samples.
    """

    def __init__(self, sample_rate: int) -> None:
        self.lead_samples = 0
        self._window = round(_WINDOW_S * sample_rate)
        self._lead, self._fade = round(_LEAD_S * sample_rate), round(_FADE_S * sample_rate)
        self._withheld = np.zeros(0, np.float32)
        self._begun = False

    def push(self, samples: Float, *, last: bool) -> Float:
        """The samples up to the last audible one so far; with ``last``, a fade of 10 ms too."""
        samples = np.concatenate([self._withheld, samples])
        audible = self._audible_windows(samples)
        stop = (int(audible[-1]) + 1) * self._window if len(audible) else 0
        start = 0
        if not self._begun and len(audible):
            start = max(0, int(audible[0]) * self._window - self._lead)
            samples = samples.copy()
            samples[start : start + self._lead] *= np.linspace(
                0, 1, len(samples[start : start + self._lead]), dtype=np.float32
            )
            self.lead_samples += start
            self._begun = True
        if last:
            return self._faded(samples[start : stop + self._fade]) if self._begun else samples[:0]
        self._withheld = samples[stop:]
        if not self._begun:  # only the end can still be part of the lead
            dropped = max(0, len(self._withheld) - self._lead)
            self.lead_samples += dropped
            self._withheld = self._withheld[dropped:]
        return samples[start:stop]

    def _audible_windows(self, samples: Float) -> NDArray[np.int64]:
        whole = len(samples) // self._window
        windows = samples[: whole * self._window].reshape(whole, self._window)
        return np.flatnonzero(np.mean(np.square(windows), axis=1) > _AUDIBLE**2)

    def _faded(self, samples: Float) -> Float:
        samples = samples.copy()
        fade = samples[-self._fade :]
        fade *= np.linspace(1, 0, len(fade), dtype=np.float32)
        return samples


def gain_to_level(samples: Float, sample_rate: int) -> float:
    """The factor that brings speech to an active level of -20 dBFS; 1.0 for silence, at most 10.

    Source: the margin of ITU-T P.56, over windows of 20 ms instead of its envelope.
    """
    size = round(_LEVEL_WINDOW_S * sample_rate)
    whole = len(samples) // size
    powers = np.mean(np.square(samples[: whole * size].astype(np.float64).reshape(whole, size)), axis=1)
    if not len(powers) or powers.max() < _AUDIBLE**2:
        return 1.0
    level, before = float(powers.mean()), 0.0
    while abs(level - before) > 1e-3 * level:
        before, level = level, float(powers[powers >= level * 10 ** (-_MARGIN_DB / 10)].mean())
    return min(_MAX_GAIN, float(10 ** (TARGET_LEVEL_DB / 20) / level**0.5))
