"""Cuts text that is still being written into segments to be spoken, as early as that is safe.

Incremental and pure: no clock, and the same segments however the text was split into pushes. What is read how
is ``normalize.py``, where a cut is safe is ``clauses.py``; here is which of the safe places are taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .reading.clauses import Ending
from .reading.normalize import LONGEST_CLAUSE, ClauseReader, Piece, Reader, SpokenWord, normalize
from .reading.polyglot import Languages
from .reading.scripts import full_stop, join, seconds

__all__ = [
    "Ending",
    "GenerationPolicy",
    "GenerationSegmenter",
    "Segment",
    "SegmentPolicy",
    "Segmenter",
    "SpokenWord",
    "normalize",
]


@dataclass(frozen=True, slots=True)
class SegmentPolicy:
    """How long a segment is.

    ``first_min_words``: a clause of so many words is spoken at once when nothing was spoken before it;
    ``min_words``: the same later, when longer segments sound better and nobody waits. Sentences are spoken
    whatever their length. ``max_words``/``max_characters``: a longer clause is cut.
    """

    first_min_words: int = 2
    min_words: int = 6
    max_words: int = 40
    max_characters: int = LONGEST_CLAUSE

    def __post_init__(self) -> None:
        if min(self.first_min_words, self.min_words, self.max_words, self.max_characters) < 1:
            raise ValueError(f"{self}: every number must be at least 1")


@dataclass(frozen=True, slots=True)
class Segment:
    """Words to be spoken together. ``start``/``stop``: characters of the text pushed; segments follow each
    other without a gap, apart from text with nothing to say at the very end."""

    words: tuple[SpokenWord, ...]
    start: int
    stop: int
    ending: Ending

    @property
    def spoken(self) -> str:
        """What a model that reads text is given: the words with their punctuation, as they are written."""
        return join(self.words)


class Segmenter:
    """Takes text as it is written, gives segments as soon as they are safe to speak."""

    def __init__(self, policy: SegmentPolicy = SegmentPolicy(), reader: Reader | None = None) -> None:
        self._policy = policy
        self._reader = reader or Reader(policy.max_characters)
        self._waiting: list[SpokenWord] = []
        self._start = 0
        self._spoken = False

    def push(self, text: str) -> list[Segment]:
        """Take more text, split anywhere; the segments that are complete now."""
        return [segment for piece in self._reader.push(text) for segment in self._add(piece)]

    def flush(self) -> list[Segment]:
        """Speak what is buffered; the next text starts anew, with quick first words."""
        segments = [segment for piece in self._reader.flush() for segment in self._add(piece)]
        if self._waiting:
            segments += self._emit(self._waiting[-1].stop, Ending.CLAUSE)
        self._spoken = False
        return segments

    def _add(self, piece: Piece) -> Iterator[Segment]:
        self._waiting += piece.words
        least = self._policy.min_words if self._spoken else self._policy.first_min_words
        if self._waiting and (piece.ending is not Ending.CLAUSE or len(self._waiting) >= least):
            yield from self._emit(piece.stop, piece.ending)

    def _emit(self, stop: int, ending: Ending) -> Iterator[Segment]:
        while len(self._waiting) > self._policy.max_words:
            count = _best_cut(self._waiting, self._policy.max_words)
            yield self._segment(count, self._waiting[count - 1].stop, Ending.CUT)
        yield self._segment(len(self._waiting), stop, ending)

    def _segment(self, count: int, stop: int, ending: Ending) -> Segment:
        words, self._waiting = self._waiting[:count], self._waiting[count:]
        if ending in (Ending.SENTENCE, Ending.PARAGRAPH) and not words[-1].punctuation:
            words[-1] = replace(words[-1], punctuation=full_stop(words[-1]))
        segment = Segment(tuple(words), self._start, stop, ending)
        self._start = stop
        self._spoken = True
        return segment


@dataclass(frozen=True, slots=True)
class GenerationPolicy:
    """How much a model that speaks clause after clause says in one go.

    ``enough_s``: after about so many seconds of speech the clause under way is the last; ``most_s``: no
    generation is longer, if a clause has to be cut for it.
    """

    enough_s: float = 15.0
    most_s: float = 25.0

    def __post_init__(self) -> None:
        if not 0 < self.enough_s <= self.most_s:
            raise ValueError(f"{self}: expected 0 < enough_s <= most_s")


class GenerationSegmenter(Segmenter):
    """For a model that goes on speaking while its sentence is still being written.

    Every clause is given at once. A segment that ends in CLAUSE or CUT leaves the sentence, and the model's
    generation, open; one that ends in SENTENCE or PARAGRAPH ends both. Where the end comes without words, as
    at a flush after a comma, it is a segment of no words.
    """

    def __init__(
        self, policy: GenerationPolicy = GenerationPolicy(), clauses: ClauseReader | None = None
    ) -> None:
        super().__init__(reader=Reader(clauses=clauses or Languages.load(()).clauses()))
        self._generation = policy
        self._said_s = 0.0  # of the generation that is open; 0: none is

    def flush(self) -> list[Segment]:
        """Speak what is buffered and end the sentence."""
        segments = [segment for piece in self._reader.flush() for segment in self._add(piece)]
        return segments + list(self._end(self._start, Ending.SENTENCE))

    def _add(self, piece: Piece) -> Iterator[Segment]:
        self._waiting += piece.words
        if self._waiting:
            yield from self._emit(piece.stop, piece.ending)
        elif not _is_open(piece.ending):
            yield from self._end(piece.stop, piece.ending)

    def _emit(self, stop: int, ending: Ending) -> Iterator[Segment]:
        while len(self._waiting) > 1 and seconds(self._waiting) > self._generation.most_s:
            most = _count_within(self._waiting, self._generation.most_s)
            count = _best_cut(self._waiting, most)
            yield from self._grow(count, self._waiting[count - 1].stop, Ending.CUT)
        yield from self._grow(len(self._waiting), stop, ending)

    def _grow(self, count: int, stop: int, ending: Ending) -> Iterator[Segment]:
        more_s = seconds(self._waiting[:count])
        if self._said_s + more_s > self._generation.most_s:
            yield from self._end(self._start, Ending.SENTENCE)
        self._said_s += more_s
        if _is_open(ending) and self._said_s >= self._generation.enough_s:
            ending = Ending.SENTENCE
        if not _is_open(ending):
            self._said_s = 0.0
        yield self._segment(count, stop, ending)

    def _end(self, stop: int, ending: Ending) -> Iterator[Segment]:
        """A segment of no words, if a generation is open."""
        if self._said_s:
            yield Segment((), self._start, stop, ending)
            self._start, self._said_s = stop, 0.0


def _is_open(ending: Ending) -> bool:
    return ending in (Ending.CLAUSE, Ending.CUT)


def _count_within(words: list[SpokenWord], most_s: float) -> int:
    """How many of the first words take at most so long; at least one."""
    said_s = 0.0
    for count, word in enumerate(words):
        said_s += seconds([word])
        if said_s > most_s:
            return max(count, 1)
    return len(words)


def _best_cut(words: list[SpokenWord], most: int) -> int:
    """After the last pause in the second half of the first ``most`` words, else as late as possible.

    Never between words that stand for the same characters, such as those of an amount.
    """
    places = [count for count in range(1, most + 1) if words[count - 1].stop <= words[count].start]
    pauses = [count for count in places if count > most // 2 and words[count - 1].punctuation]
    return (pauses or places or [most])[-1]
