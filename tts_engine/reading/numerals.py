"""Number words of many languages, from the rules that Unicode keeps; and Chinese and Japanese by WeText.

Both libraries come with the [cosyvoice] extra, need no download, and are loaded when somebody asks for them.
Source: Unicode CLDR RBNF by unicode-rbnf (MIT); WeTextProcessing's grammars by wetext (Apache-2.0).
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from ..errors import MissingExtra

EXTRA = "cosyvoice"
_REMEMBERED = 1024
LONGEST = 15  # digits of a number that has words; a longer one is read digit by digit


class Numerals:
    """Number words of one language. Immutable once loaded. ``plain``: the rule set of a number alone."""

    def __init__(self, language: str, plain: str) -> None:
        """Raises MissingExtra."""
        library = _imported("unicode_rbnf.engine")
        self._rules = library.RbnfEngine.for_language(language)
        self._unsayable: type[Exception] = library.RbnfError
        self._plain = plain

    def say(self, number: int, rules: str) -> str:
        """``number`` by the rule set of that name, such as "spellout-cardinal-feminine", if there is one.

        One too long for words is said digit by digit.
        """
        if number >= 10**LONGEST:
            return " ".join(self._words(int(digit), self._plain) for digit in str(number))
        try:
            return self._words(number, rules)
        except self._unsayable:
            return self._words(number, self._plain)

    def _words(self, number: int, rules: str) -> str:
        words: str = self._rules.format_number(number, ruleset_names=[rules]).text
        return words


def wetext(language: str) -> Callable[[str], str]:
    """What reads numbers, dates and units of "zh" or "ja" text. Raises MissingExtra.

    Half a millisecond each; the last ones are remembered, because conversations repeat their numbers.
    """
    normalize: Callable[[str], str] = _imported("wetext").Normalizer(lang=language).normalize
    return lru_cache(_REMEMBERED)(normalize)


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("reading other languages than English", EXTRA) from error
