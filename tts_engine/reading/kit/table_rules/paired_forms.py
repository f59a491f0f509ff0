"""Rule of words with two forms: "camarero/a", "assistant(e)", "Mitarbeiter/in"."""

import re

from ..tokenizer import RuleRow, ScanState, any_of
from .language_table import LanguageTable

_VOWELS = "aeiou"  # of endings in Latin letters
_VOWELS_BEFORE_BRACKETS = "aeo"  # that are replaced; "ami(e)" keeps its own
_MIN_LETTERS = 4  # of a word before a slash: not "y/o", "an/in"


class TablePairedForms:
    """Recogniser of words with two forms of one language."""

    def __init__(self, table: LanguageTable) -> None:
        self._table = table
        self._replaced = tuple(table.either_replaced)

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
        is_known = (
            len(word) >= _MIN_LETTERS or match["bracketed"] or word.lower() in self._table.either_short_words
        )
        if not is_known or (not word.islower() and not word.istitle()):
            return None
        plural = match["plural"] or ""
        other = self._with_ending(word, ending, _VOWELS if match["slashed"] else _VOWELS_BEFORE_BRACKETS)
        words = f"{word}{plural} {self._table.either_word} {other}{plural}"
        scan.emit(words, *match.span())
        scan.context.note_word(word)
        return match.end()

    def _with_ending(self, word: str, ending: str, vowels: str) -> str:
        """Return ``word`` with another ending, in place of its last vowel if it is one of ``vowels``."""
        replaced = next((each for each in self._replaced if word.endswith(each)), "")
        if len(ending) > 1 and replaced:
            return word.removesuffix(replaced) + ending
        if ending[0] in _VOWELS and ending[1:] == "s" and word[-1] == "s" and word[-2:-1] in _VOWELS:
            return word[:-2] + ending
        replaces_vowel = ending[0] in _VOWELS and word[-1] in vowels and len(ending) == 1
        return (word[:-1] if replaces_vowel else word) + ending
