"""Rules of money: "€ 20", "$95 pesos", "€ 10-15", "12€50", "19,99 do 49,99 zł"."""

import re

from ...tokenizer import RuleRow, ScanState, any_of
from ..language_table import LanguageTable
from ..number_context import TableNumberContext
from ..numbers import NumberPatterns, TableNumberWords
from ..speller import TableSpeller
from .magnitudes import TableMagnitudes
from .rates import TableRates

_CODE_OF_CURRENCY = re.compile(r"[A-Z]{3}\Z|[A-Z][a-z]+\.\Z")  # may be written before an amount: "EUR 20"
_YEAR_BEFORE_MONEY = re.compile(r"(?:19|20)\d\d [€$£] ?\d")


class TableMoney:
    """Recognisers of money of one language."""

    def __init__(
        self,
        table: LanguageTable,
        numbers: TableNumberWords,
        speller: TableSpeller,
        context: TableNumberContext,
        patterns: NumberPatterns,
        rates: TableRates,
        magnitudes: TableMagnitudes,
    ) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        self._context, self._patterns, self._rates, self._magnitudes = context, patterns, rates, magnitudes
        self._codes_before = any_of(filter(_CODE_OF_CURRENCY.match, table.money)) or r"(?!)"

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of money that begins with a currency."""
        patterns = self._patterns
        currency = rf"(?P<currency>{patterns.signs}|(?:{self._codes_before})(?= ?\d))"
        amount = rf"(?=[^\d ]{{1,4}}\s?\d){currency}\s?{patterns.decimal}"
        names = any_of(name for name in self._table.money if name[0].isalpha())
        low = rf"(?P<low_currency>{patterns.signs})\s?(?P<low>{patterns.integer})"
        low += rf"(?:{patterns.decimal_mark}(?P<low_fraction>\d\d))?"
        low += rf"(?:[-–]| ?[-–] ?(?={patterns.signs}))(?:(?:{patterns.signs})\s?)?"
        return (
            (rf"{amount}\s?(?P<name>{names or '(?!)'}){patterns.end}", self._read_named_money),
            (rf"{amount}\s(?P<magnitude>{patterns.magnitudes}){patterns.end}", self._magnitudes.read_money),
            (rf"{low}{patterns.decimal}(?!\d|\s(?:{patterns.magnitudes}))", self._read_money_range),
            (rf"{amount}(?:[,.][-–]{{1,2}}(?!\d))?", self._read_money),
        )

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of money that begins with a letter, which is mostly a capital."""
        letters = {sign[0] for sign in self._table.money if not sign[-1].isalpha() and sign[0].isalpha()}
        begin = "(?=[A-Z])" if all("A" <= letter <= "Z" for letter in letters) else ""
        return tuple((begin + pattern, recognizer) for pattern, recognizer in self.sign_rows())

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of money that begins with a digit."""
        table, patterns = self._table, self._patterns
        mark, money = patterns.decimal_mark, f"(?P<currency>{any_of(table.money)}){patterns.end}"
        joints = any_of({table.range_word, *table.case_joints, *table.day_joints} - {""}) or "(?!)"
        return (
            (
                rf"(?P<whole>\d{{1,4}})(?P<sign>{patterns.signs}|m)(?P<fraction>\d\d){patterns.end}",
                self._read_inserted_unit,
            ),
            (
                rf"(?P<whole>{patterns.integer}){mark}(?P<fraction>\d\d)(?P<joint> (?:{joints}) | ?[-–] ?)"
                rf"(?={patterns.integer}(?:{mark}\d\d)?\s?{money})",
                self._read_first_money,
            ),
            self._magnitudes.money_row(),
            (rf"{patterns.decimal}(?:[,.][-–]{{1,2}})?\s?{money}", self._read_money),
        )

    def _read_named_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "$95 pesos" and "$12,845.60 MXN", whose sign is not said."""
        return self._read_money_of(scan, match, match["name"])

    def _read_money(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "€ 20" and "20 €"; the sign of "in 2026 € 20" belongs to the second number."""
        is_year = match.start("whole") == match.start() and _YEAR_BEFORE_MONEY.match(scan.view, match.start())
        return None if is_year else self._read_money_of(scan, match, match["currency"])

    def _read_money_of(self, scan: ScanState, match: re.Match[str], currency: str) -> int:
        whole, fraction, currency = self.sum_written(match["whole"], match["fraction"], currency)
        words = self._numbers.money(whole, fraction, currency, self._context.case(scan, match))
        scan.emit(words, *match.span())
        end = scan.after_repeated(words, match.end())
        return self._speller.finish_number(scan, self._rates.read_per(scan, end))

    def sum_written(self, whole: str, fraction: str | None, currency: str) -> tuple[str, str | None, str]:
        """Return the number, its fraction and the currency that are meant."""
        return whole, fraction, currency

    def _read_money_range(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "€ 10-15" or "€ 10 - € 15"."""
        unit, _ = self._table.money[match["low_currency"]]
        words = self._numbers.amount(
            match["low"], match["low_fraction"], unit.gender, self._context.case(scan, match)
        )
        scan.emit(words, match.start(), match.end("low"))
        scan.emit(self._table.range_word, match.end("low"), match.start("whole"))
        money = self._numbers.money(match["whole"], match["fraction"], match["low_currency"])
        scan.emit(money, match.start("whole"), match.end())
        return self._speller.finish_number(scan, self._rates.read_per(scan, match.end()))

    def _read_first_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "19,99 do" of "od 19,99 do 49,99 zł"."""
        table, case = self._table, self._context.case(scan, match)
        money = self._numbers.money(match["whole"], match["fraction"], match["currency"], case)
        scan.emit(money, match.start(), match.end("fraction"))
        joint = match["joint"].strip()
        joint = table.range_word if joint in "-–" else joint
        scan.emit(joint, *match.span("joint"))
        if joint not in table.case_joints:
            scan.context.previous_word = joint
        return match.end()

    def _read_inserted_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "12€50" and "1m75"."""
        sign = match["sign"]
        if sign in self._table.money:
            return self._speller.emit_number(
                scan, self._numbers.money(match["whole"], match["fraction"], sign), *match.span()
            )
        if sign not in self._table.units or len(match["whole"]) > 1:
            return None
        words = self._numbers.counted(match["whole"], None, self._table.units[sign])
        return self._speller.emit_number(
            scan, f"{words} {self._numbers.number(int(match['fraction']))}", *match.span()
        )
