"""Cuts text that is still being written into segments to be spoken, as early as that is safe.

Incremental and pure: no clock, and the same segments however the text was split into pushes. What is read how
is ``normalize.py``, where a cut is safe is ``clauses.py``; here is which of the safe places are taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .reading.clause_boundaries import MAX_CLAUSE_CHARACTERS, BoundaryKind
from .reading.normalizer import NormalizedClause, SpokenWord, TextNormalizer, normalize
from .reading.unicode_scripts import full_stop_after, join_words

__all__ = [
    "BoundaryKind",
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


def best_cut(words: list[SpokenWord], max_count: int) -> int:
    """After the last pause in the second half of the first ``most`` words, else as late as possible.

    Never between words that stand for the same characters, such as those of an amount.
    """
    places = [count for count in range(1, max_count + 1) if words[count - 1].stop <= words[count].start]
    pauses = [count for count in places if count > max_count // 2 and words[count - 1].punctuation]
    return (pauses or places or [max_count])[-1]
