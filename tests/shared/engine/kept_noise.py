"""A voice whose lines are noise, and what a server keeps of it in memory and on file."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vivavoce.tts_engine.voice_kit.kept_speech import KeptSpeech
from vivavoce.tts_engine.voice_kit.speech_files import Arrays, LineFormat, SpeechFiles

SAMPLES = 2_000  # of a piece


@dataclass(frozen=True)
class NoisePiece:
    number: int
    samples: np.ndarray
    last: bool

    @property
    def nbytes(self) -> int:
        return self.samples.nbytes


def _encode(pieces: Sequence[NoisePiece]) -> tuple[object, Arrays]:
    return [(piece.number, piece.last) for piece in pieces], [piece.samples for piece in pieces]


def _decode(about: Any, arrays: Arrays) -> list[NoisePiece]:
    return [NoisePiece(number, samples, last) for (number, last), samples in zip(about, arrays, strict=True)]


class NoiseVoice:
    """Renders a line of noise in two pieces, and counts lines."""

    def __init__(self) -> None:
        self.rendered = 0

    def line(self, kept: KeptSpeech[NoisePiece], key: str | None) -> bytes:
        """The samples of a line, kept or rendered."""
        line = kept.line(key, lambda: self.render(str(key)))
        pieces = [line.piece(index)[0] for index in range(2)]
        return b"".join(piece.samples.tobytes() for piece in pieces if piece)

    def render(self, key: str) -> Iterator[NoisePiece]:
        """The pieces of a line."""
        self.rendered += 1
        noise = np.random.default_rng(list(key.encode()))
        for number in range(2):
            yield NoisePiece(number, noise.normal(size=SAMPLES).astype(np.float32), last=number == 1)


@contextmanager
def keeping(
    folder: Path, *, identity: str = "a", max_bytes: int = 10_000_000, memory: int = 10_000_000
) -> Iterator[KeptSpeech[NoisePiece]]:
    """What a server keeps; all is written at the end of the block."""
    kept = KeptSpeech(memory, SpeechFiles(folder, max_bytes, LineFormat(identity, _encode, _decode)))
    yield kept
    kept.close()
    wait_until_written()


def wait_until_written() -> None:
    """Wait for the threads that write what was kept by those that are closed."""
    for thread in threading.enumerate():
        if thread.name.startswith("vivavoce-speech-files"):
            thread.join()
