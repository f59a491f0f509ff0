"""Japanese: numbers are in katakana together with their counters."""

import re
from typing import Final

from ...kit.han.dates import HanDates
from ...kit.han.normalizer import HanNormalizer, han_language
from ...kit.han.numbers import HanNumbers
from ...kit.tokenizer import RuleRow, ScanState
from ...unicode_scripts import HAN, KANA
from .kana_numbers import end_of_counter, numerals_to_kana


class JapaneseNumbers(HanNumbers):
    """Words of numbers in Japanese."""

    def words(self, text: str) -> str:
        """Return a numeric expression as WeText reads it, in katakana."""
        return self.spell_digits(numerals_to_kana(self.normalized(text)))

    def with_unit(self, number: str, unit: str) -> str:
        """Return the words of a number and of the unit after it."""
        return numerals_to_kana(self.by_wetext(number.replace(",", "")) + unit)

    def expression(self, text: str, view: str, start: int, stop: int) -> tuple[str, int]:
        """Return the words of ``text``, which ends at ``stop`` of a view, with its counter, and its end."""
        end = end_of_counter(view, stop)
        return self.words(text + view[stop:end]), end


class JapaneseDates(HanDates):
    """Recognisers of dates in Japanese."""

    def weekday(self, days: str) -> str:
        """Return the pattern of a weekday. days: members of the class of their own characters."""
        return f"[{days}]曜"

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a digit."""
        return (
            *super().number_rows(),
            (r"(\d{1,2})([~–—-])(?=\d{1,2}(時|月)(?!間))", self._read_first_of_range),
        )

    def _read_first_of_range(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "14〜" of "14〜18時" as "14時から"."""
        words = self.numbers.words(f"{match.group(1)}{match.group(3)}")
        scan.emit(words + self.table.range_word, *match.span())
        return match.end()

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a letter: "月〜金"."""
        days = "".join(self.table.weekdays)
        return ((rf"([{days}])[~–-]([{days}])(?![{days}{HAN}A-Za-z])", self._read_weekdays),)

    def _read_weekdays(self, scan: ScanState, match: re.Match[str]) -> int:
        first, last = (self.table.weekdays[day] for day in match.groups())
        scan.emit(first + self.table.range_word + last, *match.span())
        return self.speller.finish_number(scan, match.end())


class JapaneseRules(HanNormalizer):
    """Recognisers of Japanese."""

    numbers_type = JapaneseNumbers
    dates_type = JapaneseDates


JAPANESE: Final = han_language(__file__, "Japanese", JapaneseRules, KANA)
