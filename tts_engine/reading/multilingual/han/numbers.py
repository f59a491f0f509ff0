"""Number words of Chinese and Japanese, by WeText and the tables of the languages.

Source: WeTextProcessing's grammars, by wetext (Apache-2.0).
"""

import re
from collections.abc import Callable
from functools import lru_cache

from ...tokenizer import any_of
from ..number_formatter import import_extra
from .japanese_numbers import numerals_to_kana
from .tables import HanTable

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_CACHED_READINGS = 1024  # a reading takes 0.5 ms, and conversations repeat their numbers
_WITHOUT_CURRENCY_SIGNS = str.maketrans("", "", "$€£¥")
_MIDNIGHT = re.compile(r"\A0:(\d\d)(?!\d)")  # a score to WeText
_NO_CENTS = re.compile(r"\.00?(?!\d)(?=元|円|\Z)")
_MONEY = re.compile(r"[$€£¥元円]")
_TWO = re.compile(r"(?<![\d.,:/$€£¥])2(?![\d.,:/%‰])")  # a whole number
_END_OF_RANGE = re.compile(r"[~–—-]\d+")  # "-3" in "2-3天"
_MAX_MEASURE_CHARACTERS = 6


class HanNumbers:
    """Words of numbers in one language. Raises MissingExtra if wetext is not installed."""

    def __init__(self, table: HanTable) -> None:
        self._table = table
        self._wetext = _load_wetext(table.code)
        self._measure = re.compile(any_of(table.measures)) if table.measures else None
        self._no_measure = re.compile(any_of(table.no_measures)) if table.no_measures else None

    def digit(self, digit: str) -> str:
        """Return the word of a digit in a code."""
        return self._table.digits[int(digit)]

    def words(self, text: str) -> str:
        """Return a numeric expression as WeText reads it; digits that it leaves are read one by one."""
        text = text.replace(",", "")
        if _MONEY.search(text):
            text = _NO_CENTS.sub("", text)
        if not self._table.numbers_in_kana:
            text = _MIDNIGHT.sub(_say_midnight, text)
        words = self._wetext(text).translate(_WITHOUT_CURRENCY_SIGNS)
        if self._table.numbers_in_kana:
            words = numerals_to_kana(words)
        return "".join(self.digit(one) if one in "0123456789" else one for one in words)

    def with_unit(self, number: str, unit: str) -> str:
        """Return the words of a number and of the unit after it."""
        if self._table.numbers_in_kana:
            return numerals_to_kana(self._wetext(number.replace(",", "")) + unit)
        if number == "2" and unit:
            return f"两{unit}"
        # Without a counter WeText takes 120 for the number of a service, and 12.5 for a date.
        return self._wetext(f"{number.replace(',', '')}个").removesuffix("个") + unit

    def settle_twos(self, text: str, before: str, after: str) -> str:
        """Return ``text`` with 两 or 二 for each 2 in it; ``before`` and ``after``: what stands beside it."""
        if "2" not in text or self._measure is None:
            return text
        whole = text + after[:_MAX_MEASURE_CHARACTERS]

        def settle(match: re.Match[str]) -> str:
            end_of_range = _END_OF_RANGE.match(whole, match.end())
            at = end_of_range.end() if end_of_range else match.end()
            is_ordinal = match.start() == 0 and before.endswith("第")
            return "两" if not is_ordinal and self._counts(whole, at) else "二"

        return _TWO.sub(settle, text)

    def _counts(self, text: str, at: int) -> bool:
        """Whether a measure word, before which 2 is 两, stands at ``at``."""
        if self._measure is None or self._measure.match(text, at) is None:
            return False
        return self._no_measure is None or self._no_measure.match(text, at) is None


def _say_midnight(match: re.Match[str]) -> str:
    return "零点" if match.group(1) == "00" else f"零点{match.group(1)}分"


def _load_wetext(language: str) -> Callable[[str], str]:
    """Return WeText's normalizer of "zh" or "ja". Raises MissingExtra if wetext is not installed."""
    normalize: Callable[[str], str] = import_extra("wetext").Normalizer(lang=language).normalize
    return lru_cache(_CACHED_READINGS)(normalize)
