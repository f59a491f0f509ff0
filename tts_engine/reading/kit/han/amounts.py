"""Amounts of Chinese and Japanese: numbers with counters, units and currencies, ranges and minus signs."""

import re

from ...number_formatter import MAX_NUMBER_DIGITS
from ..spelling import Speller
from ..tokenizer import RuleRow, ScanState, any_of
from .numbers import NUMBER, HanNumbers
from .tables import HanTable

_COUNTER = "[年月日号號时時点點分秒元円個个]"
_FIRST = rf"[$€£¥]?{NUMBER}(?::{NUMBER}){{0,3}}(?:%|‰|°[CF]?)?"
# "5月1日", "3点20分", "3点20", "14:30"
_EXPRESSION = (
    rf"\d{{1,2}}:[0-5]\d(?=[年月日])|{_FIRST}{_COUNTER}(?:{NUMBER}{_COUNTER}){{1,5}}"
    rf"|\d{{1,2}}[时時点點]\d\d(?![\d:.,])|{_FIRST}{_COUNTER}?"
)
_LARGE = "[万亿萬億兆千]"
_RANGE = "[~–—-]"
_CONTEXT_CHARACTERS = 8  # beside a number, in which words decide its reading
_AMOUNT_BEFORE = re.compile(r"\d[^\d\s，。、]{0,3}\Z")
_NUMBERS_OF_AMOUNT = re.compile(r"\d+")


class HanAmounts:
    """Recognisers of amounts."""

    def __init__(self, table: HanTable, numbers: HanNumbers, speller: Speller) -> None:
        self._table = table
        self._numbers = numbers
        self._speller = speller
        units = any_of((*table.units, *table.rates))
        end = r"(?![A-Za-z0-9^]|/[A-Za-z])"
        # "1h30min", "1m75cm"
        self._unit = rf"(?:(?:{units})(?:{end}|(?=\d{{1,3}}(?:min|cm|mm|g){end})))"
        self._counted = re.compile(
            rf" ?(?:{self._unit})|{any_of(table.counted)}|{any_of(table.measures or (':',))}"
            r"|,\d{3}(?!\d)|\.\d"
        )

    def counts(self, text: str, at: int) -> bool:
        """Return whether a word or a unit that numbers count stands at ``at``."""
        return self._counted.match(text, at) is not None

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a letter: "HK$88"."""
        codes = [sign for sign in self._table.currencies if sign[0].isalpha()]
        return ((rf"({any_of(codes)}) ?({NUMBER}(?:{_LARGE}+)?)(?![A-Za-z\d])", self._read_money),)

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a digit before those of digits beside letters."""
        ends = rf"(?:{_RANGE}({NUMBER}))?"
        return ((rf"({NUMBER}){ends}( ?)({self._unit})", self._read_with_unit),)

    def expression_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a digit last."""
        return ((_EXPRESSION, self._read_expression),)

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a sign."""
        signs = any_of(sign for sign in self._table.currencies if not sign[0].isalpha())
        return (
            (rf"({signs})({NUMBER}){_RANGE}\1?({NUMBER}{_LARGE}*)[元円]?", self._read_money_range),
            (rf"({signs})({NUMBER}{_LARGE}+)[元円]?", self._read_money),
            (rf"({signs})-({NUMBER}{_LARGE}*)[元円]?", self._read_negative_money),
            (_EXPRESSION, self._read_expression),
            (r"-(?=[$€£¥]?\d)", self._read_minus),
            (rf"{_RANGE}(?= ?[-$€£¥]?\d)", self._read_range),
            (r"[×*](?= ?\d)", self._read_times),
            (r"\^(\d{1,3})(?!\d)", self._read_power),
            (r"[<>≥≤±≈](?= ?\d)|÷", self._read_sign),
            (rf"/ ?({self._unit})", self._read_per_unit),
            (
                rf"/(?={any_of((*self._table.measures, *'年月周天日时次人件个個時回泊枚名台'))})",
                self._read_per,
            ),
        )

    def _read_expression(self, scan: ScanState, match: re.Match[str]) -> int | None:
        text = match.group()
        if max(len(run) for run in _NUMBERS_OF_AMOUNT.findall(text)) > MAX_NUMBER_DIGITS:
            return None
        if text[0] in "$€£¥" and text[-1] in "元円":
            text = text[1:]
        words, end = self._numbers.expression(text, scan.view, *match.span())
        scan.emit(words, match.start(), end)
        return self._speller.finish_number(scan, end)

    def _read_with_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "5 km", "10-15kg" or "60km/h"."""
        first, last, blank, unit = match.groups()
        if len(max(_NUMBERS_OF_AMOUNT.findall(match.group()), key=len)) > MAX_NUMBER_DIGITS:
            return None
        if blank and len(unit) == 1:  # "3 G", a list
            return None
        name = self._table.units.get(unit, "")
        if unit in self._table.rates:
            leads, _, name = self._table.rates[unit].partition(" ")
            self._emit_lead(scan, leads.split("|"), match.start())
        if last is not None:
            words = self._numbers.with_unit(first, "") + self._table.range_word
            scan.emit(words + self._numbers.with_unit(last, name), *match.span())
        else:
            scan.emit(self._numbers.with_unit(first, name), *match.span())
        return self._speller.finish_number(scan, match.end())

    def _emit_lead(self, scan: ScanState, leads: list[str], at: int) -> None:
        """Say "每小时" before a speed, unless one of ``leads`` stands before it."""
        before = scan.view[max(0, at - _CONTEXT_CHARACTERS) : at]
        if not any(lead in before for lead in leads):
            scan.emit(leads[0], at, at + 1)

    def _read_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "¥1万" or "HK$88"."""
        words = self._numbers.with_unit(match.group(2), self._table.currencies[match.group(1)])
        scan.emit(words, *match.span())
        return self._speller.finish_number(scan, match.end())

    def _read_negative_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "¥-500"."""
        scan.emit(self._table.minus, match.start(), match.start(2))
        return self._read_money(scan, match)

    def _read_money_range(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "¥100-200"."""
        first = self._numbers.with_unit(match.group(2), "") + self._table.range_word
        last = self._numbers.with_unit(match.group(3), self._table.currencies[match.group(1)])
        scan.emit(first + last, *match.span())
        return self._speller.finish_number(scan, match.end())

    def _read_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "~" between two amounts."""
        if not scan.context.after_number:
            return None
        scan.emit(self._table.range_word, *match.span())
        return match.end()

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        before = scan.view[match.start() - 1 : match.start()]
        follows_amount = scan.context.after_number and before not in ("~", "–", "—", "-", " ", "")
        if follows_amount or (before.isascii() and before not in ("", " ", "~", "-", "(", "\n")):
            return None
        scan.emit(self._table.minus, *match.span())
        return match.end()

    def _read_times(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if not scan.context.after_number:
            return None
        return self._read_sign(scan, match)

    def _read_sign(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._table.marks[match.group()], *match.span())
        return match.end()

    def _read_power(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "^9" of "10^9"."""
        if not scan.context.after_number:
            return None
        before, _, after = self._table.power.partition(" ")
        scan.emit(before + self._numbers.with_unit(match.group(1), after), *match.span())
        return self._speller.finish_number(scan, match.end())

    def _read_per(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "/" of "19.9元/月"."""
        if not _AMOUNT_BEFORE.search(scan.view, max(0, match.start() - _CONTEXT_CHARACTERS), match.start()):
            return None
        scan.emit(self._table.per, *match.span())
        return match.end()

    def _read_per_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "/kg" of a price."""
        if not scan.context.after_number or match.group(1) not in self._table.units:
            return None
        scan.emit(self._table.per + self._table.units[match.group(1)], *match.span())
        return match.end()
