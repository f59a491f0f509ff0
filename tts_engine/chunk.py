"""The chunks of audio that a stream yields, with their place in the stream and in the text."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

SAMPLE_RATE = 24_000  # Hz, at which positions in a stream are counted


@dataclass(frozen=True, slots=True)
class Phoneme:
    """A sound of a word, and when it is heard."""

    ipa: str  # without stress, such as "eɪ"
    start_s: float  # seconds from the first sample of the stream
    stop_s: float


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text pushed, and when it is heard."""

    text: str  # the characters text_start to text_stop
    start_s: float  # seconds from the first sample of the stream
    stop_s: float
    text_start: int  # characters of the text pushed
    text_stop: int
    phonemes: tuple[Phoneme, ...] = ()  # of a voice whose model has their durations

    def timed(self, heard_at: Callable[[float], float]) -> Self:
        """The word with each of its times replaced by ``heard_at`` of it."""
        phonemes = tuple(
            Phoneme(each.ipa, heard_at(each.start_s), heard_at(each.stop_s)) for each in self.phonemes
        )
        start_s, stop_s = heard_at(self.start_s), heard_at(self.stop_s)
        return replace(self, start_s=start_s, stop_s=stop_s, phonemes=phonemes)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place that the caller named, and when it is heard: with the next word, or at the sentence's end."""

    name: str
    at_s: float  # seconds from the first sample of the stream


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a chunk was made, and at what cost."""

    speech_ids: tuple[int, int] | None  # (start, stop) in the stream; None if the model has none
    mel_frames: tuple[int, int] | None
    wall_s: float  # duration of the step
    device_s: float  # compute time, where it is not the worker thread's
    # Of the stream, known before the chunk could be rendered: those of ``speech_ids`` and their lookahead.
    speech_ids_needed: int | None = None


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A piece of speech that is rendered at once."""

    pcm: bytes  # s16le mono at ``sample_rate``
    index: int  # from 0
    samples: tuple[int, int]  # (start, stop) in the stream, counted at 24 kHz
    text: tuple[int, int]  # (start, stop) in the text pushed, of the segment that the chunk belongs to
    words: tuple[Word, ...]  # the words that begin in this chunk
    provenance: Provenance
    final: bool  # the last chunk of the stream
    marks: tuple[Mark, ...] = ()  # that are heard in this chunk
    sentence_stop: int | None = None  # end of a sentence in the text pushed, if it ends with this chunk
    awaits_text: bool = False  # all text so far is spoken with this chunk, and the text has not ended
    sample_rate: int = SAMPLE_RATE  # Hz; lower if the voice renders at ``Delivery.listener_rate``

    @property
    def seconds(self) -> float:
        """Duration of the chunk."""
        return (self.samples[1] - self.samples[0]) / SAMPLE_RATE
