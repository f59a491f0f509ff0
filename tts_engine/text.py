"""Cuts text that is still being written into segments to be spoken, as early as that is safe.

Incremental and pure: no clock, and the same segments however the text was split into pushes. What is read how
is ``normalize.py``, where a cut is safe is ``clauses.py``; here is which of the safe places are taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .reading.clauses import BoundaryKind
from .reading.normalize import (
    MAX_CLAUSE_CHARACTERS,
    ClauseNormalizer,
    NormalizedClause,
    SpokenWord,
    TextNormalizer,
    normalize,
)
from .reading.polyglot import LanguageGrammars
from .reading.scripts import estimate_seconds, full_stop_after, join_words

__all__ = [
    "BoundaryKind",
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
    max_characters: int = MAX_CLAUSE_CHARACTERS

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
    ending: BoundaryKind

    @property
    def spoken(self) -> str:
        """What a model that reads text is given: the words with their punctuation, as they are written."""
        return join_words(self.words)


class Segmenter:
    """Takes text as it is written, gives segments as soon as they are safe to speak."""

    def __init__(self, policy: SegmentPolicy = SegmentPolicy(), reader: TextNormalizer | None = None) -> None:
        self._policy = policy
        self._reader = reader or TextNormalizer(policy.max_characters)
        self._pending_words: list[SpokenWord] = []
        self._start = 0
        self._has_spoken = False

    def push(self, text: str) -> list[Segment]:
        """Take more text, split anywhere; the segments that are complete now."""
        return [segment for piece in self._reader.push(text) for segment in self._add(piece)]

    def flush(self) -> list[Segment]:
        """Speak what is buffered; the next text starts anew, with quick first words."""
        segments = [segment for piece in self._reader.flush() for segment in self._add(piece)]
        if self._pending_words:
            segments += self._emit(self._pending_words[-1].stop, BoundaryKind.CLAUSE)
        self._has_spoken = False
        return segments

    def _add(self, piece: NormalizedClause) -> Iterator[Segment]:
        self._pending_words += piece.words
        needed_words = self._policy.min_words if self._has_spoken else self._policy.first_min_words
        if self._pending_words and (
            piece.ending is not BoundaryKind.CLAUSE or len(self._pending_words) >= needed_words
        ):
            yield from self._emit(piece.stop, piece.ending)

    def _emit(self, stop: int, ending: BoundaryKind) -> Iterator[Segment]:
        while len(self._pending_words) > self._policy.max_words:
            count = best_cut(self._pending_words, self._policy.max_words)
            yield self._segment(count, self._pending_words[count - 1].stop, BoundaryKind.FORCED)
        yield self._segment(len(self._pending_words), stop, ending)

    def _segment(self, count: int, stop: int, ending: BoundaryKind) -> Segment:
        words, self._pending_words = self._pending_words[:count], self._pending_words[count:]
        if ending in (BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH) and not words[-1].punctuation:
            words[-1] = replace(words[-1], punctuation=full_stop_after(words[-1]))
        segment = Segment(tuple(words), self._start, stop, ending)
        self._start = stop
        self._has_spoken = True
        return segment


@dataclass(frozen=True, slots=True)
class GenerationPolicy:
    """How much a model that speaks clause after clause says in one go.

    ``target_s``: after about so many seconds of speech the clause under way is the last; ``max_s``: no
    generation is longer, if a clause has to be cut for it.
    """

    target_s: float = 15.0
    max_s: float = 25.0

    def __post_init__(self) -> None:
        if not 0 < self.target_s <= self.max_s:
            raise ValueError(f"{self}: expected 0 < target_s <= max_s")


class GenerationSegmenter(Segmenter):
    """For a model that goes on speaking while its sentence is still being written.

    Every clause is given at once. A segment that ends in CLAUSE or CUT leaves the sentence, and the model's
    generation, open; one that ends in SENTENCE or PARAGRAPH ends both. Where the end comes without words, as
    at a flush after a comma, it is a segment of no words.
    """

    def __init__(
        self, policy: GenerationPolicy = GenerationPolicy(), clauses: ClauseNormalizer | None = None
    ) -> None:
        super().__init__(
            reader=TextNormalizer(clause_normalizer=clauses or LanguageGrammars.load(()).clause_normalizer())
        )
        self._generation_policy = policy
        self._open_generation_s = 0.0  # of the generation that is open; 0: none is

    def flush(self) -> list[Segment]:
        """Speak what is buffered and end the sentence."""
        segments = [segment for piece in self._reader.flush() for segment in self._add(piece)]
        return segments + list(self._end_generation(self._start, BoundaryKind.SENTENCE))

    def _add(self, piece: NormalizedClause) -> Iterator[Segment]:
        self._pending_words += piece.words
        if self._pending_words:
            yield from self._emit(piece.stop, piece.ending)
        elif not _leaves_generation_open(piece.ending):
            yield from self._end_generation(piece.stop, piece.ending)

    def _emit(self, stop: int, ending: BoundaryKind) -> Iterator[Segment]:
        while (
            len(self._pending_words) > 1
            and estimate_seconds(self._pending_words) > self._generation_policy.max_s
        ):
            max_count = _count_within(self._pending_words, self._generation_policy.max_s)
            count = best_cut(self._pending_words, max_count)
            yield from self._extend_generation(
                count, self._pending_words[count - 1].stop, BoundaryKind.FORCED
            )
        yield from self._extend_generation(len(self._pending_words), stop, ending)

    def _extend_generation(self, count: int, stop: int, ending: BoundaryKind) -> Iterator[Segment]:
        more_s = estimate_seconds(self._pending_words[:count])
        if self._open_generation_s + more_s > self._generation_policy.max_s:
            yield from self._end_generation(self._start, BoundaryKind.SENTENCE)
        self._open_generation_s += more_s
        if _leaves_generation_open(ending) and self._open_generation_s >= self._generation_policy.target_s:
            ending = BoundaryKind.SENTENCE
        if not _leaves_generation_open(ending):
            self._open_generation_s = 0.0
        yield self._segment(count, stop, ending)

    def _end_generation(self, stop: int, ending: BoundaryKind) -> Iterator[Segment]:
        """A segment of no words, if a generation is open."""
        if self._open_generation_s:
            yield Segment((), self._start, stop, ending)
            self._start, self._open_generation_s = stop, 0.0


def _leaves_generation_open(ending: BoundaryKind) -> bool:
    return ending in (BoundaryKind.CLAUSE, BoundaryKind.FORCED)


def _count_within(words: list[SpokenWord], max_s: float) -> int:
    """How many of the first words take at most so long; at least one."""
    said_s = 0.0
    for count, word in enumerate(words):
        said_s += estimate_seconds([word])
        if said_s > max_s:
            return max(count, 1)
    return len(words)


def best_cut(words: list[SpokenWord], max_count: int) -> int:
    """After the last pause in the second half of the first ``most`` words, else as late as possible.

    Never between words that stand for the same characters, such as those of an amount.
    """
    places = [count for count in range(1, max_count + 1) if words[count - 1].stop <= words[count].start]
    pauses = [count for count in places if count > max_count // 2 and words[count - 1].punctuation]
    return (pauses or places or [max_count])[-1]
