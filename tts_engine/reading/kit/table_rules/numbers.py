"""Number words of a language that a table describes (amounts, money, dates, times), and number patterns."""

import re

from ...number_formatter import MAX_NUMBER_DIGITS, NumberFormatter
from ..tokenizer import any_of
from .language_table import LanguageTable
from .ordinal_words import OrdinalWords
from .plural_rules import CountedNoun, parse_noun, plural_category

_LONE_YEAR = re.compile(r"1[1-9]\d\d")
_VOWELS = "aeiouàâäéèêëíìïîóòôöúùûüœh"


def with_noun(amount: str, noun: str) -> str:
    """Return ``amount`` before ``noun``, or in the place that "{}" has in it."""
    return noun.replace("{}", amount) if "{}" in noun else f"{amount} {noun}"


def _split_number(text: str) -> tuple[str, str, str]:
    """Return a number before its last mark, the mark, and the digits after it."""
    at = max(text.rfind("."), text.rfind(","))
    return (text[:at], text[at], text[at + 1 :]) if at >= 0 else (text, "", "")


class TableNumberWords:
    """Number words of one language.

    A number comes as it is written: ``whole`` with the language's separators, ``fraction`` the digits after
    the decimal mark, if any. ``gender`` and ``case`` are those of the table's ``rules``.
    """

    ordinal_tens = False  # "twentieth sixth": the tens of an ordinal are one too
    silent_one = ""  # not said at the start of an ordinal: "одна " of thousands
    minute = parse_noun("")  # the noun that the minutes of a time have after them

    def __init__(self, table: LanguageTable) -> None:
        self._table = table
        self._formatter = NumberFormatter(table.code, table.rules[""])
        self._separator = re.compile(f"[{re.escape(table.thousands_separators)},]")
        self._ordinals = OrdinalWords(
            table.ordinals, table.ordinal_endings, self._ordinal_head, tens=self.ordinal_tens
        )

    def value(self, whole: str) -> int:
        """Return the value of an integer as it is written."""
        return int(self._separator.sub("", whole))

    def number(self, number: int, gender: str = "", case: str = "") -> str:
        """Return the words of ``number`` in a gender and case; without both, of a number on its own."""
        if gender in self._table.max_numbers and not 0 < number <= self._table.max_numbers[gender]:
            gender = ""
        rules = self._table.rules
        found = rules.get(f"{gender} {case}".strip()) or rules.get(gender) or rules[""]
        return self.spell_out(number, found)

    def spell_out(self, number: int, rules: str) -> str:
        """Return the words of ``number`` by a rule set of Unicode's or of the language's own ordinals."""
        words = self._table.number_words.get(rules)
        if words and (str(number) in words or not rules.startswith("spellout-")):
            return words.get(str(number)) or self.number(number)
        if self._ordinals.knows(rules):
            return self._ordinals.spell_out(number, rules) or self.number(number)
        return self._formatter.spell_out(number, rules)

    def _ordinal_head(self, number: int) -> str:
        return self.number(number).removeprefix(self.silent_one)

    def digit(self, digit: str) -> str:
        """Return the word of a digit in a code."""
        return self.number(int(digit))

    def amount(self, whole: str, fraction: str | None, gender: str = "", case: str = "") -> str:
        """Return the words of an amount; one that is too long is read digit by digit."""
        digits = self._separator.sub("", whole)
        if len(digits) > MAX_NUMBER_DIGITS:
            return " ".join(map(self.digit, digits + (fraction or "")))
        if not fraction:
            words = self.number(int(digits), gender, case)
            return words.removeprefix(self.silent_one) if case == "distributive" else words
        half = self._half(int(digits), gender, case) if fraction == "5" else ""
        if half:
            return half
        return self.decimal(int(digits), fraction, case)

    def of_formula(self, text: str) -> str:
        """Return the words of a number of a formula, whose decimal mark may be a stop or a comma."""
        whole, mark, fraction = _split_number(text)
        if mark and mark in self._table.thousands_separators and len(fraction) == 3 and whole != "0":
            whole, fraction = whole + fraction, ""
        return self.amount(re.sub(r"\D", "", whole) or "0", fraction or None)

    def decimal(self, whole: int, fraction: str, case: str) -> str:
        """Return the words of a number with digits after the decimal mark."""
        return f"{self.number(whole)} {self._table.decimal_word} {self._decimals(fraction)}"

    def with_point(self, whole: str, fraction: str) -> str:
        """Return the words of "1.6" where a comma is the decimal mark."""
        return f"{self.number(self.value(whole))} {self._table.point_word} {self._decimals(fraction)}"

    def _half(self, whole: int, gender: str, case: str) -> str:
        """Return "półtora" for 1,5 and "dwie i pół" for 2,5; "" where the language reads the decimals."""
        halves = self._table.decimal_halves
        oblique = "" if case in ("", "accusative", "distributive") else case
        words = halves.get(f"{whole} {oblique}") or halves.get(str(whole)) or halves.get("", "")
        words = words if whole or gender else ""  # of 0,5 without a noun
        masculine, _, feminine = words.partition("|")
        words = feminine if feminine and gender == "f" else masculine
        return words.replace("{}", self.number(whole, gender, case))

    def _decimals(self, fraction: str) -> str:
        """Return the digits after the decimal mark, as one number where the language joins so many."""
        significant = fraction.lstrip("0")
        if not 1 < len(significant) <= len(fraction) <= self._table.max_joined_decimals:
            return " ".join(map(self.digit, fraction))
        zeros = map(self.digit, fraction[: -len(significant)])
        return " ".join((*zeros, self.number(int(significant))))

    def counted(self, whole: str, fraction: str | None, noun: CountedNoun, case: str = "") -> str:
        """Return an amount and the noun that it counts, in the form that the amount takes."""
        form = self.noun_form(noun, whole, fraction, case)
        one = self.one(noun.gender, form) if whole == "1" and not fraction else ""
        return with_noun(one or self.amount(whole, fraction, noun.gender, case), form)

    def noun_form(self, noun: CountedNoun, whole: str, fraction: str | None, case: str) -> str:
        """Return the form of ``noun`` after an amount."""
        if fraction:
            return self._table.noun_form_after_fraction(noun, self.value(whole))
        return self._table.noun_form(noun, self.value(whole), case)

    def one(self, gender: str, noun: str) -> str:
        """Return the word of 1 before ``noun`` where its first letters decide it, else ""."""
        return ""

    def year_or_amount(self, whole: str, fraction: str | None, gender: str = "", case: str = "") -> str:
        """Return an amount outside a date; integers from 1100 to 1999 are read as years."""
        if fraction or not self._table.lone_year_rules or not _LONE_YEAR.fullmatch(whole):
            return self.amount(whole, fraction, gender, case)
        return self.spell_out(int(whole), self._table.lone_year_rules)

    def money(self, whole: str, fraction: str | None, currency: str, case: str = "") -> str:
        """Return an amount of money, such as "zwei Euro und fünfzig Cent"."""
        unit, hundredth = self._table.money[currency]
        if not fraction or len(fraction) > 2 or hundredth is None:
            return self.counted(whole, fraction, unit, case)
        cents = fraction.ljust(2, "0")
        parts = [self.counted(whole, None, unit, case)] if self.value(whole) or not int(cents) else []
        if int(cents):
            parts.append(self.counted(cents, None, hundredth, case))
        return f" {self._table.money_conjunction} ".join(parts)

    def large_amount(
        self, whole: str, fraction: str | None, magnitude: str, unit: CountedNoun, case: str = ""
    ) -> str:
        """Return "drei Millionen Euro"."""
        plain, _, elided = self._table.magnitude_joint.partition("|")
        many = unit.forms[min(2, len(unit.forms) - 1)]
        amount = self.counted(whole, fraction, self._table.magnitudes[magnitude], case)
        if elided and many[0] in _VOWELS:
            return f"{amount} {elided}{many}"
        has_joint = len(self._table.magnitudes[magnitude].forms) > 1  # "cinco mil reais"
        return with_noun(f"{amount} {plain}" if plain and has_joint else amount, many)

    def plural(self, number: int) -> int:
        """Return the plural category of ``number``."""
        return plural_category(self._table.plural_rule, number)

    def day(self, day: int, previous_word: str, before: str = "") -> str:
        """Return the day of a date, inflected after ``previous_word``, with which ``before`` ends."""
        if day == 1 and self._table.first_day_word:
            return self._table.first_day_word
        table = self._table
        rules = table.days_after.get(previous_word) or self.ordinal_rules_after(previous_word, before)
        rules = rules or table.day_rules
        return self.spell_out(day, rules)

    def ordinal_rules_after(self, previous_word: str, before: str) -> str | None:
        """Return the rule set of an ordinal after ``previous_word``, with which the text ``before`` ends."""
        return self._table.ordinal_rules.get(previous_word)

    def joined(self, number: int) -> str:
        """Return the "dwudziestocztero" of "24-godzinny", or "" for a number that is not joined."""
        known = self._table.joined_numbers
        if str(number) in known:
            return known[str(number)]
        tens = number % 100 if str(number % 100) in known else number % 10
        parts = (number - number % 100, number % 100 - tens % 100 if tens < 10 else 0, tens)
        words = [known.get(str(part), "?") for part in parts if part]
        return "" if "?" in words else "".join(words)

    def year(self, year: int) -> str:
        """Return the year of a date."""
        return self.spell_out(year, self._table.year_rules)

    def date(self, year: int, month: int, day: str) -> str:
        """Return a whole date."""
        return self._table.date_template.format(
            day=day, month=self._table.months[month - 1], year=self.year(year)
        )

    def time(self, hour: int, minute: int, case: str = "") -> str:
        """Return a time of day."""
        table = self._table
        hours = self._part_of_time(hour, table.hour, case)
        if not minute:
            return table.whole_hour_template.format(hour=hours).strip()
        minutes = self._part_of_time(minute, self.minute, case if self.minute.gender else "")
        if minute < 10 and table.minute_zero_word:
            minutes = f"{table.minute_zero_word} {minutes}"
        return table.time_template.format(hour=hours, minute=minutes)

    def _part_of_time(self, number: int, noun: CountedNoun, case: str) -> str:
        return f"{self.number(number, noun.gender, case)} {self._table.noun_form(noun, number, case)}".strip()


class NumberPatterns:
    """Parts of patterns, of one language.

    Attributes:
        integer: a whole number, with separators of thousands or without.
        decimal_mark: before a fraction.
        decimal: a number, with the groups ``whole`` and ``fraction``.
        end: where a number or a unit ends.
        unit_end: the same of a unit after a number.
        signs: signs of currencies that are no letters.
        magnitudes: "million" and its like.
        units: of measure.
    """

    def __init__(self, table: LanguageTable, suffix_mark: str) -> None:
        group = f"[{re.escape(table.thousands_separators)}]"
        self.integer = rf"(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?!\d)"
        self.decimal_mark = r"\." if "," in table.thousands_separators else "[.,]"
        # "12,845.60" can be read in one way only, whatever the language.
        foreign = r"\d{1,3}(?:,\d{3})+(?=\.\d\d(?!\d))|" if self.decimal_mark != r"\." else ""
        self.decimal = rf"(?P<whole>{foreign}{self.integer})(?:{self.decimal_mark}(?P<fraction>\d+))?"
        self.end = table.end
        self.unit_end = self.end if suffix_mark else rf"{self.end}(?!'\w)"  # "2025 s'élève"
        self.signs = any_of(sign for sign in table.money if not sign[-1].isalpha()) or r"(?!)"
        self.magnitudes = any_of({*table.magnitudes} - {"k"}) or r"(?!)"
        if "k" in table.magnitudes:
            self.magnitudes += r"|(?<=\d)k(?!\.\w)"  # "48k", not "415 k.c."
        self.units = any_of(table.units)
