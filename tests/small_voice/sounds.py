"""What a speech id says: the sound in the first half of its 40 ms, the sound in the second, and the pitch.

The teacher knows all three for each mel frame, so it names the ids of its own recordings, and the speech
tokenizer learns to hear the same ones. Only triples that occur are ids, the most frequent first.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from small_voice.teacher import Recording
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID
from vivavoce.models.hibari.phonemizer import ASSETS

CODEBOOK_SIZE = 2187  # 3^7
SOUNDS = 192  # ids of the teacher's alphabet lie below
_PITCH_BOUNDS_HZ = (155.0, 178.0, 200.0, 235.0)  # a fifth of the voiced speech between two
PITCHES = 1 + len(_PITCH_BOUNDS_HZ) + 1  # the first one: unvoiced
FEATURES = FRAMES_PER_SPEECH_ID * SOUNDS + PITCHES


@dataclass(frozen=True, slots=True)
class Codebook:
    """The triple of each id: (N, 3) int64, first sound, second sound, pitch."""

    triples: NDArray[np.int64]

    @classmethod
    def of(cls, recordings: Iterable[Recording]) -> "Codebook":
        """The most frequent triples of recordings; none stands in for those that are missing."""
        counts = Counter(tuple(row) for one in recordings for row in triples_of(one).tolist())
        found = sorted(counts, key=lambda triple: (-counts[triple], triple))[:CODEBOOK_SIZE]
        unused = [(0, 0, 0)] * (CODEBOOK_SIZE - len(found))
        return cls(np.array(found + unused))

    def table(self) -> NDArray[np.float32]:
        """(N, FEATURES): 1 at the first sound, at the second, and at the pitch of each id."""
        table = np.zeros((len(self.triples), FEATURES), np.float32)
        for place, column in enumerate((0, SOUNDS, 2 * SOUNDS)):
            table[np.arange(len(table)), column + self.triples[:, place]] = 1
        return table

    def ids(self, recording: Recording) -> NDArray[np.int64]:
        """(L,): the id of each 40 ms; of a triple without one, the id that is most like it."""
        known: dict[tuple[int, ...], int] = {}
        for index, triple in enumerate(self.triples.tolist()):
            known.setdefault(tuple(triple), index)
        wanted = triples_of(recording)
        return np.array(
            [
                known[tuple(triple)] if tuple(triple) in known else self._most_like(triple)
                for triple in wanted.tolist()
            ]
        )

    def _most_like(self, triple: list[int]) -> int:
        first, second, pitch = self.triples.T
        alike = 1.0 * (first == triple[0]) + (second == triple[1]) - 0.1 * np.abs(pitch - triple[2])
        return int(alike.argmax())


def triples_of(recording: Recording) -> NDArray[np.int64]:
    """(L, 3): the sounds and the pitch of each 40 ms."""
    sounds = audible_sounds(recording.phonemes).reshape(-1, FRAMES_PER_SPEECH_ID)
    f0 = recording.f0.reshape(-1, FRAMES_PER_SPEECH_ID)
    voiced = np.maximum(1, (f0 > 0).sum(1))
    mean = np.exp(np.log(f0, where=f0 > 0, out=np.zeros_like(f0)).sum(1) / voiced)
    pitch = np.where((f0 > 0).any(1), 1 + np.searchsorted(_PITCH_BOUNDS_HZ, mean), 0)
    return np.column_stack([sounds, pitch]).astype(np.int64)


def audible_sounds(phonemes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The phoneme of each frame as it is heard: a stress as the vowel after it."""
    signs: dict[str, int] = json.loads((ASSETS / "vocab.json").read_text("utf-8"))
    sounds = phonemes.astype(np.int64)
    for frame in range(len(sounds) - 2, -1, -1):
        if phonemes[frame] in (signs["ˈ"], signs["ˌ"]):
            sounds[frame] = sounds[frame + 1]
    return sounds
