"""Number words of the languages in the tables, from Unicode's rule-based number format.

The library needs no download.
Source: Unicode CLDR RBNF by unicode-rbnf (MIT).
"""

from importlib import import_module

MAX_NUMBER_DIGITS = 15  # a longer number is read digit by digit


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
