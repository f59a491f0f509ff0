"""Tables of Chinese and Japanese, loaded from the file ``table.toml`` of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..data_files import expand_names, load_tables


@dataclass(frozen=True, slots=True)
class HanTable:
    """Words of a language that is written in Han characters."""

    code: str
    wide_punctuation: str  # wide forms of , ; : . ! ?
    digits: tuple[str, ...]  # in codes and phone numbers
    code_words: tuple[str, ...]  # a number after one of these is a code
    phone_words: tuple[str, ...]  # the same for a number that follows at once or nearly so
    counted: tuple[str, ...]  # a number before one of these counts something and is no code
    marks: Mapping[str, str]  # names of signs
    currencies: Mapping[str, str]  # names by signs
    units: Mapping[str, str]  # names of units by their symbols
    rates: Mapping[str, str]  # words before the number, of which the first is said, and after it
    weekdays: Mapping[str, str]  # of the "(木)" after a date
    minus: str  # before a negative number
    power: str  # before and after an exponent
    per: str  # the "/" of a price a month
    range_word: str  # between two numbers
    over: str  # between two numbers with "/" that are neither a fraction nor a date
    about: str  # the "~" before a number
    versus: str  # between the numbers of a score
    version_point: str  # between the numbers of a version
    date_words_before: tuple[str, ...]  # "3/4" after one of these is a date
    date_words_after: tuple[str, ...]
    fraction_words_before: tuple[str, ...]  # "9/12" after one of these is a fraction
    fraction_words_after: tuple[str, ...]
    score_words_before: tuple[str, ...]  # "21:15" after one of these is a score
    score_words_after: tuple[str, ...]
    duration_words_before: tuple[str, ...] = ()  # "3:45" after one of these is minutes and seconds
    season_words: tuple[str, ...] = ()  # after the "2026-27" of two years
    year_nouns: tuple[str, ...] = ()  # 2024 before one of these is a year
    measures: tuple[str, ...] = ()  # a number before one of these counts something
    no_measures: tuple[str, ...] = ()  # begin with a measure, but are none
    spelled_before: tuple[str, ...] = ()  # a room or a bus: three or four digits before it are spelled
    spelled_after: tuple[str, ...] = ()  # a floor: three or four digits after it are a room
    code_names: str = ""  # pattern of what follows the digits of a code: "是您的验证码"
    number_prefixes: Mapping[str, str] = field(default_factory=dict)  # readings of words before a number
    block_separator: str = ""  # between the numbers of a street address; "" where it has none


@cache
def han_table(module_file: str) -> HanTable:
    """Return the table of the language in whose folder, named by its code, ``module_file`` is."""
    values = load_tables(module_file, "table.toml")
    lists = {
        name: tuple(str(value).split())
        for name, value in values.items()
        if isinstance(value, str) and HanTable.__annotations__[name] == tuple[str, ...]
    }
    units = {name: expand_names(values[name]) for name in ("units", "rates")}
    return HanTable(code=Path(module_file).parent.name, **(values | lists | units))
