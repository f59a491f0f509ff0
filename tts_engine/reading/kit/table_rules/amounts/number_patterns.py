"""Patterns of numbers, units and currencies of one language."""

import re

from ...tokenizer import any_of
from ..language_table import LanguageTable


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
