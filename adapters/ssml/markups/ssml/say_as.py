"""SSML's ``say-as``: a text becomes one that the reader of the voice's language reads as asked.

Types that the reader recognises by itself stay as they are: times, amounts of money, dates without a format.
Source: W3C SSML 1.0 say-as attribute values (note of 2005), and the types that cloud services added.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

_DIGITS: Final = re.compile(r"\d+")
_DATE_PART: Final = re.compile(r"\d{1,4}")
_PIVOT_YEAR: Final = 70  # "69" is 2069, "70" is 1970
# Groups in which the digits of a number are said that was written without any.
_PHONE_GROUPS: Final = {7: (3, 4), 10: (3, 3, 4), 11: (1, 3, 3, 4)}


def say_as(text: str, kind: str, date_format: str = "") -> str:
    """Return the text that is read instead; "" if the text itself is."""
    if kind == "date":
        return _date(text, date_format)
    make = _TYPES.get(kind)
    return make(text) if make else ""


def _characters(text: str) -> str:
    return " ".join("".join(text.split()))


def _digits(text: str) -> str:
    return " ".join(character for character in text if character.isdigit())


def _telephone(text: str) -> str:
    groups = _DIGITS.findall(text)
    if len(groups) == 1:
        groups = _grouped(groups[0])
    plus = "plus " if text.lstrip().startswith("+") else ""
    return plus + ", ".join(" ".join(group) for group in groups)


def _grouped(digits: str) -> list[str]:
    sizes = _PHONE_GROUPS.get(len(digits)) or (3,) * (len(digits) // 3 + 1)
    groups, at = [], 0
    for size in sizes:
        groups.append(digits[at : at + size])
        at += size
    return [group for group in groups if group]


def _ordinal(text: str) -> str:
    digits = text.strip()
    if not digits.isdecimal():
        return ""
    teen = digits[-2:] in ("11", "12", "13")
    return digits + ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th"))


def _cardinal(text: str) -> str:
    digits = text.strip().replace(",", "")
    return f"{int(digits):,}" if digits.isdecimal() and len(digits) <= 15 else ""


def _date(text: str, date_format: str) -> str:
    """Return an ISO date, which every reader knows, for a format with day, month and year."""
    order = "".join(dict.fromkeys(date_format.lower()))  # "yyyymmdd" is "ymd"
    parts = _DATE_PART.findall(text)
    if sorted(order) != ["d", "m", "y"] or len(parts) != len(order):
        return ""
    values = dict(zip(order, map(int, parts), strict=True))
    year = values["y"] + (0 if values["y"] >= 100 else 2000 if values["y"] < _PIVOT_YEAR else 1900)
    return f"{year:04}-{values['m']:02}-{values['d']:02}"


_TYPES: Final[Mapping[str, Callable[[str], str]]] = {
    "characters": _characters,
    "spell-out": _characters,
    "verbatim": _characters,
    "digits": _digits,
    "telephone": _telephone,
    "ordinal": _ordinal,
    "cardinal": _cardinal,
    "number": _cardinal,
}
