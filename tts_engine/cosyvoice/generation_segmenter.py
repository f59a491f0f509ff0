"""Segments for a model that continues one generation over the clauses of a sentence.

Such a model, CosyVoice, starts to speak while the sentence is still being written. The segmenter decides
which clauses share a generation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..reading.clause_boundaries import BoundaryKind
from ..reading.languages.multilingual import LanguageGrammars
from ..reading.normalizer import ClauseNormalizer, NormalizedClause, SpokenWord, TextNormalizer
from ..reading.unicode_scripts import ALL_SCRIPTS, ReadableScripts
from ..segmenter import Segment, Segmenter, best_cut
from ..voice_kit.spoken_words import estimate_seconds


@dataclass(frozen=True, slots=True)
class GenerationPolicy:
    """The length of a generation, in estimated seconds of speech."""

    target_s: float = 15.0  # the clause that reaches it is the generation's last
    max_s: float = 25.0  # no generation is longer; a clause is cut if need be

    def __post_init__(self) -> None:
        if not 0 < self.target_s <= self.max_s:
            raise ValueError(f"{self}: expected 0 < target_s <= max_s")


class GenerationSegmenter(Segmenter):
    """Yields every clause at once.

    A segment that ends within a sentence leaves the model's generation open; one that ends in SENTENCE or
    PARAGRAPH ends it. If the end comes without words, as with a flush after a comma, it is an empty segment.
    """

    def __init__(
        self,
        policy: GenerationPolicy = GenerationPolicy(),
        clauses: ClauseNormalizer | None = None,
        scripts: ReadableScripts = ALL_SCRIPTS,
    ) -> None:
        super().__init__(
            reader=TextNormalizer(clause_normalizer=clauses or LanguageGrammars.load(()).clause_normalizer()),
            scripts=scripts,
        )
        self._generation_policy = policy
        self._open_generation_s: float | None = None  # estimated speech in the open generation, if any is

    def flush(self, ending: BoundaryKind = BoundaryKind.SENTENCE) -> list[Segment]:
        """End the buffered text and, whatever ``ending`` is, the generation; their segments."""
        segments = [segment for piece in self._reader.flush() for segment in self._add(piece)]
        return segments + list(self._end_generation(self._start, BoundaryKind.SENTENCE))

    def _add(self, piece: NormalizedClause) -> Iterator[Segment]:
        self._add_readable(piece.words)
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
        if (self._open_generation_s or 0.0) + more_s > self._generation_policy.max_s:
            yield from self._end_generation(self._start, BoundaryKind.SENTENCE)
        open_s = self._open_generation_s = (self._open_generation_s or 0.0) + more_s
        if _leaves_generation_open(ending) and open_s >= self._generation_policy.target_s:
            ending = BoundaryKind.SENTENCE
        if not _leaves_generation_open(ending):
            self._open_generation_s = None
        yield self._segment(count, stop, ending)

    def _end_generation(self, stop: int, ending: BoundaryKind) -> Iterator[Segment]:
        """An empty segment that ends the open generation, if there is one."""
        if self._open_generation_s is not None:
            yield Segment((), self._start, stop, ending)
            self._start, self._open_generation_s = stop, None


class VoiceConversionSegmenter(Segmenter):
    """Yields one segment without words when the stream's input ends, which starts a voice conversion."""

    def flush(self, ending: BoundaryKind = BoundaryKind.SENTENCE) -> list[Segment]:
        """That segment."""
        return [Segment((), 0, 0, BoundaryKind.SENTENCE)]


def _leaves_generation_open(ending: BoundaryKind) -> bool:
    return ending in (BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS, BoundaryKind.FORCED)


def _count_within(words: list[SpokenWord], max_s: float) -> int:
    """How many of the first words take at most ``max_s`` seconds; at least one."""
    speech_s = 0.0
    for count, word in enumerate(words):
        speech_s += estimate_seconds([word])
        if speech_s > max_s:
            return max(count, 1)
    return len(words)
