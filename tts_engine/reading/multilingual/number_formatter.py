"""Number words of many languages, from the rules that Unicode keeps; and Chinese and Japanese by WeText.

Both libraries come with the [cosyvoice] extra, need no download, and are loaded when somebody asks for them.
Source: Unicode CLDR RBNF by unicode-rbnf (MIT); WeTextProcessing's grammars by wetext (Apache-2.0).
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from ...errors import MissingExtra

EXTRA = "cosyvoice"
_CACHED_READINGS = 1024
MAX_NUMBER_DIGITS = 15  # digits of a number that has words; a longer one is read digit by digit


class NumberFormatter:
    """Number words of one language. Immutable once loaded. ``plain``: the rule set of a number alone."""

    def __init__(self, language: str, default_rules: str) -> None:
        """Raises MissingExtra."""
        library = _import_extra("unicode_rbnf.engine")
        self._rules = library.RbnfEngine.for_language(language)
        self._format_error: type[Exception] = library.RbnfError
        self._default_rules = default_rules

    def spell_out(self, number: int, rules: str) -> str:
        """``number`` by the rule set of that name, such as "spellout-cardinal-feminine", if there is one.

        One too long for words is said digit by digit.
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


def load_wetext(language: str) -> Callable[[str], str]:
    """What reads numbers, dates and units of "zh" or "ja" text. Raises MissingExtra.

    Half a millisecond each; the last ones are remembered, because conversations repeat their numbers.
    """
    normalize: Callable[[str], str] = _import_extra("wetext").Normalizer(lang=language).normalize
    return lru_cache(_CACHED_READINGS)(normalize)


def _import_extra(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("reading other languages than English", EXTRA) from error
