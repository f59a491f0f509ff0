"""Reader of English clauses, and ``normalize`` for a whole English text."""

from dataclasses import replace

from ..clause_boundaries import MAX_CLAUSE_CHARACTERS
from ..folding import FOLDED_CHARACTERS, fold
from ..normalizer import SpokenWord, TextNormalizer
from ..pronunciation.finder import PronunciationFinder
from ..reading_context import ReadingContext
from ..reading_style import DEFAULT_READING_STYLE, ReadingStyle
from ..tokenizer import STABLE_MARGIN_CHARACTERS, DraftWord, ScanState, read_stable_prefix, read_tokens
from ..unicode_scripts import CYRILLIC, GREEK, LATIN, ReadableScripts
from .boundary_rules import ENGLISH_BOUNDARY_RULES
from .grammar import ENGLISH_GRAMMAR

# Of English voices: foreign names are read letter by letter as far as English has a sound for them.
ENGLISH_VOICE_SCRIPTS = ReadableScripts(LATIN, GREEK, CYRILLIC)
_FOLDED_CHARACTERS = {**FOLDED_CHARACTERS, "★": "★", "⭐": "★"}  # "a 4★ hotel"


class EnglishClauseNormalizer:
    """``ClauseNormalizer`` of English for voices that take words.

    Numbers and codes become words; words that spelling rules mispronounce are respelled.
    """

    boundary_rules = ENGLISH_BOUNDARY_RULES

    def __init__(
        self, max_characters: int = MAX_CLAUSE_CHARACTERS, style: ReadingStyle = DEFAULT_READING_STYLE
    ) -> None:
        self._style = style
        self._max_characters = self.min_forced_cut = max_characters
        self._context = ReadingContext()
        self.pronunciations = PronunciationFinder()

    def fold(self, text: str) -> tuple[str, list[int]]:
        """Return ``text`` folded to ASCII as far as possible, and the position of each character in it."""
        return fold(text, _FOLDED_CHARACTERS)

    def forced_cut(self, view: str) -> int | None:
        """Return ``max_characters`` if ``view`` has as many."""
        return self._max_characters if len(view) >= self._max_characters else None

    def read(self, view: str) -> list[DraftWord]:
        """Read a whole clause."""
        scan = self._scan(view)
        read_tokens(scan, len(view), ENGLISH_GRAMMAR)
        return scan.words

    def read_stable_prefix(self, view: str) -> tuple[list[DraftWord], int]:
        """Read up to a blank far enough before the end that later text cannot change the words."""
        scan = self._scan(view)
        stop = read_stable_prefix(scan, len(view) - STABLE_MARGIN_CHARACTERS, ENGLISH_GRAMMAR)
        self._context = scan.context
        return scan.words, stop

    def end_line(self) -> None:
        """Note that the next clause begins a new line."""
        self._context.end_line()

    def _scan(self, view: str) -> ScanState:
        return ScanState(view, self._context, style=self._style, pronunciations=self.pronunciations)


def normalize(
    text: str, *, context: str = "", offset: int = 0, style: ReadingStyle = DEFAULT_READING_STYLE
) -> list[SpokenWord]:
    """Return the spoken words of an English text.

    ``context``: the text before it; after "your PIN is", "0417" is read as a PIN. ``offset``: added to the
    ranges of the words.
    """
    normalizer = TextNormalizer(EnglishClauseNormalizer(style=style), context=context)
    return [
        replace(word, start=word.start + offset, stop=word.stop + offset)
        for clause in (*normalizer.push(text), *normalizer.flush())
        for word in clause.words
    ]
