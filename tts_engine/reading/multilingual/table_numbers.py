"""Number words of a language that a table describes: amounts, money, dates, times, ordinals."""

import re

from .language_tables import CountedNoun, LanguageTable
from .number_formatter import MAX_NUMBER_DIGITS, NumberFormatter

_GENDER_RULES = {
    "m": "spellout-cardinal-masculine",
    "f": "spellout-cardinal-feminine",
    "n": "spellout-cardinal-neuter",
    "k": "spellout-cardinal-native-attributive",
    "h": "spellout-cardinal-native-attributive",
}
# Native Korean numbers are used up to these; 0 has none.
_MAX_NATIVE_KOREAN = {"k": 99, "h": 12}
_LONE_YEAR = re.compile(r"1[1-9]\d\d")


class TableNumberWords:
    """Number words of one language.

    A number comes as it is written: ``whole`` with the language's separators, ``fraction`` the digits after
    the decimal mark, if any. Raises MissingExtra if unicode-rbnf is not installed.
    """

    def __init__(self, table: LanguageTable) -> None:
        self._table = table
        self._formatter = NumberFormatter(table.code, table.number_rules)
        self._separator = re.compile(f"[{re.escape(table.thousands_separators)}]")

    def value(self, whole: str) -> int:
        """Return the value of an integer as it is written."""
        return int(self._separator.sub("", whole))

    def number(self, number: int, gender: str = "") -> str:
        """Return the words of ``number`` in a gender of ``CountedNoun``; "" for a number on its own."""
        rules = _GENDER_RULES.get(gender, self._table.number_rules)
        if gender in _MAX_NATIVE_KOREAN and not 0 < number <= _MAX_NATIVE_KOREAN[gender]:
            rules = self._table.number_rules
        return self._formatter.spell_out(number, rules)

    def digit(self, digit: str) -> str:
        """Return the word of a digit in a code."""
        if digit == "0" and self._table.zero_digit:
            return self._table.zero_digit
        return self.number(int(digit))

    def amount(self, whole: str, fraction: str | None, gender: str = "") -> str:
        """Return the words of an amount; one that is too long is read digit by digit."""
        digits = self._separator.sub("", whole)
        words = (
            self.number(int(digits), gender)
            if len(digits) <= MAX_NUMBER_DIGITS
            else " ".join(map(self.digit, digits))
        )
        if fraction:
            words += f" {self._table.decimal_word} {' '.join(map(self.digit, fraction))}"
        return words

    def amount_with_noun(self, whole: str, fraction: str | None, noun: CountedNoun) -> str:
        """Return an amount and the noun that it counts, in the form that the amount takes."""
        table = self._table
        form = table.noun_form_after_fraction(noun) if fraction else table.noun_form(noun, self.value(whole))
        return f"{self.amount(whole, fraction, noun.gender)} {form}"

    def year_or_amount(self, whole: str, fraction: str | None, gender: str = "") -> str:
        """Return an amount outside a date; integers from 1100 to 1999 are read as years."""
        if fraction or not _LONE_YEAR.fullmatch(whole):
            return self.amount(whole, fraction, gender)
        return self._formatter.spell_out(int(whole), self._table.lone_year_rules or self._table.number_rules)

    def money(self, whole: str, fraction: str | None, currency: str) -> str:
        """Return an amount of money, such as "zwei Euro und fünfzig Cent"."""
        unit, hundredth = self._table.money[currency]
        if not fraction or len(fraction) > 2 or hundredth is None:
            return self.amount_with_noun(whole, fraction, unit)
        cents = fraction.ljust(2, "0")
        parts = [self.amount_with_noun(whole, None, unit)] if self.value(whole) or not int(cents) else []
        if int(cents):
            parts.append(self.amount_with_noun(cents, None, hundredth))
        return f" {self._table.money_conjunction} ".join(parts)

    def ordinal(self, number: int, rules: str) -> str:
        """Return an ordinal by a rule set of the language."""
        return self._formatter.spell_out(number, rules)

    def day(self, day: int, previous_word: str) -> str:
        """Return the day of a date, inflected after ``previous_word`` where the language does so."""
        if day == 1 and self._table.first_day_word:
            return self._table.first_day_word
        return self.ordinal(day, self._table.ordinal_rules.get(previous_word, self._table.day_rules))

    def year(self, year: int) -> str:
        """Return the year of a date."""
        return self._formatter.spell_out(year, self._table.year_rules)

    def date(self, year: int, month: int, day: int, previous_word: str) -> str:
        """Return a whole date."""
        return self._table.date_template.format(
            day=self.day(day, previous_word), month=self._table.months[month - 1], year=self.year(year)
        )

    def time(self, hour: int, minute: int) -> str:
        """Return a time of day."""
        table = self._table
        hours = f"{self.number(hour, table.hour.gender)} {table.noun_form(table.hour, hour)}".strip()
        minutes = self.number(minute)
        if minute < 10 and table.minute_zero_word:
            minutes = f"{table.minute_zero_word} {minutes}"
        template = table.time_template if minute else table.whole_hour_template
        return template.format(hour=hours, minute=minutes)
