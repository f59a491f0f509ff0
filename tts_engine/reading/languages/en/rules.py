"""English: where its clauses end, their reader for voices that take its words, and its record."""

import re
from dataclasses import replace
from typing import Final

from ...clause_boundaries import MAX_CLAUSE_CHARACTERS, AbbreviationKind, BoundaryRules
from ...folding import FOLDED_CHARACTERS, fold
from ...kit.data_files import phrase_words
from ...kit.phrase_places import phrase_places
from ...kit.reading_context import ReadingContext
from ...kit.tokenizer import (
    STABLE_MARGIN_CHARACTERS,
    ScanState,
    any_of,
    read_first,
    read_stable_prefix,
    read_tokens,
)
from ...language import DEFAULT_READING_STYLE, Language, ReadingStyle
from ...normalizer import DraftWord, SpokenWord, TextNormalizer
from ...pronunciation.lexicon import PronunciationFinder
from ...unicode_scripts import CYRILLIC, GREEK, LATIN
from . import vocabulary
from .grammar import ENGLISH_GRAMMAR

_FOLDED_CHARACTERS = {**FOLDED_CHARACTERS, "★": "★", "⭐": "★", "⌀": "⌀", "¶": "¶"}  # "a 4★ hotel"

_SHORT_MONTHS = [name.title() for name in vocabulary.MONTH_NAMES if len(name) < 5 and name != "may"]
_SHORT_WEEKDAYS = [name.title() for name in vocabulary.WEEKDAY_NAMES]
_MONTH_DAY = re.compile(
    rf"(?:^|[\s(])(?:{'|'.join(vocabulary.MONTH_NAMES)})\.?\ +\d{{1,2}}(?:st|nd|rd|th)?\Z", re.IGNORECASE
)
_LONG_WEEKDAY = "|".join(sorted(set(vocabulary.WEEKDAY_NAMES.values())))
# A weekday, or a time of day: "Mon 9am - Fri 5pm".
_RANGE_START = re.compile(rf"(?:^|[\s(])(?:{_LONG_WEEKDAY}|\d{{1,2}}(?::\d\d)? ?[AaPp]\.?[Mm]\.?)\Z")
_UNIT_STOP = re.compile(rf"\d[ -]?(?:{any_of(unit for unit in vocabulary.UNITS if len(unit) > 1)})\Z")
_PHRASE_WORDS = phrase_words(__file__)
ENGLISH_BOUNDARY_RULES = BoundaryRules(
    abbreviations={
        **dict.fromkeys(
            (*vocabulary.AM_PM, "Ph.D", "am", "pm", "AM", "PM", "Am", "Pm"),
            AbbreviationKind.MAY_END_SENTENCE,
        ),
        **dict.fromkeys((*_SHORT_MONTHS, *_SHORT_WEEKDAYS), AbbreviationKind.MID_SENTENCE),
        **{
            book: AbbreviationKind.MAY_END_SENTENCE
            for book, name in vocabulary.BOOKS_OF_THE_BIBLE.items()
            if book != name
        },
        "c": AbbreviationKind.MAY_END_SENTENCE,  # "2 c. flour"
        # "Fed. R. Civ. P."
        **dict.fromkeys(
            ("Sup", "Fed", "Civ", "Crim", "Evid", "Bankr", "Supp"), AbbreviationKind.MID_SENTENCE
        ),
        **dict.fromkeys(("n", "nn"), AbbreviationKind.NUMBERED),  # "n. 3"
        **dict.fromkeys(("b", "d"), AbbreviationKind.NUMBERED),  # "b. 1650"
        "bus": AbbreviationKind.MAY_END_SENTENCE,  # "3 bus. days"
        "pt": AbbreviationKind.MAY_END_SENTENCE,  # "the pt. denies pain"
        # "ofc. hrs.", "frost adv. until"
        **dict.fromkeys(
            (*vocabulary.ABBREVIATIONS_BEFORE, *vocabulary.ABBREVIATIONS_AFTER, "Ofc", "Btw"),
            AbbreviationKind.MAY_END_SENTENCE,
        ),
        **dict.fromkeys(("Lat", "lat", "Long", "long", "lon"), AbbreviationKind.NUMBERED),  # "lat. 40.7°"
        **{word: kind for word, (_, kind) in vocabulary.ABBREVIATIONS.items()},
        **dict.fromkeys(vocabulary.STATES_OF_NEWSPAPERS, AbbreviationKind.MAY_END_SENTENCE),
        **dict.fromkeys(
            ("feat", "Feat", "ft", "nr"), AbbreviationKind.MID_SENTENCE
        ),  # "One Dance ft. Wizkid"
    },
    dotted_kind=AbbreviationKind.MAY_END_SENTENCE,
    weekdays=frozenset(vocabulary.WEEKDAY_NAMES),
    month_day=_MONTH_DAY,
    times_of_day=vocabulary.AM_PM,
    words_after_time=vocabulary.WORDS_AFTER_AM_PM,
    sentence_starters=vocabulary.SENTENCE_STARTERS,
    sentence_words=frozenset({"No", "no"}),
    words_before_answers=vocabulary.WORDS_BEFORE_ANSWERS,
    numbered_nouns=vocabulary.IDENTIFIED_NOUNS | vocabulary.CODE_WORDS,
    name_suffixes=vocabulary.NAME_SUFFIXES,
    street_words=vocabulary.CAPITALIZED_STREET_WORDS,
    range_start=_RANGE_START,
    unit_stop=_UNIT_STOP,
)


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

    def read_phrase(self, view: str) -> tuple[list[DraftWord], int] | None:
        """Read up to a place between two phrases."""
        found = read_first(self._scan(view), phrase_places(view, _PHRASE_WORDS), ENGLISH_GRAMMAR)
        if found is None:
            return None
        scan, stop = found
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


ENGLISH: Final = Language(
    code="en",
    name="English",
    grammar=lambda: ENGLISH_GRAMMAR,
    boundary_rules=lambda: ENGLISH_BOUNDARY_RULES,
    phrases=lambda: _PHRASE_WORDS,
    # Foreign names are read letter by letter as far as English has a sound for them.
    scripts=(LATIN, GREEK, CYRILLIC),
    aliases=("mul", "und"),  # of no single language
)
