"""Dutch: "BTW-nummer", the years 1901 to 1909, dates with hyphens, and "9u30"."""

import re
from typing import Final

from ...kit.table_rules.codes import TableCodes
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.numbers import TableNumberWords
from ...kit.table_rules.roman import roman_value
from ...kit.table_rules.speller import TableSpeller
from ...kit.table_rules.times import TableTimes
from ...kit.tokenizer import RuleRow, ScanState

_WORDS_BEFORE_DATES = frozenset("van de het na in t/m tot".split())


class DutchNumbers(TableNumberWords):
    """Number words of Dutch."""

    def spell_out(self, number: int, rules: str) -> str:
        """Return the words of a number; "elfhonderddrie", for which Unicode has "elfdrie"."""
        if rules == "spellout-numbering-year" and 0 < number % 100 < 10 and 1100 < number < 2000:
            return f"{self.number(number // 100)}honderd{self.number(number % 100)}"
        return super().spell_out(number, rules)


class DutchSpeller(TableSpeller):
    """Speller of Dutch."""

    spelled_heads = True


class DutchCodes(TableCodes):
    """Recognisers of codes in Dutch."""

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of houses and of other codes of digits."""
        upstairs = rf"(?P<house>\d{{1,4}})-(?P<floor>I{{1,3}}|IV){self._end}"
        return ((upstairs, self._read_upstairs), *super().digit_rows())

    def _read_upstairs(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "12-II", the second floor of a house."""
        house, floor = int(match["house"]), roman_value(match["floor"]) or 0
        words = f"{self._numbers.number(house)} {self._numbers.number(floor)} hoog"
        return self._speller.emit_number(scan, words, *match.span())

    def direction(self, scan: ScanState, letters: str) -> str:
        """Return "noordoost", or "noordoosten" after its article."""
        ending = "en" if scan.context.previous_word == "het" else ""
        return super().direction(scan, letters) + ending


class DutchTimes(TableTimes):
    """Recognisers of times in Dutch."""

    hour_mark = "hu"


class DutchDates(TableDates):
    """Recognisers of dates in Dutch."""

    times_type = DutchTimes
    day_month_mark = "[-/]"

    def own_rows(self) -> list[RuleRow]:
        """Return the rule of "van 21-11", which falls and is no range."""
        date = r"(?P<day>1[3-9]|2\d|3[01])-(?P<month>0?[1-9]|1[0-2])(?![\w/-])"
        return [(date, self._read_falling)]

    def _read_falling(self, scan: ScanState, match: re.Match[str]) -> int | None:
        is_date = scan.context.previous_word in _WORDS_BEFORE_DATES
        return self._read_day_and_month(scan, match) if is_date else None


class DutchRules(TableNormalizer):
    """Recognisers of Dutch."""

    numbers_type = DutchNumbers
    codes_type = DutchCodes
    speller_type = DutchSpeller
    dates_type = DutchDates


DUTCH: Final = table_language(__file__, "Dutch", DutchRules)
