"""Case and gender of a number, by the words around it, in a language that a table describes."""

import re
from itertools import chain

from ..tokenizer import ScanState
from .language_table import LanguageTable
from .numbers import TableNumberWords

_MIN_NOUN_LETTERS = 3  # of a noun whose ending tells its gender
_FEW = 1  # plural category of 2, 3 and 4


class TableNumberContext:
    """Tells the case and the gender of numbers of one language."""

    nouns_are_capitalized = False

    def __init__(self, table: LanguageTable, numbers: TableNumberWords) -> None:
        self._table, self._numbers = table, numbers

    def case(self, scan: ScanState, match: re.Match[str]) -> str:
        """Return the case of the number that ``match`` begins with, by the word before it."""
        case = self._table.case_after(scan.context.previous_word, scan.view[: match.start()])
        if not case.startswith("one "):
            return case
        is_one = self._numbers.plural(self._numbers.value(match["whole"])) == 0
        return case.removeprefix("one ") if is_one else "distributive"  # "по тысяча двести"

    def case_by_noun(self, scan: ScanState, match: re.Match[str], number: int) -> str:
        """Return the case of a number before a noun, by the ending of the noun and the word before both."""
        table, noun = self._table, scan.next_word(match.end()).lower()
        if number != 1 and len(noun) >= _MIN_NOUN_LETTERS and noun not in table.function_words:
            is_few = self._numbers.plural(number) == _FEW
            endings = chain(table.few_case_by_ending.items() if is_few else (), table.case_by_ending.items())
            case = next((case for ending, case in endings if noun.endswith(ending)), "")
            if case:
                return case
        return self.case(scan, match)

    def gender_of_noun_before(self, scan: ScanState, at: int) -> str | None:
        """Return the gender of a number whose noun was counted before: "2 robes en 40 et 1 en 42".

        ``at``: end of the number. "" is the number on its own, and None a number with a noun of its own.
        """
        table, noun = self._table, scan.next_word(at).lower()
        if scan.context.previous_word in table.numbered_nouns:
            return ""  # "Absatz 1 Satz 2"
        is_joined = scan.context.previous_word in table.counted_joints and noun in table.function_words
        if not is_joined and scan.context.previous_word not in table.pronoun_cues:
            return None
        return "f" if scan.context.counted_gender == "f" else ""

    def gender_of_counted(self, scan: ScanState, at: int, number: int, case: str = "") -> str:
        """Return the gender of the noun at ``at``, and note it for a number that stands for the noun."""
        gender = self.gender_of_noun(scan, at, number, case)
        scan.context.counted_gender = gender or scan.context.counted_gender
        return gender

    def gender_of_noun(self, scan: ScanState, at: int, number: int, case: str = "") -> str:
        """Return the gender of the noun at ``at``, or "" for a word that is no noun."""
        table, noun = self._table, scan.next_word(at)
        lower = noun.lower()
        if not noun or lower in table.function_words:
            return ""
        if lower in table.genders:
            return table.genders[lower]
        if lower in table.plural_adjectives:
            return self.gender_of_noun(scan, scan.view.index(noun, at) + len(noun), number, case)
        if len(noun) < _MIN_NOUN_LETTERS:
            return ""
        category = self._numbers.plural(number)
        is_few = category == _FEW and table.few_gender_by_ending
        endings = table.few_gender_by_ending if is_few else table.gender_by_ending
        if category == 0 and case.startswith("genitive"):
            endings = table.genitive_gender_by_ending or endings
        known = next((gender for ending, gender in endings.items() if lower.endswith(ending)), "")
        if known or (self.nouns_are_capitalized and not noun[0].isupper()):
            return known
        return table.noun_gender
