"""Tables of Chinese and Japanese, loaded from ``zh.toml`` and ``ja.toml`` beside this module."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from ...data_files import load_tables

HAN_LANGUAGES = ("zh", "ja")


@dataclass(frozen=True, slots=True)
class HanTable:
    """Words of a language that is written in Han characters."""

    code: str
    wide_punctuation: str  # wide forms of , ; : . ! ?
    digits: tuple[str, ...]  # in codes and phone numbers
    code_words: tuple[str, ...]  # a number after one of these is a code
    marks: Mapping[str, str]  # names of signs
    currencies: Mapping[str, str]  # names by signs
    per: str  # the "/" of a price a month
    range_word: str  # between two numbers
    number_prefixes: Mapping[str, str] = field(default_factory=dict)  # readings of words before a number
    block_separator: str = ""  # between the numbers of a street address; "" where it has none
    numbers_in_kana: bool = False  # numbers, with their counters, become katakana
    units: Mapping[str, str] = field(default_factory=dict)  # units as WeText knows them, by their symbols


@cache
def han_table(code: str) -> HanTable:
    """Return the table of a language in ``HAN_LANGUAGES``."""
    values = load_tables(__file__, f"{code}.toml")
    words = {name: tuple(values[name].split()) for name in ("digits", "code_words")}
    return HanTable(code=code, **(values | words))
