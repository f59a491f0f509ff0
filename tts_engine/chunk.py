"""What a stream gives its listener: pieces of speech with their place in the audio and in the text."""

from dataclasses import dataclass

SAMPLE_RATE = 24_000  # Hz, of every AudioChunk


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text pushed, and when it is heard.

    ``start_s``/``stop_s`` are seconds from the first sample of the stream;
    ``text_start``/``text_stop`` are characters of the text pushed, and ``text`` is what stands there.
    """

    text: str
    start_s: float
    stop_s: float
    text_start: int
    text_stop: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a chunk came to be: ranges in the model's own units (None where it has none) and its cost."""

    speech_ids: tuple[int, int] | None
    mel_frames: tuple[int, int] | None
    wall_s: float
    device_s: float


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A piece of speech rendered at once.

    ``pcm``: s16le mono at 24 kHz. ``samples``: (start, stop) in the stream. ``text``: (start, stop) in the
    text pushed, of the segment that this chunk is part of. ``words``: words that *begin* in this chunk.
    ``final``: the last chunk of the stream.
    """

    pcm: bytes
    index: int
    samples: tuple[int, int]
    text: tuple[int, int]
    words: tuple[Word, ...]
    provenance: Provenance
    final: bool

    @property
    def seconds(self) -> float:
        """Length in seconds of audio."""
        return (self.samples[1] - self.samples[0]) / SAMPLE_RATE
