"""Choices between readings that are equally usual, with the defaults of English-speaking countries.

Source: Unicode CLDR 44 for the order of day and month; Ofcom's and ACMA's announcements for "oh".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ReadingStyle:
    """How English numbers are read where more than one reading is usual."""

    day_first: bool = False  # "3/4" is the third of April, not March fourth
    zero: Literal["zero", "oh"] = "zero"  # word of the digit 0 in codes and phone numbers


DEFAULT_READING_STYLE = ReadingStyle()
_DAY_FIRST = ReadingStyle(day_first=True)
_DAY_FIRST_OH = ReadingStyle(day_first=True, zero="oh")
READING_STYLES: Mapping[str, ReadingStyle] = {
    "en-US": DEFAULT_READING_STYLE,
    "en-CA": DEFAULT_READING_STYLE,
    "en-GB": _DAY_FIRST_OH,
    "en-IE": _DAY_FIRST_OH,
    "en-AU": _DAY_FIRST_OH,
    "en-NZ": _DAY_FIRST_OH,
    "en-ZA": _DAY_FIRST_OH,
    "en-IN": _DAY_FIRST,
}  # by BCP 47 tag


def style_of(language: str, default: ReadingStyle) -> ReadingStyle:
    """The style of a BCP 47 tag such as "en-GB", in any case; ``default`` for others."""
    known = {tag.lower(): style for tag, style in READING_STYLES.items()}
    return known.get(language.lower(), default)
