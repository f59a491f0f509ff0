"""The recordings with their features, held in memory: mel, Whisper's log-mel, and later speech ids.

Features of a file of recordings are kept beside it; a file that exists is not computed again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from small_voice.teacher import Recording, recordings
from vivavoce.models.cosyvoice.config import SAMPLE_RATE
from vivavoce.models.cosyvoice.front_end.features import SPEECH_RATE, mel_spectrogram, whisper_log_mel

MEL_MAX_HZ = 8000.0  # of version 2
Half = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Utterance:
    """A recording and its mel, (80, F)."""

    recording: Recording
    mel: Half


def load(files: Sequence[Path]) -> list[Utterance]:
    """All recordings of the files with their mel."""
    utterances = []
    for file in files:
        held = list(recordings(file))
        mels = _kept(file, "mel", held, lambda one: mel_spectrogram(one.waveform, MEL_MAX_HZ))
        utterances += [Utterance(one, mel) for one, mel in zip(held, mels, strict=True)]
    return utterances


def load_whisper(files: Sequence[Path]) -> list[Half]:
    """Whisper's features of all recordings, (128, 2 F) each."""
    return [mel for file in files for mel in _kept(file, "whisper", list(recordings(file)), whisper_features)]


def whisper_features(recording: Recording) -> NDArray[np.float32]:
    """(128, 2 F): of the recording at 16 kHz."""
    return whisper_log_mel(soxr.resample(recording.waveform, SAMPLE_RATE, SPEECH_RATE))


def _kept(
    file: Path, name: str, held: Sequence[Recording], feature: Callable[[Recording], NDArray[np.float32]]
) -> list[Half]:
    """A feature of the recordings of a file, (bands, T) each; read from beside the file, or computed."""
    path = file.with_name(f"{file.stem}.{name}.npz")
    if not path.exists():
        features = [feature(one).astype(np.float16) for one in held]
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, features=np.concatenate(features, 1), lengths=[one.shape[1] for one in features])
        partial.rename(path)
    with np.load(path) as kept:
        return [
            np.ascontiguousarray(part)
            for part in np.split(kept["features"], np.cumsum(kept["lengths"])[:-1], axis=1)
        ]
