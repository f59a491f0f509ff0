"""The teacher: what the packaged voice says, with what it knows of each sound.

A recording of a sentence is 24 kHz speech with a little silence at both ends, whole speech ids long (960
samples), and for each mel frame (20 ms) its phoneme, its pitch, and the index of the word that is spoken.
Recordings are kept in files of some hundred; a file that exists is not made again, so that a run that ended
goes on.
"""

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from small_voice import world
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID, SAMPLE_RATE
from vivavoce.models.cosyvoice.front_end.features import MEL_HOP
from vivavoce.models.hibari import voice as hibari
from vivavoce.models.hibari.harmonic_vocoder import HOP as TEACHER_HOP
from vivavoce.models.hibari.harmonic_vocoder import NOISE_ROWS
from vivavoce.models.hibari.phonemizer import PhonemeLine
from vivavoce.models.phonemes.english_ipa import SpelledWord
from vivavoce.tts_engine.reading.normalizer import join_words

ID_SAMPLES = FRAMES_PER_SPEECH_ID * MEL_HOP
_LEAD_SAMPLES, _TAIL_SAMPLES = SAMPLE_RATE * 60 // 1000, SAMPLE_RATE * 140 // 1000
_SHARD = 250  # recordings
_VOICED_HZ = 40.0


@dataclass(frozen=True, slots=True)
class Recording:
    """A sentence and its speech. F mel frames, N = 480 F samples."""

    text: str  # its words, as the text tokenizer gets them
    samples: NDArray[np.int16]  # (N,)
    phonemes: NDArray[np.uint8]  # (F,) ids of the teacher's alphabet, 0 at the ends
    f0: NDArray[np.float32]  # (F,) Hz, 0 where unvoiced
    turns: NDArray[np.float64]  # (F,) turns of the pulse train up to the middle of each frame
    words: NDArray[np.int16]  # (F,) index of the word, -1 before the first

    @property
    def waveform(self) -> NDArray[np.float32]:
        """The samples within +-1."""
        return self.samples.astype(np.float32) / np.float32(32768)


class Teacher:
    """The packaged voice on one thread."""

    def __init__(self) -> None:
        (self._voice,) = hibari.HibariVoice.load()

    def speak(self, sentence: str) -> Recording:
        """Record a sentence of the world."""
        words = world.spoken_words(sentence)
        spelled = [SpelledWord(word.text, word.punctuation, word.phonemes) for word in words]
        (line,) = self._voice.phonemizer.phonemize(spelled)
        # Each phoneme as a word of its own, so that the encoder tells its time.
        by_phoneme = PhonemeLine(line.ids, tuple((at, at + 1) for at in range(len(line.ids))))
        encoded = self._voice.encode(by_phoneme)
        state = self._voice.init_state(encoded, zlib.crc32(sentence.encode()) % NOISE_ROWS)
        pieces = []
        while not hibari.is_finished(encoded, state):
            piece, state = self._voice.step(encoded, state, 512)
            pieces.append(piece)
        speech = np.concatenate(pieces)
        lead = state.trimmed_lead_samples or 0
        return _aligned(join_words(words), speech, lead, line, encoded)


def _aligned(
    text: str, speech: NDArray[np.float32], lead: int, line: PhonemeLine, encoded: hibari.EncodedLine
) -> Recording:
    """Pad the speech, and tell for the middle of each mel frame what the teacher knows of it."""
    length = -(-(_LEAD_SAMPLES + len(speech) + _TAIL_SAMPLES) // ID_SAMPLES) * ID_SAMPLES
    samples = np.zeros(length, np.int16)
    samples[_LEAD_SAMPLES : _LEAD_SAMPLES + len(speech)] = np.rint(np.clip(speech, -1, 1) * 32767)
    middles = (np.arange(length // MEL_HOP) + 0.5) * MEL_HOP - _LEAD_SAMPLES + lead
    at = np.floor(middles / TEACHER_HOP).astype(int)
    inside = (middles >= lead) & (middles < lead + len(speech)) & (at < len(encoded.f0))
    starts = np.array([start for start, _ in encoded.words])
    phoneme = np.clip(np.searchsorted(starts, at, "right") - 1, 0, len(starts) - 1)
    word_starts = np.array([starts[first] for first, _ in line.words])
    f0 = encoded.f0[np.clip(at, 0, len(encoded.f0) - 1)]
    return Recording(
        text,
        samples,
        np.where(inside, line.ids[phoneme], 0).astype(np.uint8),
        np.where(inside & (f0 > _VOICED_HZ), f0, 0).astype(np.float32),
        _turns(encoded, np.floor(middles).astype(int)),
        (np.searchsorted(word_starts, at, "right") - 1).astype(np.int16),
    )


def _turns(encoded: hibari.EncodedLine, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Turns of the pulse train up to samples of the line, as ``harmonic_vocoder`` counts them."""
    f0 = np.maximum(encoded.f0, _VOICED_HZ)
    centres = (np.arange(len(f0)) + 0.5) * TEACHER_HOP
    samples = np.arange(encoded.onset * TEACHER_HOP, len(f0) * TEACHER_HOP) + 0.5
    turns = np.cumsum(np.interp(samples, centres, f0)) / SAMPLE_RATE
    return np.asarray(turns[np.clip(places - encoded.onset * TEACHER_HOP, 0, len(turns) - 1)])


def record(folder: Path, sentences: int, seed: int, processes: int = 1) -> list[Path]:
    """Record the first sentences of the world into files of the folder, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = list(islice(world.sentences(seed), sentences))
    shards = [texts[first : first + _SHARD] for first in range(0, len(texts), _SHARD)]
    files = [folder / f"{index:03}.npz" for index in range(len(shards))]
    missing = [(file, shard) for file, shard in zip(files, shards, strict=True) if not file.exists()]
    with ProcessPoolExecutor(processes) as pool:
        for done in pool.map(_record_shard, missing):
            print("recorded", done, flush=True)
    return files


def _record_shard(work: tuple[Path, Sequence[str]]) -> Path:
    file, texts = work
    teacher = Teacher()
    recordings = [teacher.speak(text) for text in texts]
    arrays: dict[str, Any] = {
        "frames": np.array([len(recording.f0) for recording in recordings]),
        "texts": np.array([recording.text for recording in recordings]),
        **{
            name: np.concatenate([getattr(recording, name) for recording in recordings])
            for name in ("samples", "phonemes", "f0", "turns", "words")
        },
    }
    partial = file.with_suffix(".partial.npz")
    np.savez(partial, **arrays)
    partial.rename(file)
    return file


def recordings(file: Path) -> Iterator[Recording]:
    """The recordings of a file."""
    with np.load(file) as shard:
        arrays = {name: shard[name] for name in shard.files}
    stops = np.cumsum(arrays["frames"])
    for text, frames, stop in zip(arrays["texts"], arrays["frames"], stops, strict=True):
        span = slice(stop - frames, stop)
        yield Recording(
            str(text),
            arrays["samples"][(stop - frames) * MEL_HOP : stop * MEL_HOP],
            arrays["phonemes"][span],
            arrays["f0"][span],
            arrays["turns"][span],
            arrays["words"][span],
        )
