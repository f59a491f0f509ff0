"""Record of a language that is read; and choices between usual readings, of English-speaking countries.

Source: Unicode CLDR 44 for the order of day and month; Ofcom's and ACMA's announcements for "oh".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from .clause_boundaries import BoundaryRules
from .phrase_cuts import PhraseWords
from .unicode_scripts import LATIN


class LanguageGrammar(Protocol):
    """The rules by which a language is read: a ``Grammar`` of ``tokenizer.py``."""

    def compile(self) -> None:
        """Compile all patterns, so that no later text waits for them."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language that is read.

    Attributes:
        code: BCP 47, without a region: "de".
        name: in English.
        grammar: makes its grammar. Raises MissingExtra if it needs a library that is not installed.
        boundary_rules: where its clauses end, besides the marks of punctuation.
        phrases: where a sentence without punctuation is cut.
        scripts: those that its voices read, as members of a character class.
        is_latin: whether it is written in Latin letters. Those in a text of another language are English.
        aliases: other codes that are read alike.
    """

    code: str
    name: str
    grammar: Callable[[], LanguageGrammar]
    boundary_rules: Callable[[], BoundaryRules] = BoundaryRules
    phrases: Callable[[], PhraseWords] = PhraseWords
    scripts: tuple[str, ...] = (LATIN,)
    is_latin: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadingStyle:
    """How English numbers are read where more than one reading is usual."""

    day_first: bool = False  # "3/4" is the third of April, not March fourth
    zero: Literal["zero", "oh"] = "zero"  # word of the digit 0 in codes and phone numbers


DEFAULT_READING_STYLE = ReadingStyle()
_DAY_FIRST = ReadingStyle(day_first=True)
_DAY_FIRST_OH = ReadingStyle(day_first=True, zero="oh")
READING_STYLES: Mapping[str, ReadingStyle] = {
    "en-US": DEFAULT_READING_STYLE,
    "en-CA": DEFAULT_READING_STYLE,
    "en-GB": _DAY_FIRST_OH,
    "en-IE": _DAY_FIRST_OH,
    "en-AU": _DAY_FIRST_OH,
    "en-NZ": _DAY_FIRST_OH,
    "en-ZA": _DAY_FIRST_OH,
    "en-IN": _DAY_FIRST,
}  # by BCP 47 tag


def style_of(language: str, default: ReadingStyle) -> ReadingStyle:
    """The style of a BCP 47 tag such as "en-GB", in any case; ``default`` for others."""
    known = {tag.lower(): style for tag, style in READING_STYLES.items()}
    return known.get(language.lower(), default)
