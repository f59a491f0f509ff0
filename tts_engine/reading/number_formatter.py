"""Number words of the languages in the tables, from Unicode's rule-based number format; and Roman numerals.

The library needs no download.
Source: Unicode CLDR RBNF by unicode-rbnf (MIT).
"""

import re
from importlib import import_module
from itertools import pairwise
from typing import Final

MAX_NUMBER_DIGITS = 15  # a longer number is read digit by digit
_NUMERAL: Final = re.compile(r"(?=[IVXLC])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,4})\Z")
_VALUES: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


class NumberFormatter:
    """Number words of one language.

    Immutable. ``default_rules``: rule set of a number on its own, such as "spellout-numbering".
    """

    def __init__(self, language: str, default_rules: str) -> None:
        library = import_module("unicode_rbnf.engine")  # English does without it
        self._rules = library.RbnfEngine.for_language(language)
        self._format_error: type[Exception] = library.RbnfError
        self._default_rules = default_rules

    def spell_out(self, number: int, rules: str) -> str:
        """Return ``number`` by the rule set ``rules``, or by the default where the language lacks it.

        A number of more than ``MAX_NUMBER_DIGITS`` digits is read digit by digit.
        """
        if number >= 10**MAX_NUMBER_DIGITS:
            return " ".join(self._words(int(digit), self._default_rules) for digit in str(number))
        try:
            return self._words(number, rules)
        except self._format_error:
            return self._words(number, self._default_rules)

    def _words(self, number: int, rules: str) -> str:
        words: str = self._rules.format_number(number, ruleset_names=[rules]).text
        return words


def roman_value(numeral: str) -> int | None:
    """Return the value of a numeral of I, V, X, L and C, also of "IIII"; None if it is not well-formed."""
    if not _NUMERAL.match(numeral):
        return None
    values = [_VALUES[letter] for letter in numeral]
    return sum(-value if value < after else value for value, after in pairwise([*values, 0]))
