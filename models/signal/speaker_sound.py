"""Measures of a speaker: the gain to the level of the packaged voice, and the sound of the pauses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .room_tone import RoomTone

_SAMPLE_RATE = 24_000  # Hz
_TARGET_LEVEL_DB = -20.0  # active speech level, dBFS, as the packaged voice has it
_AUDIBLE = 10 ** (-50 / 20)
_MARGIN_DB = 15.9  # of ITU-T P.56: windows this far below the level are pauses
_LEVEL_WINDOW_S = 0.02
_MAX_GAIN = 10.0


@dataclass(frozen=True, slots=True)
class SpeakerSound:
    """What is measured of a speaker. gain: to the usual level. room_tone: of its pauses, after the gain."""

    gain: float
    room_tone: RoomTone | None


def measure_sound(speech: NDArray[np.float32]) -> SpeakerSound:
    """The sound of a speaker, from speech with the silence around it: (N,) float32 at 24 kHz."""
    gain = gain_to_level(speech, _SAMPLE_RATE)
    return SpeakerSound(gain, RoomTone.of_speech(speech * np.float32(gain)))


def gain_to_level(samples: NDArray[np.float32], sample_rate: int) -> float:
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
    return min(_MAX_GAIN, float(10 ** (_TARGET_LEVEL_DB / 20) / level**0.5))
