"""The pitch of an encoded line: wider or narrower, with accents, and rising at its end.

    deviation from the voice's mean x range, up to the model's extremes  + shift + accents + rise

Every frame's pitch depends on that frame's alone, apart from accents and the rise, so two lines of a sentence
meet as they met before. Declination stays: what was lower is still lower. The decoder gets the new pitch too:
with the old one, the spectra of the harmonics do not fit their places, and judges of quality hear it.

The glides into silence, beyond the extremes, keep their shape.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .voice import EncodedLine

MEAN_HZ = 195.0  # of the voice; a test measures it
_LOWEST_VOICED_HZ = 100.0
_KNEE_SEMITONES = 4.0  # from the mean; a deviation beyond it is widened less, at the extremes not at all
_HIGHEST_SEMITONES, _LOWEST_SEMITONES = 8.8, 8.5  # above and below the mean: 119 to 324 Hz
_F0_CHANNEL = 128  # of the hidden frames: log(1 + f0) / 5
_RISE_FRAMES = 24  # 0.3 s, of a rise of a few semitones
_STEEPEST = 0.25  # semitones a frame; a larger rise begins earlier
_END_FRAMES = 12  # voiced, whose median is the pitch at the end: 0.15 s
_MIN_GAIN = 0.3  # of a rise; a word shorter than this takes rises no further
_GLIDE_FRAMES = 4  # at both ends of an accent

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Accent:
    """Words of a line that stand out."""

    words: tuple[int, int]  # (first, stop)
    semitones: float  # above where they are


@dataclass(frozen=True, slots=True)
class Melody:
    """How the pitch of a line differs from the model's."""

    range: float = 1.0  # factor of the deviation from the voice's mean
    accents: tuple[Accent, ...] = ()
    shift: float = 0.0  # semitones, of all of it
    end_above_mean: float | None = None  # least semitones of the last words' end above the line's mean


def shape(line: EncodedLine, melody: Melody) -> EncodedLine:
    """The line with another melody; the same line for the model's own."""
    if melody == Melody():
        return line
    voiced = line.f0 > _LOWEST_VOICED_HZ
    own = _semitones(np.maximum(line.f0, _LOWEST_VOICED_HZ))
    pitch = _widened(own, melody.range) + np.float32(melody.shift)
    for accent in melody.accents:
        pitch += _bump(line, accent)
    highest = np.maximum(own, _HIGHEST_SEMITONES) + max(0.0, melody.shift)
    if melody.end_above_mean is not None:
        pitch = np.minimum(pitch + _rise(pitch, voiced, line, melody.end_above_mean), highest)
        rest = _rise(pitch, voiced, line, melody.end_above_mean)  # what the bound took
        pitch += rest - rest.max()  # the line begins lower instead
    pitch = np.minimum(pitch, highest)
    f0 = np.where(line.f0 > 0, line.f0 * np.exp2((pitch - own) / 12), line.f0)
    f0 = f0.astype(np.float32)
    hidden = line.hidden.copy()
    hidden[0, _F0_CHANNEL] = np.log1p(f0.clip(min=0)) / 5
    return replace(line, f0=f0, hidden=hidden)


def end_above_mean(line: EncodedLine) -> float:
    """Semitones of the end of the last word above the mean of the line."""
    pitch, voiced = _semitones(np.maximum(line.f0, _LOWEST_VOICED_HZ)), line.f0 > _LOWEST_VOICED_HZ
    at = _voiced_words(voiced, line)
    return float(_median(pitch[at[-_END_FRAMES:]]) - pitch[at].mean()) if len(at) else 0.0


def _median(values: NDArray[np.floating]) -> np.floating:
    """As ``np.median``, whose first call imports ``numpy.ma``: the first question would wait for that."""
    middle: np.floating = np.sort(values)[(len(values) - 1) // 2 : len(values) // 2 + 1].mean()
    return middle


def _semitones(f0: Float) -> Float:
    """Above the voice's mean."""
    semitones: Float = (12 * np.log2(f0 / np.float32(MEAN_HZ))).astype(np.float32)
    return semitones


def _widened(own: Float, factor: float) -> Float:
    """Deviations in semitones times a factor, which approaches 1 at the model's extremes."""
    extreme = np.where(own > 0, _HIGHEST_SEMITONES, _LOWEST_SEMITONES)
    share = np.clip((extreme - np.abs(own)) / (extreme - _KNEE_SEMITONES), 0, 1)
    return (own * (1 + (factor - 1) * share)).astype(np.float32)


def _bump(line: EncodedLine, accent: Accent) -> Float:
    """An accent's semitones for each frame: flat over its words, gliding in and out."""
    first, stop = line.words[accent.words[0]][0], line.words[accent.words[1] - 1][1]
    frames = np.arange(len(line.f0))
    inside = np.minimum(frames - first, stop - frames)
    return (accent.semitones * np.clip(inside / _GLIDE_FRAMES + 1, 0, 1)).astype(np.float32)


def _voiced_words(voiced: NDArray[np.bool_], line: EncodedLine) -> NDArray[np.int64]:
    """The voiced frames from the line's onset to the end of its last word."""
    end = line.words[-1][1] if line.words else len(voiced)
    at = np.flatnonzero(voiced[:end])
    return at[at >= line.onset]


def _rise(pitch: Float, voiced: NDArray[np.bool_], line: EncodedLine, wanted: float) -> Float:
    """What lifts the end of the last word so far above the mean of the whole line, the rise included.

    The rise x of slope r(t) moves the end by x r_end and the mean by x r_mean.
    """
    at = _voiced_words(voiced, line)
    if not len(at):
        return np.zeros_like(pitch)
    end = at[-_END_FRAMES:]
    lacking = max(0.0, wanted - float(_median(pitch[end]) - pitch[at].mean()))
    length = max(_RISE_FRAMES, round(lacking / _STEEPEST))
    slope = np.clip((np.arange(len(pitch)) - at[-1]) / length + 1, 0, 1)
    gain = float(_median(slope[end]) - slope[at].mean())
    rise: Float = (lacking / max(gain, _MIN_GAIN) * slope).astype(np.float32)
    return rise
