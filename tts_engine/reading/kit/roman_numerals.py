"""Roman numerals."""

import re
from itertools import pairwise
from typing import Final

_NUMERAL: Final = re.compile(r"(?=[IVXLC])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,4})\Z")
_VALUES: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def roman_value(numeral: str) -> int | None:
    """Return the value of a numeral of I, V, X, L and C, also of "IIII"; None if it is not well-formed."""
    if not _NUMERAL.match(numeral):
        return None
    values = [_VALUES[letter] for letter in numeral]
    return sum(-value if value < after else value for value, after in pairwise([*values, 0]))
