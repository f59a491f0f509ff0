"""Reasons to leave a recording out of a data set: by its sound, its length for its text, and its voice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....models.cosyvoice.training.dataset import UtteranceEntry
from ...voices.recording import MAX_LETTERS_PER_S, count_letters

Float = NDArray[np.float32]

MIN_UTTERANCE_S, MAX_UTTERANCE_S = 1.0, 30.0  # the speech tokenizer takes 30 s
MIN_SAMPLE_RATE = 16_000
_SILENT_DBFS = -50.0  # of the loudest 20 ms
_FULL_SCALE, _MAX_CLIPPED = 0.999, 0.002  # share of the samples
_MIN_LETTERS_PER_S = 2.0
_MAX_RATE_FACTOR = 2.5  # from the median rate of the speaker
_MIN_SIMILARITY = 0.3  # cosine; of one speaker it is above 0.5, of two below 0.3 as a rule
_WINDOW_S = 1.5  # of speech that a speaker is known by within a recording
_MIN_WINDOWS = 2  # of each of two speakers
_FAINT = 0.05  # level of a window, relative to the loudest one, below which it says nothing about a speaker
_MIN_SIMILARITY_WITHIN = 0.2  # cosine of the means of both; lower than above, as windows are short


@dataclass(frozen=True, slots=True)
class SoundLevels:
    """Peak and loudest 20 ms, in dBFS, and the share of samples at full scale."""

    peak_dbfs: float
    loudest_dbfs: float
    clipped: float


def measure_levels(samples: Float, sample_rate: int) -> SoundLevels:
    """Levels of a recording, (N,) in [-1, 1]."""
    window = max(1, sample_rate // 50)
    windows = samples[: len(samples) // window * window].reshape(-1, window).astype(np.float64)
    power = float((windows**2).mean(1).max()) if len(windows) else 0.0
    magnitude = np.abs(samples)
    peak = float(magnitude.max()) if len(samples) else 0.0
    clipped = float((magnitude >= _FULL_SCALE).mean()) if len(samples) else 0.0
    return SoundLevels(
        20 * float(np.log10(max(peak, 1e-6))), 10 * float(np.log10(max(power, 1e-12))), clipped
    )


def fault_of_sound(samples: Float, sample_rate: int, text: str) -> str | None:
    """Why a recording cannot be used; None if it can."""
    seconds = len(samples) / sample_rate
    if not MIN_UTTERANCE_S <= seconds <= MAX_UTTERANCE_S:
        kind = "too short" if seconds < MIN_UTTERANCE_S else "too long"
        return f"{kind}: {seconds:.1f} s; {MIN_UTTERANCE_S:g} to {MAX_UTTERANCE_S:g} s are used"
    levels = measure_levels(samples, sample_rate)
    if levels.loudest_dbfs < _SILENT_DBFS:
        return f"silent: its loudest 20 ms are at {levels.loudest_dbfs:.0f} dBFS"
    if levels.clipped > _MAX_CLIPPED:
        return f"clipped: {levels.clipped:.1%} of its samples are at full scale"
    rate = count_letters(text) / seconds
    if not _MIN_LETTERS_PER_S <= rate <= MAX_LETTERS_PER_S:
        return f"does not fit its text: {rate:.1f} letters a second; is the transcript its own?"
    return None


def windows_of_speech(samples: Float, sample_rate: int) -> list[Float]:
    """The windows of a recording by which its speakers are compared, without those that are faint."""
    size = round(_WINDOW_S * sample_rate)
    windows = [samples[first : first + size] for first in range(0, len(samples) - size + 1, size)]
    levels = [float(np.sqrt(np.square(window, dtype=np.float64).mean())) for window in windows]
    return [window for window, level in zip(windows, levels, strict=True) if level > _FAINT * max(levels)]


def fault_of_voices(embeddings: Sequence[Float]) -> str | None:
    """Why a recording has more than one speaker, by the embeddings of its windows; None if it has one.

    The two windows that differ most stand for a speaker each, and the others are of the one that is nearer.
    """
    if len(embeddings) < 2 * _MIN_WINDOWS:
        return None
    units = np.stack([_unit(embedding) for embedding in embeddings])
    similarity = units @ units.T
    first, second = np.unravel_index(similarity.argmin(), similarity.shape)
    is_second = similarity[second] > similarity[first]
    if min(is_second.sum(), (~is_second).sum()) < _MIN_WINDOWS:
        return None
    means = [_unit(units[chosen].mean(0)) for chosen in (is_second, ~is_second)]
    between = float(means[0] @ means[1])
    if between >= _MIN_SIMILARITY_WITHIN:
        return None
    return f"two speakers: similarity {between:.2f} between its parts"


def _unit(vector: Float) -> Float:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def find_outliers(entries: Sequence[UtteranceEntry], similarities: Mapping[str, float]) -> dict[str, str]:
    """Utterances that differ from the others of their speaker, by name, and how.

    similarities: by name, the cosine to the speaker's mean embedding.
    """
    rates = {entry.name: count_letters(entry.text) / entry.seconds for entry in entries}
    of_speaker: dict[str, list[float]] = {}
    for entry in entries:
        of_speaker.setdefault(entry.speaker, []).append(rates[entry.name])
    medians = {speaker: float(np.median(found)) for speaker, found in of_speaker.items()}
    outliers = {}
    for entry in entries:
        median = medians[entry.speaker]
        rate, similarity = rates[entry.name], similarities[entry.name]
        if not median / _MAX_RATE_FACTOR <= rate <= median * _MAX_RATE_FACTOR:
            outliers[entry.name] = f"does not fit its text: {rate:.1f} letters a second, others {median:.1f}"
        elif similarity < _MIN_SIMILARITY:
            outliers[entry.name] = f"another speaker: similarity {similarity:.2f} to the others"
    return outliers
