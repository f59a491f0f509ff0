"""Rules of large numbers with a word: "2,5 Mio. €", "15 mil km"."""

import re

from ...tokenizer import RuleRow, ScanState, any_of
from ..language_table import LanguageTable
from ..number_context import TableNumberContext
from ..numbers import NumberPatterns, TableNumberWords
from ..plural_rules import CountedNoun
from ..speller import TableSpeller
from .rates import TableRates


class TableMagnitudes:
    """Recognisers of large numbers of one language."""

    def __init__(
        self,
        table: LanguageTable,
        numbers: TableNumberWords,
        speller: TableSpeller,
        context: TableNumberContext,
        patterns: NumberPatterns,
        rates: TableRates,
    ) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        self._context, self._patterns, self._rates = context, patterns, rates

    def money_row(self) -> RuleRow:
        """Return the rule of "2,5 Mio. €"."""
        currency = any_of(self._table.money)
        return rf"{self._number}\s?(?P<currency>{currency}){self._patterns.end}", self.read_money

    def other_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of "15 mil km" and of "15 mil"."""
        end = self._patterns.end
        return (
            (rf"{self._number}\s(?P<unit>{self._patterns.units}){end}", self._read_unit),
            (rf"{self._number}{end}", self._read_alone),
        )

    @property
    def _number(self) -> str:
        return rf"{self._patterns.decimal}\s?(?P<magnitude>{self._patterns.magnitudes})"

    def read_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read an amount of money with its currency before or after it."""
        end = self._read_large(scan, match, self._table.money[match["currency"]][0])
        return self._rates.read_per(scan, scan.after_repeated(scan.words[-1].text, end))

    def _read_unit(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "15 mil km"."""
        return self._read_large(scan, match, self._table.units[match["unit"]])

    def _read_alone(self, scan: ScanState, match: re.Match[str]) -> int:
        noun = self._table.magnitudes[match["magnitude"]]
        words = self._numbers.counted(
            match["whole"], match["fraction"], noun, self._context.case(scan, match)
        )
        return self._speller.emit_number(scan, words, *match.span())

    def _read_large(self, scan: ScanState, match: re.Match[str], unit: CountedNoun) -> int:
        words = self._numbers.large_amount(
            match["whole"], match["fraction"], match["magnitude"], unit, self._context.case(scan, match)
        )
        return self._speller.emit_number(scan, words, *match.span())
