"""Tables of the languages that ``normalizer.py`` reads, loaded from the file ``table.toml`` of each.

The keys of a file are the fields of ``LanguageTable``.
A noun is written "gender: form|form|form". The gender, with a case, chooses the rule set of the number before
it in the table ``rules``; the forms are those after the plural categories of ``plural_rules.py``. Rule sets
are those of Unicode's rule-based number format, or the language's own ``ordinal_endings``.
Source: Unicode CLDR 44 (units, currencies, months); everyday usage for abbreviations and words before codes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ...clause_boundaries import AbbreviationKind, BoundaryRules
from ..data_files import expand_names, load_tables
from .plural_rules import CountedNoun, noun_form, parse_noun, plural_category, with_endings

_NUMBERING = "spellout-numbering"
_MAX_BEHIND = 60  # characters that are searched for the words before a number
# The "między" of "między 5 a "
_GOVERNOR = re.compile(r"([^\W\d_]+)\.? \d[\d.,:–-]*(?: \d{3})*(?: ?[^\W\d_]+\.?| ?[%€$£₽])? [^\W\d_]+\.? \Z")
_SIGNED = re.compile(r"([^\W\d_]+) \+\Z")  # the "до" of "до +5"


@dataclass(frozen=True, slots=True)
class LanguageTable:
    """Words and number formats of one language."""

    code: str
    # Numbers
    thousands_separators: str  # characters between groups of three digits
    decimal_word: str
    minus_word: str
    range_word: str  # between two numbers: "bis"; "" for none
    fraction_word: str  # between the numbers of "3/8"
    # By their symbols; a form with "{}" has its number there: "saatte {} kilometre"
    units: Mapping[str, CountedNoun]
    percent: CountedNoun
    # Money
    money: Mapping[str, tuple[CountedNoun, CountedNoun | None]]  # currency and its hundredth, by signs
    money_conjunction: str  # between units and hundredths of a currency; "" for none
    # Dates and times
    months: tuple[str, ...]
    date_template: str  # with {day}, {month} and {year}
    time_template: str  # with {hour} and {minute}
    whole_hour_template: str  # for times without minutes
    hour: CountedNoun
    # Words
    marks: Mapping[str, str]  # names of signs
    code_words: frozenset[str]  # lower case; a number after one of these is read digit by digit
    point_word: str = ""  # the stop of "1.6", where a comma is the decimal mark; "" reads it as the comma
    code_endings: frozenset[str] = frozenset()  # of compounds that announce one too: "Abholcode"
    numbering_words: frozenset[str] = frozenset()  # as written before three digits that are one number: "nr"
    code_phrases: str = ""  # before the digits of a code: "ends with|ending with"
    code_names: str = ""  # right after the digits of a code: " is your (?:PIN|passcode)"
    letters: Mapping[str, str] = field(default_factory=dict)  # their names, by letters in lower case
    spelled_words: frozenset[str] = frozenset()  # in capitals, spelled though they have vowels
    abbreviations: Mapping[str, str] = field(default_factory=dict)  # without their last full stop
    numbered_abbreviations: frozenset[str] = frozenset()  # those that are words unless a number follows
    bare_abbreviations: Mapping[str, str] = field(default_factory=dict)  # read without a full stop too
    numbered_readings: Mapping[str, str] = field(default_factory=dict)  # of those before a number: "ch. 204"
    score_readings: Mapping[str, str] = field(default_factory=dict)  # after a score: "3:2 n. V."
    degree_readings: Mapping[str, str] = field(default_factory=dict)  # of readings before "11 °C"
    abbreviated_endings: Mapping[str, str] = field(default_factory=dict)  # of compound words: "Goethestr."
    abbreviated_heads: Mapping[str, str] = field(default_factory=dict)  # of compound words: "Geb.-Datum"
    # Before names, with a stop that they need; the second reading is for names in "-a": "dom|dona"
    titles: Mapping[str, str] = field(default_factory=dict)
    compass: Mapping[str, str] = field(default_factory=dict)  # names of the directions "N", "NO"
    compass_cues: frozenset[str] = frozenset()  # words before such letters, some words before: "vent de NO"
    short_words: frozenset[str] = frozenset()  # of two letters, which are not spelled in capitals
    # Between the two forms of "camarero/a" and "assistant(e)"; the endings of the second, those of the first
    # that they replace, and words of three letters or fewer that have two forms: "un/a"
    either_word: str = ""
    either_endings: frozenset[str] = frozenset()
    either_replaced: frozenset[str] = frozenset()
    either_short_words: frozenset[str] = frozenset()
    letter_words: frozenset[str] = frozenset()  # before a small letter that is read by its name: "lett. b)"
    names_capitals: bool = False  # a capital on its own, as in "classe B", is read by its name
    spelled_domains: frozenset[str] = frozenset()  # spelled at the end of an address though they have vowels
    number_sign: str = ""  # the "#" of "#12", if it is said
    ordinal_initialisms: frozenset[str] = frozenset()  # "1. FC Köln" begins no list
    numbered_nouns: frozenset[str] = frozenset()  # whose number counts no noun after it: "Absatz 1 Satz 2"
    section_words: frozenset[str] = frozenset()  # before "2.04", the number of a room or a section
    # Units that are verbs too, "il treno 12 ha lasciato", unless one of these follows: "12 ha di bosco"
    verb_units: frozenset[str] = frozenset()
    words_after_units: frozenset[str] = frozenset()
    numbered_words: frozenset[str] = frozenset()  # abbreviations that are no units before a number: "5 m. 3"
    mid_sentence_words: frozenset[str] = frozenset()  # more words whose full stop does not end a sentence
    # After a number, their stop ends a sentence if a capital follows: "5 szt. Zamów"
    closing_abbreviations: frozenset[str] = frozenset()
    # Of the readings of abbreviations, by the word before them: "przy" has "ulica" = "ulicy"
    inflections: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Choice of number words
    rules: Mapping[str, str] = field(
        default_factory=dict
    )  # rule sets by "gender case"; "" for a number alone
    max_numbers: Mapping[str, int] = field(default_factory=dict)  # largest number of a gender's rule set
    plural_rule: str = "one"
    # Of a number, by the word before it; "one dative" is the case of 1 and 21 only
    cases: Mapping[str, str] = field(default_factory=dict)
    case_joints: frozenset[str] = frozenset()  # between numbers of one case: "między 5 a 7"
    # Of a number, by the ending of the word after it, which tells it better than the word before
    case_by_ending: Mapping[str, str] = field(default_factory=dict)
    few_case_by_ending: Mapping[str, str] = field(default_factory=dict)  # the same after 2, 3 and 4
    # Endings of the few form of a noun in other cases, and of its first form in "dative one"
    noun_endings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    number_words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # rule sets of few numbers
    joined_numbers: Mapping[str, str] = field(default_factory=dict)  # the "dwu" of "2-dniowy"
    joined_abbreviations: Mapping[str, str] = field(default_factory=dict)  # after them: "2-комн."
    genders: Mapping[str, str] = field(default_factory=dict)  # of written nouns
    gender_by_ending: Mapping[str, str] = field(default_factory=dict)  # of a noun; may name a case too
    few_gender_by_ending: Mapping[str, str] = field(default_factory=dict)  # the same after 2, 3 and 4
    genitive_gender_by_ending: Mapping[str, str] = field(default_factory=dict)  # the same of one in that case
    # Adjectives between a number and the noun that it agrees with: "2 pierwsze litery"
    plural_adjectives: frozenset[str] = frozenset()
    noun_gender: str = ""  # of a noun with none of the endings; "" reads the number as one on its own
    function_words: frozenset[str] = frozenset()  # before which a number stands on its own
    key_cues: frozenset[str] = frozenset()  # words before "*" as a telephone key
    # Before a number without a noun that counts the one before: "2 robes en 40 et 1 en 42"
    counted_joints: frozenset[str] = frozenset()
    pronoun_cues: frozenset[str] = frozenset()  # the same, whatever follows: "dont 1 urgente"
    lone_year_rules: str = ""  # rule set of 1100 to 1999 outside a date; "": as other numbers
    max_joined_decimals: int = 0  # so many digits after the decimal mark are read as one number
    # Of numbers with ",5", by the whole number: "1" = "półtora|półtorej" has the feminine, "1 genitive"
    # a case, and "" = "{} i pół" is of the others
    decimal_halves: Mapping[str, str] = field(default_factory=dict)
    magnitudes: Mapping[str, CountedNoun] = field(default_factory=dict)  # "million", by their spellings
    magnitude_joint: str = ""  # between "millions" and a currency; "de|d'" has the form before vowels
    fractions: Mapping[str, str] = field(
        default_factory=dict
    )  # of "1/2", "24/7", "2nd"; "meio|meia" has the feminine, and then the neuter
    fraction_parts: Mapping[str, str] = field(default_factory=dict)  # of "2/5 de", by the lower number
    per_word: str = ""  # the "/" between a price and a unit
    per: Mapping[str, str] = field(
        default_factory=dict
    )  # readings of "/" with a unit: "al mes", and "ayda {}" before it
    per_nouns: frozenset[str] = frozenset()  # after the "/" of a counted noun: "3 fois/jour"
    ratio_word: str = ""  # between the numbers of "3:1"
    score_joint: str = ""  # between those of "Bahia 2 x 2 Santos"; "" reads a size
    score_phrases: str = ""  # pattern of what is before a score with the joint: "venceu por 4x1"
    ratio_words: Mapping[str, str] = field(default_factory=dict)  # the same by the word before them
    signed_nouns: Mapping[str, str] = field(default_factory=dict)  # "-ans" is the "-" of "-26 ans"
    page: CountedNoun | None = None  # what "412 S." counts
    page_mark: str = ""  # the "S."
    times: CountedNoun | None = None  # the x of "3x"
    slash_cues: frozenset[str] = frozenset()  # words before "5/6" as two numbers
    size_word: str = ""  # the x of "10 x 15 cm", if it differs from "×"
    size_units: frozenset[str] = frozenset()  # units after which "×" is the x of a size
    slash_words: Mapping[str, str] = field(default_factory=dict)  # word before "135/85"; to the slash
    slash_nouns: Mapping[str, str] = field(default_factory=dict)  # the same of words after it: "4/5 Sternen"
    per_cues: frozenset[str] = frozenset()  # words before a unit without a number: "per kWh"
    # Of "1/2" after a number, by the number: "1" = "anderhalf". The entry "" has the number in "{}", or the
    # number with its noun in "{counted}", and after "|" the feminine: "{counted} et demi|{counted} et demie"
    halves: Mapping[str, str] = field(default_factory=dict)
    # Ordinals
    ordinal_suffixes: Mapping[str, str] = field(default_factory=dict)  # written after digits; to rule sets
    ordinal_rules: Mapping[str, str] = field(default_factory=dict)  # word before "3."; to rule sets
    ordinal_nouns: frozenset[str] = frozenset()  # capitalised nouns before which "3." is an ordinal
    stop_ordinals: Mapping[str, str] = field(default_factory=dict)  # "gender case" of "3." before a noun
    # Noun after "3" that makes it an ordinal, or with the word before the number ("с_пути"); to rule sets
    bare_ordinals: Mapping[str, str] = field(default_factory=dict)
    # Form of a noun after "3." or "III", or with the word before the number ("w wieku"); to rule sets
    ordinals_by_noun: Mapping[str, str] = field(default_factory=dict)
    ordinals: Mapping[str, str] = field(default_factory=dict)  # by number, where Unicode has no rules
    ordinal_endings: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # rule sets of ``ordinals``
    roman_ordinals: Mapping[str, str] = field(default_factory=dict)  # word after Roman numerals; to rule sets
    # Word before Roman numerals, to rule sets; with the largest number that they are used for
    roman_numbers: Mapping[str, str] = field(default_factory=dict)
    roman_article: str = ""  # before Roman numerals that are read as ordinals: "Ludwig der Zweite"
    roman_after_names: str = ""  # rule set of Roman numerals of two letters after a capitalised word
    # Dates and times that differ
    day_rules: str = _NUMBERING  # rule set of the day of a date
    year_rules: str = _NUMBERING  # rule set of the year of a date
    days_after: Mapping[str, str] = field(default_factory=dict)  # word before a day of a month; to rule sets
    first_day_word: str = ""  # first day of a month, if it differs from the number
    day_months: bool = False  # "7.06" is a date, and "12.10" after ``date_cues``
    day_joints: frozenset[str] = frozenset()  # between two days of a month: "od 12 do 26 maja"
    month_abbreviations: tuple[str, ...] = ()  # twelve, without a full stop
    other_months: Mapping[str, str] = field(default_factory=dict)  # months by more abbreviations
    date_cues: frozenset[str] = frozenset()  # words before "5/3" as a date
    partitives: frozenset[str] = frozenset()  # words after "1/3" that make it a fraction all the same
    weekdays: Mapping[str, str] = field(default_factory=dict)  # names by abbreviations
    weekday_range_word: str = ""  # between weekdays or dates, if it differs from ``range_word``
    day_range_opening: str = ""  # before a range of weekdays or dates: "od"
    plain_weekdays: bool = False  # their abbreviations are no other words, so that they need no stop
    weekday_followers: frozenset[str] = frozenset()  # words after abbreviations of them: "dom chiuso"
    weekday_words: frozenset[str] = frozenset()  # of them, other words too: "en mer à 15h"
    listed_weekdays: frozenset[str] = frozenset()  # abbreviations after whose comma another may follow
    weekday_joints: frozenset[str] = frozenset()  # words between two abbreviations: "sab e dom"
    weekday_cues: frozenset[str] = frozenset()  # words before an abbreviation without a date: "du lun."
    minute_zero_word: str = ""  # before minutes below 10
    duration_units: tuple[str, ...] = ("h", "min", "s")  # of hours, minutes and seconds, in ``units``
    minute_cues: frozenset[str] = frozenset()  # words before the "23'" of a match, which is no duration
    seconds_joint: str = ""  # between a time and its seconds
    whole_hours: bool = False  # "8h" is a time of day
    score_cues: frozenset[str] = frozenset()  # words before "15:13" as a score
    stop_times: bool = False  # "9.30-12.30" without a unit are times
    lone_stop_times: bool = False  # so is "09.30", and "9.30" with a suffix
    hour_suffixes: str = "h"  # after a time, not read; members of a pattern
    hour_cues: frozenset[str] = frozenset()  # words before "9.05" as a time
    time_range_opening: str = ""  # before a range of times: "od"
    hour_words: frozenset[str] = frozenset()  # before a number that is an hour: "godz. 19"
    opening_cues: frozenset[str] = frozenset()  # beginnings of words before "od 9 do 17" as hours
    # Codes and phone numbers
    address_pairs: bool = False  # "sklep24.pl" has "twenty-four"
    reference_slashes: bool = False  # the slashes of "AB/1204/25" are said
    max_mixed_digits: int = 2  # of the number in "B204", which is read as a number
    postcode: str = ""  # pattern of a postcode or a plate, whose digits and letters are read one by one
    # Writing
    # First letters of particles, which follow a number without a blank; members of a pattern
    particle_letters: str = ""

    @property
    def boundary_rules(self) -> BoundaryRules:
        """Language facts for the search of clause boundaries."""
        nouns = (*self.units, *self.magnitudes, *self.money, *self.per)
        stopped = {noun.removesuffix(".") for noun in nouns if noun.endswith(".")}
        within = {
            *self.abbreviations,
            *(short.removesuffix(".") for short in self.numbered_readings),
            *(title.removesuffix(".") for title in self.titles),
            *(short.removesuffix(".") for short in self.score_readings),
            *self.mid_sentence_words,
            *stopped,
            *self.month_abbreviations,
            *self.other_months,
        }
        return BoundaryRules(
            abbreviations=dict.fromkeys(self.weekdays, AbbreviationKind.MAY_END_SENTENCE)
            | dict.fromkeys(within, AbbreviationKind.MID_SENTENCE)
            | dict.fromkeys(self.numbered_abbreviations, AbbreviationKind.NUMBERED),
            listed_weekdays=self.listed_weekdays,
            sentence_words=self.numbered_abbreviations,
            dotted_kind=AbbreviationKind.MID_SENTENCE,
            ordinal_stops=bool(self.ordinal_rules or self.stop_ordinals),
            abbreviated_endings=tuple(self.abbreviated_endings),
            unit_stop=self._unit_stop,
            weekdays=frozenset(f"{short.lower()}." for short in self.weekdays),
        )

    @property
    def _unit_stop(self) -> re.Pattern[str] | None:
        closing = "|".join(map(re.escape, sorted(self.closing_abbreviations)))
        return re.compile(rf"\d ?(?:{closing})\Z") if closing else None

    @property
    def unit_plurals(self) -> frozenset[str]:
        """Plurals of the units: words that a number counts."""
        return frozenset(unit.forms[1] for unit in self.units.values() if len(unit.forms) == 2)

    @property
    def particles(self) -> bool:
        """Whether particles follow a number without a blank."""
        return bool(self.particle_letters)

    @property
    def end(self) -> str:
        """Pattern of the end of a number or a code, at which a particle may follow in some languages."""
        return r"(?![A-Za-z0-9])" if self.particles else r"(?!\w)"

    @property
    def day_first(self) -> bool:
        """Whether dates begin with the day."""
        return self.date_template.startswith("{day}")

    @property
    def day_range_word(self) -> str:
        """Word between two weekdays or dates."""
        return self.weekday_range_word or self.range_word

    def noun_form(self, noun: CountedNoun, number: int, case: str = "") -> str:
        """Return the form of ``noun`` after ``number``."""
        is_one = plural_category(self.plural_rule, number) == 0
        endings = self.noun_endings.get(f"{case} one" if is_one else case) if case else None
        if endings is None:
            return noun_form(noun, number, self.plural_rule, case)
        return with_endings(noun.forms[0 if is_one else min(1, len(noun.forms) - 1)], endings)

    def noun_form_after_fraction(self, noun: CountedNoun, whole: int) -> str:
        """Return the form of ``noun`` after ``whole`` with a decimal fraction: "1,5 million" is below two."""
        if self.plural_rule == "below_two" and whole < 2:
            return noun.forms[0]
        form = 3 if len(noun.forms) > 3 or self.plural_rule == "polish" else 1
        return noun.forms[min(form, len(noun.forms) - 1)]

    def ordinal_before(self, noun: str, previous_word: str) -> str | None:
        """Return the rule set of an ordinal between ``previous_word`` and ``noun``, or None."""
        rules = self.ordinals_by_noun
        return rules.get(f"{previous_word} {noun}") or rules.get(noun)

    def case_after(self, word: str, before: str = "") -> str:
        """Return the case of a number after ``word``, in lower case; "" for none that is known.

        ``before``: the text before the number.
        """
        return self.cases.get(self.governor(word, before), "")

    def governor(self, word: str, before: str) -> str:
        """Return the word that governs a number after ``word``: that of both in "między 5 a 7".

        ``before``: the text before the number.
        """
        signed = _SIGNED.search(before, max(0, len(before) - _MAX_BEHIND))
        if signed:
            return signed.group(1).lower()
        if word in self.case_joints:
            governor = _GOVERNOR.search(before, max(0, len(before) - _MAX_BEHIND))
            return governor.group(1).lower() if governor else ""
        return word

    def slash_word(self, previous: str, following: str) -> str | None:
        """Return the word of the slash between two numbers, by the words around them, or None."""
        return self.slash_words.get(previous) or self.slash_nouns.get(following.lower())

    def inflected(self, word: str, previous_word: str) -> str:
        """Return the reading ``word`` of an abbreviation as it is inflected after ``previous_word``."""
        return self.inflections.get(previous_word, {}).get(word, word)


@cache
def language_table(module_file: str) -> LanguageTable:
    """Return the table of the language in whose folder, named by its code, ``module_file`` is."""
    return _parse_table(Path(module_file).parent.name, load_tables(module_file, "table.toml"))


_WORD_SETS = (
    "code_words",
    "numbering_words",
    "minute_cues",
    "either_endings",
    "either_replaced",
    "either_short_words",
    "letter_words",
    "code_endings",
    "numbered_nouns",
    "ordinal_initialisms",
    "mid_sentence_words",
    "spelled_words",
    "compass_cues",
    "short_words",
    "function_words",
    "key_cues",
    "hour_cues",
    "per_nouns",
    "per_cues",
    "spelled_domains",
    "section_words",
    "ordinal_nouns",
    "date_cues",
    "listed_weekdays",
    "numbered_abbreviations",
    "weekday_cues",
    "weekday_joints",
    "slash_cues",
    "closing_abbreviations",
    "numbered_words",
    "verb_units",
    "words_after_units",
    "case_joints",
    "size_units",
    "day_joints",
    "hour_words",
    "opening_cues",
    "score_cues",
    "plural_adjectives",
    "counted_joints",
    "pronoun_cues",
    "partitives",
    "weekday_words",
    "weekday_followers",
)
_NAME_LISTS = ("months", "month_abbreviations", "duration_units")
_NOUNS = ("percent", "hour", "times", "page")
_NOUN_TABLES = ("units", "magnitudes")
_NAMED_TABLES = (
    "cases",
    "genders",
    "ordinal_rules",
    "weekdays",
    "per",
    "roman_numbers",
    "titles",
    "other_months",
    "days_after",
    "bare_ordinals",
    "slash_words",
    "slash_nouns",
    "signed_nouns",
    "ratio_words",
)
_SPELLING_TABLES = (
    "abbreviations",
    "bare_abbreviations",
    "numbered_readings",
    "score_readings",
)  # keys "tel|Tel"
_ENDING_TABLES = (
    "gender_by_ending",
    "few_gender_by_ending",
    "case_by_ending",
    "few_case_by_ending",
    "genitive_gender_by_ending",
)


def _parse_table(code: str, values: dict[str, Any]) -> LanguageTable:
    """Build a table from the values of its file; keys that are no fields raise TypeError."""
    parsed = dict(values)
    for name in values.keys() & {*_WORD_SETS}:
        parsed[name] = frozenset(values[name].split())
    for name in values.keys() & {*_NAME_LISTS}:
        parsed[name] = tuple(values[name].split())
    for name in values.keys() & {*_NOUNS}:
        parsed[name] = parse_noun(values[name])
    for name in values.keys() & {*_NOUN_TABLES}:
        parsed[name] = {key: parse_noun(noun) for key, noun in expand_names(values[name]).items()}
    for name in values.keys() & {*_NAMED_TABLES}:
        parsed[name] = expand_names(values[name])
    for name in values.keys() & {*_ENDING_TABLES}:
        endings = expand_names(values[name]).items()
        parsed[name] = dict(sorted(endings, key=lambda item: -len(item[0])))
    for name in values.keys() & {*_SPELLING_TABLES}:
        rows = values[name].items()
        parsed[name] = {written: said for spellings, said in rows for written in spellings.split("|")}
    parsed["units"] = {name.replace("_", " "): noun for name, noun in parsed["units"].items()}
    parsed["inflections"] = _by_previous_word(values.get("inflections", {}))
    parsed["ordinals_by_noun"] = {
        name.replace("_", " "): rules
        for name, rules in expand_names(values.get("ordinals_by_noun", {})).items()
    }
    abbreviations = parsed.get("abbreviations", {})
    unspaced = {short.replace(". ", "."): words for short, words in abbreviations.items()}
    first = {short.capitalize(): words for short, words in abbreviations.items() if len(short) > 2}
    parsed["abbreviations"] = first | unspaced | abbreviations  # "Vgl." at a sentence's start, "z.B."
    for degrees in {"°C", "°F"} & parsed["units"].keys():
        for written in ("° ", "º", "º "):
            parsed["units"].setdefault(written + degrees[1], parsed["units"][degrees])
    parsed["money"] = {sign: _parse_currency(nouns) for sign, nouns in expand_names(values["money"]).items()}
    return LanguageTable(code=code, **parsed)


def _parse_currency(text: str) -> tuple[CountedNoun, CountedNoun | None]:
    """Parse "m: Euro / m: Cent"; a currency without a second noun has no hundredth."""
    unit, _, hundredth = text.partition(" / ")
    return parse_noun(unit), parse_noun(hundredth) if hundredth else None


def _by_previous_word(groups: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the inflections of ``groups``, whose keys are lists of words, by each of the words."""
    found: dict[str, dict[str, str]] = {}
    for names, words in groups.items():
        for name in names.split():
            found.setdefault(name, {}).update(words)
    return found
