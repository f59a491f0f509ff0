"""The part of a long recording that is used of it: one speaker, clean, and between two pauses.

    recording   |silence| A speaks ... | noise | B speaks | A speaks ...... | silence |
    excerpt                                               |<- 10 to 25 s ->|

Each half second is described by the cepstrum of its speech and by its distance to the noise. Who speaks most
of the time is the speaker: two clusters of cepstra are two speakers if they lie far apart. No network is
needed, so every bundle chooses the same part.

Source: Davis and Mermelstein 1980 (mel cepstrum); Lloyd 1982 (clusters of two means).
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import soxr
from numpy.typing import NDArray

Float = NDArray[np.float32]

_RATE: Final = 16_000  # Hz, of the analysis
_FRAME: Final = 320  # samples, 20 ms
_BANDS: Final = 32
_MAX_HZ: Final = 4_000  # what a telephone carries, too
_CEPSTRA: Final = slice(1, 14)
_WINDOW: Final = 25  # frames, 0.5 s
_SHORTEST_S, _LONGEST_S = 10.0, 25.0
_AUDIBLE: Final = 0.35  # of the way from the floor's logarithm to that of loud speech
_PAUSE: Final = 8  # frames without speech, at which a part may begin or end
_AROUND: Final = 3  # windows to either side that tell with it who speaks
_TWO_SPEAKERS: Final = 1.4  # between-cluster distance over the spread within, at which there are two
_STEP: Final = 5  # frames between the beginnings that are tried
_IDEAL_SHARE: Final = 0.8  # of speech; more has no pauses to breathe


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a recording, in seconds from its beginning."""

    start_s: float
    stop_s: float


def find_excerpt(samples: Float, sample_rate: int, longest_s: float = _LONGEST_S) -> Excerpt:
    """The best 10 to 25 s, at most ``longest_s``, of a recording of more than that, (N,) in [-1, 1]."""
    spectra = _mel_spectra(soxr.resample(samples, sample_rate, _RATE))
    is_speech = _speech_of(spectra)
    goodness = _goodness(spectra, is_speech)
    longest = round(min(_LONGEST_S, longest_s) * _RATE) // _FRAME
    first, stop = _best_part(goodness, is_speech, longest)
    return Excerpt(first * _FRAME / _RATE, min(stop * _FRAME / _RATE, len(samples) / sample_rate))


def _mel_spectra(samples: Float) -> NDArray[np.float64]:
    """(frames, 32): logarithm of the power in each band."""
    count = len(samples) // _FRAME
    frames = samples[: count * _FRAME].reshape(count, _FRAME) * np.hanning(_FRAME).astype(np.float32)
    power = np.abs(np.fft.rfft(frames, 512)) ** 2
    return np.log(power @ _bands() + 1e-9)


@cache
def _bands() -> NDArray[np.float64]:
    """(257, 32): triangles, evenly spaced on the mel scale from 100 Hz to 4 kHz."""
    mel = 2595 * np.log10(1 + np.linspace(0, _RATE / 2, 257) / 700)
    lowest, highest = (2595 * np.log10(1 + hz / 700) for hz in (100, _MAX_HZ))
    edges = np.linspace(lowest, highest, _BANDS + 2)
    rising = (mel[:, None] - edges[:-2]) / (edges[1] - edges[0])
    return np.asarray(np.clip(np.minimum(rising, 2 - rising), 0, None))


def _speech_of(spectra: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each frame is speech: well above the noise, and with the peaks of a voice."""
    level = np.log(np.exp(spectra).mean(1))
    floor, loud = np.quantile(level, 0.05), np.quantile(level, 0.95)
    is_audible = level > floor + _AUDIBLE * (loud - floor)
    flatness = spectra.mean(1) - level  # 0 of white noise, far below 0 of a voice
    return np.asarray(is_audible & (flatness < -1.0))


def _goodness(spectra: NDArray[np.float64], is_speech: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(frames,): what each adds to a part: 1 for clean speech of the speaker, below 0 for what spoils it."""
    windows = len(spectra) // _WINDOW
    speech = is_speech[: windows * _WINDOW].reshape(windows, _WINDOW)
    cepstra = (spectra @ _cosines())[: windows * _WINDOW].reshape(windows, _WINDOW, -1)
    shares = speech.mean(1)
    is_voiced = shares > 0.3
    goodness = np.where(shares > 0.1, -0.5, -0.2)  # noise or a little speech; silence
    if is_voiced.any():
        means = (cepstra * speech[:, :, None]).sum(1)[is_voiced] / speech.sum(1)[is_voiced, None]
        levels = np.log(np.exp(spectra[: windows * _WINDOW]).mean(1)).reshape(windows, _WINDOW)
        contrast = (np.quantile(levels, 0.9, axis=1) - np.quantile(levels, 0.1, axis=1))[is_voiced]
        is_main = _main_speaker(means)
        clean = np.clip(contrast / 6.0, 0.3, 1.0)
        goodness[is_voiced] = np.where(is_main, clean * np.minimum(1, shares[is_voiced] / _IDEAL_SHARE), -3.0)
    frames = np.repeat(goodness, _WINDOW)
    return np.pad(frames, (0, len(spectra) - len(frames)), constant_values=-0.2)


@cache
def _cosines() -> NDArray[np.float64]:
    """(32, 13): the transform from bands to cepstra."""
    bands = (np.arange(_BANDS) + 0.5) * np.pi / _BANDS
    return np.asarray(np.cos(bands[:, None] * np.arange(_BANDS)[None])[:, _CEPSTRA] / np.sqrt(_BANDS))


def _main_speaker(means: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each window is of the speaker who speaks most. means: (windows, 13)."""
    smooth = np.stack([means[max(0, at - _AROUND) : at + _AROUND + 1].mean(0) for at in range(len(means))])
    centred = smooth - np.median(smooth, 0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    is_second = centred @ directions[0] > 0
    for _ in range(20):
        if is_second.all() or not is_second.any():
            return np.ones(len(means), bool)
        centres = np.stack([smooth[~is_second].mean(0), smooth[is_second].mean(0)])
        distances = np.linalg.norm(smooth[:, None] - centres, axis=2)
        is_second = distances[:, 1] < distances[:, 0]
    spread = distances.min(1).mean()
    if np.linalg.norm(centres[0] - centres[1]) < _TWO_SPEAKERS * spread:
        return np.ones(len(means), bool)
    return np.asarray(is_second if is_second.sum() > len(means) / 2 else ~is_second)


def _best_part(goodness: NDArray[np.float64], is_speech: NDArray[np.bool_], longest: int) -> tuple[int, int]:
    """(first, stop) frame of the part with the largest sum, that begins and ends in a pause if one does.

    longest: frames that it may have.
    """
    shortest = min(longest, round(_SHORTEST_S * _RATE) // _FRAME)
    sums = np.concatenate([[0.0], np.cumsum(goodness)])
    speech = np.concatenate([[0], np.cumsum(is_speech)])
    count = len(goodness)

    def in_pause(at: NDArray[np.int64]) -> NDArray[np.bool_]:
        low, high = np.maximum(0, at - _PAUSE // 2), np.minimum(count, at + _PAUSE // 2)
        return np.asarray(speech[high] == speech[low])

    starts = np.arange(0, count - shortest + 1, _STEP)
    best = (-np.inf, 0, min(count, longest))
    is_start = in_pause(starts)
    for first, begins_in_pause in zip(starts.tolist(), is_start.tolist(), strict=True):
        stops = np.arange(first + shortest, min(count, first + longest) + 1, _STEP)
        scores = sums[stops] - sums[first] + 50.0 * in_pause(stops) + 50.0 * begins_in_pause
        at = int(np.argmax(scores))
        if scores[at] > best[0]:
            best = (float(scores[at]), first, int(stops[at]))
    return best[1], best[2]
