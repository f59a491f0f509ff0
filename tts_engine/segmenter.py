"""Splits text that is still being written into segments to be rendered, as early as a cut is safe.

Incremental and pure: no clock, and the same segments for any split of the text into pushes. ``reading``
normalizes the text and finds the boundaries at which a cut is safe; the segmenter chooses among these.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from .reading.clause_boundaries import MAX_CLAUSE_CHARACTERS, BoundaryKind
from .reading.language import DEFAULT_READING_STYLE, ReadingStyle
from .reading.languages.default import DEFAULT_VOICE_SCRIPTS, WordClauseNormalizer
from .reading.normalizer import NormalizedClause, SpokenWord, TextNormalizer, full_stop_after, join_words
from .reading.pauses import pause_share
from .reading.pronunciation.lexicon import Lexicon, Pronunciation
from .reading.prosody import NEUTRAL_PROSODY, Prosody
from .reading.unicode_scripts import ReadableScripts
from .stream_request import speed_in_range

__all__ = [
    "BoundaryKind",
    "Segment",
    "SegmentPolicy",
    "Segmenter",
    "SpokenWord",
]


@dataclass(frozen=True, slots=True)
class SegmentPolicy:
    """The length of a segment. A sentence is a segment whatever its length."""

    first_min_words: int = (
        2  # a clause of so many words is the first segment; short, because a listener waits
    )
    min_words: int = 6  # of a clause later on, when longer segments sound better
    max_words: int = 40  # a longer clause is cut
    max_characters: int = MAX_CLAUSE_CHARACTERS  # a longer clause is cut

    def __post_init__(self) -> None:
        if min(self.first_min_words, self.min_words, self.max_words, self.max_characters) < 1:
            raise ValueError(f"{self}: every number must be at least 1")


@dataclass(frozen=True, slots=True)
class Segment:
    """Words that are rendered together.

    start, stop: characters of the text pushed. Segments cover the text without gaps, apart from a rest at the
    very end that has no words.
    """

    words: tuple[SpokenWord, ...]
    start: int
    stop: int
    ending: BoundaryKind
    prosody: Prosody = NEUTRAL_PROSODY  # besides the stream's
    language: str | None = None  # BCP 47, of its words; None: the stream's
    pause_share: float = 1.0  # of the usual pause, after it
    following: tuple[str, ...] = ()  # the next words, as written, where a sentence is cut between phrases

    @property
    def spoken(self) -> str:
        """The words with their punctuation, for a model that reads text."""
        return join_words(self.words)

    def speed_in(self, stream_speed: float) -> float:
        """The speed of the segment in a stream of a speed: 0.5 to 2.0, as of streams."""
        return speed_in_range(stream_speed * self.prosody.speed)


class Segmenter:
    """Takes text in any split and yields segments as soon as a cut is safe.

    Args:
        reader: normalizes the text; None for English.
        style: of English numbers.
        pause_seed: of pauses that vary as speech varies them; None for the usual ones.
        scripts: those that the voice can read. Words in others are left out and counted.

    Attributes:
        has_words: whether the text so far has words, readable or not.
        unread_characters: letters so far that the voice cannot read.
        prosody: of the segments that follow.
        language: of the segments that follow; None: that of the stream.
    """

    def __init__(
        self,
        policy: SegmentPolicy = SegmentPolicy(),
        reader: TextNormalizer | None = None,
        scripts: ReadableScripts = DEFAULT_VOICE_SCRIPTS,
        style: ReadingStyle = DEFAULT_READING_STYLE,
        pause_seed: int | None = None,
    ) -> None:
        self.has_words = False
        self.unread_characters = 0
        self.prosody = NEUTRAL_PROSODY
        self.language: str | None = None
        self._scripts = scripts
        self._pause_seed = pause_seed
        self._policy = policy
        self._reader = reader or TextNormalizer(
            WordClauseNormalizer(policy.max_characters, style), policy.max_characters
        )
        self._pending_words: list[SpokenWord] = []
        self._start = 0  # of the next segment, in characters of the text pushed
        self._has_spoken = False  # since the last flush

    @property
    def held_characters(self) -> int:
        """Characters of the text so far that are not read, because more text may change how they are."""
        return self._reader.held_characters

    def use_lexicons(self, lexicons: Sequence[Lexicon]) -> None:
        """Say words as the lexicons have them, from the next text on; the first that has a word decides."""
        self._reader.use_lexicons(lexicons)

    def follow(self, before: "Segmenter") -> None:
        """Go on after the text of another segmenter, which was flushed: its positions, counts and prosody."""
        self._start, self.prosody = before._start, before.prosody
        self.has_words, self.unread_characters = before.has_words, before.unread_characters
        self._reader.begin_at(before._reader.pushed_characters)

    def push(self, text: str, pronunciation: Pronunciation | None = None) -> list[Segment]:
        """Add text, split anywhere; the segments that it completes. pronunciation: of the whole text."""
        return [segment for piece in self._reader.push(text, pronunciation) for segment in self._add(piece)]

    def skip(self, characters: int) -> None:
        """Count characters of the text that are not spoken."""
        self._reader.skip(characters)

    def flush(self, ending: BoundaryKind = BoundaryKind.SENTENCE) -> list[Segment]:
        """End the buffered text; its segments. The next text begins with a short first segment again.

        ending: of text without a boundary at its end; FORCED lets the sentence go on.
        """
        segments = [segment for piece in self._reader.flush(ending) for segment in self._add(piece)]
        if self._pending_words:
            segments += self._emit(self._pending_words[-1].stop, BoundaryKind.CLAUSE)
        self._has_spoken = False
        return segments

    def _add(self, piece: NormalizedClause) -> Iterator[Segment]:
        self._add_readable(piece.words)
        needed_words = self._policy.min_words if self._has_spoken else self._policy.first_min_words
        if self._pending_words and (
            piece.ending is not BoundaryKind.CLAUSE or len(self._pending_words) >= needed_words
        ):
            for segment in self._emit(piece.stop, piece.ending):
                is_cut = piece.following and segment.stop == piece.stop
                yield replace(segment, following=piece.following) if is_cut else segment

    def _add_readable(self, words: Iterable[SpokenWord]) -> None:
        """Queue the words that the voice can read. The punctuation of another follows the word before it."""
        for word in words:
            if word.is_mark:
                self._pending_words.append(word)
                continue
            self.has_words = True
            if word.phonemes is None:
                self.unread_characters += self._scripts.count_unread(word.text)
            if word.phonemes is not None or self._scripts.can_read(word.text):
                self._pending_words.append(word)
            elif self._pending_words and not self._pending_words[-1].punctuation:
                self._pending_words[-1] = replace(self._pending_words[-1], punctuation=word.punctuation)

    def _emit(self, stop: int, ending: BoundaryKind) -> Iterator[Segment]:
        while len(self._pending_words) > self._policy.max_words:
            count = best_cut(self._pending_words, self._policy.max_words)
            yield self._segment(count, self._pending_words[count - 1].stop, BoundaryKind.FORCED)
        yield self._segment(len(self._pending_words), stop, ending)

    def _segment(self, count: int, stop: int, ending: BoundaryKind) -> Segment:
        words, self._pending_words = self._pending_words[:count], self._pending_words[count:]
        if ending in (BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH):
            _end_sentence(words)
        share = 1.0 if self._pause_seed is None else pause_share(words, ending, self._pause_seed)
        segment = Segment(tuple(words), self._start, stop, ending, self.prosody, self.language, share)
        self._start = stop
        self._has_spoken = True
        return segment


def _end_sentence(words: list[SpokenWord]) -> None:
    """Put a full stop at the end unless a mark of punctuation follows the last word."""
    last_word = next((word for word in reversed(words) if not word.is_mark), words[-1])
    if not (last_word.punctuation or words[-1].punctuation):
        words[-1] = replace(words[-1], punctuation=full_stop_after(last_word))


def best_cut(words: list[SpokenWord], max_count: int) -> int:
    """The number of words before the best cut among the first ``max_count`` words.

    That is the last pause in their second half, else the latest place. Words that are read from the same
    characters, such as an amount, stay together unless all ``max_count`` words are.
    """
    places = [count for count in range(1, max_count + 1) if words[count - 1].stop <= words[count].start]
    pauses = [count for count in places if count > max_count // 2 and words[count - 1].punctuation]
    return (pauses or places or [max_count])[-1]
