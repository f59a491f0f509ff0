"""Cuts the silence around a clause while it is streamed."""

import numpy as np
from numpy.typing import NDArray

_AUDIBLE = 10 ** (-50 / 20)
_WINDOW_S = 0.001
_LEAD_S = 0.004  # kept before the first audible window
_FADE_S = 0.010  # kept after the last one, and faded out

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
