"""Polish: years and percents in the case of the words before them, Roman months, names of kings, phones."""

import re
from typing import Final

from ...kit.table_rules.amounts.amounts import TableAmounts
from ...kit.table_rules.codes import TableCodes
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.numbers import TableNumberWords
from ...kit.table_rules.roman import TableRomanNumerals, roman_value
from ...kit.table_rules.times import TableTimes
from ...kit.tokenizer import RuleRow, ScanState

_ROMAN_MONTH = "(?:I{1,3}|IV|VI{0,3}|IX|XI{0,2})"
# By the word before a year, or two: "w roku"
_YEARS_AFTER = {
    "rok": "masculine",
    "roku": "masculine genitive",
    "w roku": "masculine locative",
    "po roku": "masculine locative",
    "rokiem": "masculine instrumental",
}
_PERCENT_CUES = frozenset(("w", "we", "przy"))  # before a locative: "w 50%"
# Of Roman numerals after a name, by its end
_ROMAN_BY_ENDING = {
    "owi": "masculine dative",
    "em": "masculine locative",
    "ny": "feminine genitive",
    "ty": "feminine genitive",
    "a": "masculine genitive",
}


class PolishNumbers(TableNumberWords):
    """Number words of Polish."""

    ordinal_tens = True


class PolishRomanNumerals(TableRomanNumerals):
    """Recognisers of Roman numerals in Polish."""

    def rules_after_name(self, name: str, roman: str) -> str:
        """Return the rule set of Roman numerals after a name, by its ending; "" for none."""
        if not name[:1].isupper() or roman in "VX":
            return super().rules_after_name(name, roman)
        found = (rules for ending, rules in _ROMAN_BY_ENDING.items() if name.endswith(ending))
        return next(found, self._table.roman_after_names)


class PolishAmounts(TableAmounts):
    """Recognisers of amounts in Polish."""

    romans_type = PolishRomanNumerals

    def year_rules_after(self, scan: ScanState) -> str | None:
        """Return the rule set of a year after the words before it, or None for a number as any other."""
        previous = scan.context.previous_word
        phrase = f"{scan.words[-2].text.lower()} {previous}" if len(scan.words) > 1 else ""
        return _YEARS_AFTER.get(phrase) or _YEARS_AFTER.get(previous)

    def _read_percent(self, scan: ScanState, match: re.Match[str]) -> int:
        number = self._numbers.value(match["whole"])
        if scan.context.previous_word not in _PERCENT_CUES or match["fraction"] or number == 1:
            return super()._read_percent(scan, match)
        words = self._numbers.spell_out(number, "spellout-cardinal-masculine-locative")
        return self._speller.emit_number(scan, f"{words} procentach", *match.span())


class PolishCodes(TableCodes):
    """Recognisers of codes in Polish."""

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of phone numbers and other codes of digits."""
        number = r"[4-9]\d{2} \d{3} \d{3}" + self._end  # looks like an amount
        return ((number, self._read_phone_number), *super().digit_rows())

    def _read_phone_number(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "601 234 567", unless a noun or a unit follows that it counts."""
        noun = scan.next_word(match.end())
        is_counted = noun and noun not in self._table.function_words and scan.view[match.end()] == " "
        return None if is_counted else self._speller.read_digit_groups(scan, match)


class PolishTimes(TableTimes):
    """Recognisers of times in Polish."""

    lone_hour_cues = frozenset("o między przed".split())


class PolishDates(TableDates):
    """Recognisers of dates in Polish."""

    times_type = PolishTimes
    other_month_ahead = rf"|\.? (?!V\b){_ROMAN_MONTH}(?!\w)"

    def day_month_rows(self) -> list[RuleRow]:
        """Return the rules of "15 IX" and "7.06", and of the first day of "12-26.08"."""
        date = rf"(?P<day>\d{{1,2}})(?:\.? |\.)(?P<roman>{_ROMAN_MONTH})(?:[. ](?P<year>\d{{4}}))?(?!\w)"
        return [(date, self._read_roman_date), *super().day_month_rows()]

    def _read_roman_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "15 IX" and "15 IX 2024", but "5 X" only after a word such as "do"; "12 V" are volts."""
        month, year, table = roman_value(match["roman"]), match["year"], self._table
        is_announced = scan.context.previous_word in table.date_cues and match["roman"] not in table.units
        is_announced = is_announced or len(match["roman"]) > 1
        if not month or not 1 <= int(match["day"]) <= 31 or not (year or is_announced):
            return None
        day = self._day(scan, match)
        words = self._numbers.date(int(year), month, day) if year else f"{day} {table.months[month - 1]}"
        return self._speller.emit_number(scan, words, *match.span())


class PolishRules(TableNormalizer):
    """Recognisers of Polish."""

    numbers_type = PolishNumbers
    codes_type = PolishCodes
    dates_type = PolishDates
    amounts_type = PolishAmounts


POLISH: Final = table_language(__file__, "Polish", PolishRules)
