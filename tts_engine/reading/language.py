"""Record of a language that is read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

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
