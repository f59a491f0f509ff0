"""Number words of Chinese and Japanese, by WeText and the tables of the languages.

Source: WeTextProcessing's grammars, by wetext (Apache-2.0).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from ....errors import MissingExtra
from .tables import HanTable

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_CACHED_READINGS = 1024  # a reading takes 0.5 ms, and conversations repeat their numbers
_WITHOUT_CURRENCY_SIGNS = str.maketrans("", "", "$€£¥")
_NO_CENTS = re.compile(r"\.00?(?!\d)(?=元|円|\Z)")
_MONEY = re.compile(r"[$€£¥元円]")


class HanNumbers(ABC):
    """Words of numbers in one language, by WeText. Raises MissingExtra if wetext is not installed."""

    def __init__(self, table: HanTable) -> None:
        self.table = table
        self.by_wetext = _load_wetext(table.code)

    def digit(self, digit: str) -> str:
        """Return the word of a digit in a code."""
        return self.table.digits[int(digit)]

    def words(self, text: str) -> str:
        """Return a numeric expression as WeText reads it; digits that it leaves are read one by one."""
        return self.spell_digits(self.normalized(text))

    def normalized(self, text: str) -> str:
        """Return a numeric expression as WeText reads it."""
        text = text.replace(",", "")
        if _MONEY.search(text):
            text = _NO_CENTS.sub("", text)
        return self.by_wetext(text).translate(_WITHOUT_CURRENCY_SIGNS)

    def spell_digits(self, words: str) -> str:
        """Return ``words`` with each digit in words."""
        return "".join(self.digit(one) if one in "0123456789" else one for one in words)

    def of_formula(self, number: str) -> str:
        """Return the words of a number of a formula, which counts nothing."""
        return self.with_unit(number.replace(" ", ""), "")

    @abstractmethod
    def with_unit(self, number: str, unit: str) -> str:
        """Return the words of a number and of the unit after it."""

    @abstractmethod
    def expression(self, text: str, view: str, start: int, stop: int) -> tuple[str, int]:
        """Return the words of ``text``, written at ``start`` to ``stop`` of a view, and where they end."""

    def month_and_day(self, text: str) -> str:
        """Return the month and day "2月3日" as ``words`` takes it."""
        return text


def _load_wetext(language: str) -> Callable[[str], str]:
    """Return WeText's normalizer of "zh" or "ja". Raises MissingExtra if wetext is not installed."""
    normalize: Callable[[str], str] = _import_extra("wetext").Normalizer(lang=language).normalize
    return lru_cache(_CACHED_READINGS)(normalize)


def _import_extra(name: str) -> Any:
    """Import a module of the [cosyvoice] extra. Raises MissingExtra if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("reading Chinese and Japanese", "cosyvoice") from error
