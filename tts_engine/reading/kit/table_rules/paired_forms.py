"""Rule of words with two forms: "camarero/a", "assistant(e)", "Mitarbeiter/in"."""

import re

from ..tokenizer import RuleRow, ScanState, any_of
from .language_table import LanguageTable

_VOWELS = "aeiou"
_VOWELS_BEFORE_BRACKETS = "aeo"  # that are replaced; "ami(e)" keeps its own
_ADJECTIVES = ("ый", "ий", "ой")  # whose two last letters change
_MIN_LETTERS = 4  # of a word before a slash: not "y/o", "an/in"
_SHORT_ARTICLES = frozenset("un el lo los il uno um eine ein der".split())  # with an ending all the same


class TablePairedForms:
    """Recogniser of words with two forms of one language."""

    def __init__(self, table: LanguageTable) -> None:
        self._table = table

    def rows(self) -> tuple[RuleRow, ...]:
        """Return the rule of words with two forms."""
        if not self._table.either_word:
            return ()
        endings = any_of(self._table.either_endings)
        word = r"(?=[^\W\d_]{2,20}[/(])(?P<word>[^\W\d_]{2,20})"
        ending = rf"(?:/-?(?P<slashed>{endings})|\((?P<bracketed>{endings})\)(?P<plural>s?))"
        return ((rf"{word}{ending}(?![\w/(@-]|\.\w)", self._read),)

    def _read(self, scan: ScanState, match: re.Match[str]) -> int | None:
        word, ending = match["word"], match["slashed"] or match["bracketed"]
        is_known = len(word) >= _MIN_LETTERS or match["bracketed"] or word.lower() in _SHORT_ARTICLES
        if not is_known or (not word.islower() and not word.istitle()):
            return None
        plural = match["plural"] or ""
        other = _with_ending(word, ending, _VOWELS if match["slashed"] else _VOWELS_BEFORE_BRACKETS)
        words = f"{word}{plural} {self._table.either_word} {other}{plural}"
        scan.emit(words, *match.span())
        scan.context.note_word(word)
        return match.end()


def _with_ending(word: str, ending: str, replaced: str) -> str:
    """Return ``word`` with another ending, in place of its last vowel if it is one of ``replaced``."""
    if len(ending) > 1 and word.endswith(_ADJECTIVES):
        return word[:-2] + ending
    if ending[0] in _VOWELS and ending[1:] == "s" and word[-1] == "s" and word[-2:-1] in _VOWELS:
        return word[:-2] + ending
    replaces = ending[0] in _VOWELS and word[-1] in replaced and len(ending) == 1
    return (word[:-1] if replaces else word) + ending
