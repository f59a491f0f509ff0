"""Tables of the languages that ``table_normalizer.py`` reads, loaded from the TOML files beside this module.

The file of a language is named by its code: ``de.toml``. Its keys are the fields of ``LanguageTable``. A noun
is written "gender: form|form|form": "m", "f" and "n" choose the form of the number before it (un euro, una
hora), "k" a native Korean number and "h" a native Korean number up to 12. The forms are the singular and the
plural, in Russian the forms after 1, 2 and 5. Rule sets are those of Unicode's rule-based number format.
Source: Unicode CLDR 44 (units, currencies, months); everyday usage for abbreviations and words before codes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..clause_boundaries import AbbreviationKind, BoundaryRules
from ..data_files import expand_names, load_tables

TABLE_LANGUAGES = ("de", "fr", "es", "it", "ru", "ko")
_NUMBERING = "spellout-numbering"
_FORM_AFTER_FRACTION = 1  # the plural, in Russian the form after 2


@dataclass(frozen=True, slots=True)
class CountedNoun:
    """Noun after a number, with the gender that the number takes and the forms of the noun."""

    gender: str
    forms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LanguageTable:
    """Words and number formats of one language."""

    code: str
    # Numbers
    thousands_separators: str  # characters between groups of three digits
    decimal_word: str
    minus_word: str
    percent: CountedNoun
    range_word: str  # between two numbers: "bis"
    money_conjunction: str  # between units and hundredths of a currency; "" for none
    units: Mapping[str, CountedNoun]  # by their symbols
    money: Mapping[str, tuple[CountedNoun, CountedNoun | None]]  # currency and its hundredth, by signs
    # Dates and times
    months: tuple[str, ...]
    date_template: str  # with {day}, {month} and {year}
    time_template: str  # with {hour} and {minute}
    whole_hour_template: str  # for times without minutes
    hour: CountedNoun
    # Words
    marks: Mapping[str, str]  # names of signs
    code_words: frozenset[str]  # lower case; a number after one of these is read digit by digit
    abbreviations: Mapping[str, str] = field(default_factory=dict)  # without their last full stop
    mid_sentence_words: frozenset[str] = frozenset()  # more words whose full stop does not end a sentence
    # What differs in few languages
    number_rules: str = _NUMBERING  # rule set of a number on its own
    day_rules: str = _NUMBERING  # rule set of the day of a date
    year_rules: str = _NUMBERING  # rule set of the year of a date
    lone_year_rules: str = ""  # rule set of 1100 to 1999 outside a date; "": number_rules
    plural_rule: str = "one"  # name of the rule that chooses the form of a noun
    zero_digit: str = ""  # zero in codes, if it differs from the number
    minute_zero_word: str = ""  # before minutes below 10
    first_day_word: str = ""  # first day of a month, if it differs from the number
    gender_by_ending: Mapping[str, str] = field(default_factory=dict)  # of a noun; longer endings first
    ordinal_suffixes: Mapping[str, str] = field(default_factory=dict)  # written after digits; to rule sets
    ordinal_rules: Mapping[str, str] = field(default_factory=dict)  # word before "3."; to rule sets
    ordinal_prefix: str = ""  # before a number, makes an ordinal of it; no unit follows
    day_month_stops: bool = False  # "24.12." is a date
    month_suffix: str = ""  # after the number of a month
    month_readings: Mapping[str, str] = field(default_factory=dict)  # numbers read differently before it
    particles: bool = False  # particles follow a number without a blank
    pairs_digits: bool = False  # phone numbers are read in pairs

    @property
    def boundary_rules(self) -> BoundaryRules:
        """Language facts for the search of clause boundaries."""
        words = {*self.abbreviations, *self.mid_sentence_words}
        return BoundaryRules(
            abbreviations=dict.fromkeys(words, AbbreviationKind.MID_SENTENCE),
            dotted_kind=AbbreviationKind.MID_SENTENCE,
            ordinal_stops=bool(self.ordinal_rules),
        )

    @property
    def day_first(self) -> bool:
        """Whether dates begin with the day."""
        return self.date_template.startswith("{day}")

    def noun_form(self, noun: CountedNoun, number: int) -> str:
        """Return the form of ``noun`` after ``number``."""
        return noun.forms[min(_PLURAL_RULES[self.plural_rule](number), len(noun.forms) - 1)]

    def noun_form_after_fraction(self, noun: CountedNoun) -> str:
        """Return the form of ``noun`` after a number with a decimal fraction."""
        return noun.forms[min(_FORM_AFTER_FRACTION, len(noun.forms) - 1)]


@cache
def language_table(code: str) -> LanguageTable:
    """Return the table of a language in ``TABLE_LANGUAGES``."""
    return _parse_table(code, load_tables(__file__, f"{code}.toml"))


def _parse_table(code: str, values: dict[str, Any]) -> LanguageTable:
    """Build a table from the values of its file; keys that are no fields raise TypeError."""
    parsed: dict[str, Any] = {
        "months": tuple(values["months"].split()),
        "percent": _parse_noun(values["percent"]),
        "hour": _parse_noun(values["hour"]),
        "units": {unit: _parse_noun(noun) for unit, noun in values["units"].items()},
        "money": {sign: _parse_currency(nouns) for sign, nouns in expand_names(values["money"]).items()},
        "code_words": frozenset(values["code_words"].split()),
        "mid_sentence_words": frozenset(values.get("mid_sentence_words", "").split()),
        "ordinal_rules": expand_names(values.get("ordinal_rules", {})),
    }
    return LanguageTable(code=code, **(values | parsed))


def _parse_noun(text: str) -> CountedNoun:
    gender, _, forms = text.rpartition(":")
    return CountedNoun(gender, tuple(form.strip() for form in forms.split("|")))


def _parse_currency(text: str) -> tuple[CountedNoun, CountedNoun | None]:
    """Parse "m: Euro / m: Cent"; a currency without a second noun has no hundredth."""
    unit, _, hundredth = text.partition(" / ")
    return _parse_noun(unit), _parse_noun(hundredth) if hundredth else None


def _russian_plural(number: int) -> int:
    if number % 10 == 1 and number % 100 != 11:
        return 0
    return 1 if number % 10 in (2, 3, 4) and number % 100 not in (12, 13, 14) else 2


# Index of the form of a noun after a number.
_PLURAL_RULES: Mapping[str, Callable[[int], int]] = {
    "one": lambda number: 0 if number == 1 else 1,
    "below_two": lambda number: 0 if number < 2 else 1,
    "russian": _russian_plural,
}
