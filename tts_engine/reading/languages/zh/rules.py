"""Chinese: 2 is 两 before what it counts, and midnight is 零点; seasons, models and years of two digits."""

import re
from typing import Final

from ...kit.han.dates import HanDates
from ...kit.han.normalizer import HanNormalizer, han_language
from ...kit.han.numbers import NUMBER, HanNumbers
from ...kit.han.tables import HanTable
from ...kit.tokenizer import RuleRow, ScanState, any_of
from ...unicode_scripts import BOPOMOFO, HAN

_MIDNIGHT = re.compile(r"\A0:(\d\d)(?!\d)")  # a score to WeText
_TWO = re.compile(r"(?<![\d.,:/$€£¥])2(?![\d.,:/%‰])")  # a whole number
_END_OF_RANGE = re.compile(r"[~–—-]\d+")  # "-3" in "2-3天"
_PLAIN_NUMBER = re.compile(rf"{NUMBER}\Z")
_COUNTED_DECIMAL = re.compile(rf"({NUMBER})(?<=\.\d\d)((?![年月日号號])[{HAN}]+)\Z")  # "3043.12点": no month
_MIN_SERVICE_NUMBER_DIGITS = 5  # a number without a counter may be one that WeText spells: 10086
_MAX_MEASURE_CHARACTERS = 6
_CONTEXT_CHARACTERS = 8  # after a number, in which a measure word may stand


class ChineseNumbers(HanNumbers):
    """Words of numbers in Chinese."""

    def __init__(self, table: HanTable) -> None:
        super().__init__(table)
        self._measure = re.compile(any_of(table.measures))
        self._no_measure = re.compile(any_of(table.no_measures))

    def normalized(self, text: str) -> str:
        """Return a numeric expression as WeText reads it."""
        return super().normalized(_MIDNIGHT.sub(_say_midnight, text.replace(",", "")))

    def of_formula(self, number: str) -> str:
        """Return the words of a number of a formula, which counts nothing."""
        return "二" if number == "2" else super().of_formula(number)

    def with_unit(self, number: str, unit: str) -> str:
        """Return the words of a number and of the unit after it."""
        if number == "2" and unit:
            return f"两{unit}"
        # Without a counter WeText takes 120 for the number of a service, and 12.5 for a date.
        return self.by_wetext(f"{number.replace(',', '')}个").removesuffix("个") + unit

    def expression(self, text: str, view: str, start: int, stop: int) -> tuple[str, int]:
        """Return the words of ``text``, written at ``start`` to ``stop`` of a view, and ``stop``."""
        after = view[stop : stop + _CONTEXT_CHARACTERS].lstrip()
        text = self._settle_twos(text, view[max(0, start - 1) : start], after)
        if counted := _COUNTED_DECIMAL.match(text):
            return self.with_unit(*counted.groups()), stop
        is_plain = "." in text or len(text) < _MIN_SERVICE_NUMBER_DIGITS
        is_plain = is_plain and _PLAIN_NUMBER.match(text) is not None
        return self.with_unit(text, "") if is_plain else self.words(text), stop

    def month_and_day(self, text: str) -> str:
        """Return the month and day "2月3日" as ``words`` takes it."""
        return self._settle_twos(text, "", "")

    def _settle_twos(self, text: str, before: str, after: str) -> str:
        """Return ``text`` with 两 or 二 for each 2 in it; ``before`` and ``after``: what stands beside it."""
        if "2" not in text:
            return text
        whole = text + after[:_MAX_MEASURE_CHARACTERS]

        def settle(match: re.Match[str]) -> str:
            end_of_range = _END_OF_RANGE.match(whole, match.end())
            at = end_of_range.end() if end_of_range else match.end()
            is_ordinal = match.start() == 0 and before.endswith(("第", "+"))
            return "两" if not is_ordinal and self._counts(whole, at) else "二"

        return _TWO.sub(settle, text)

    def _counts(self, text: str, at: int) -> bool:
        """Whether a measure word, before which 2 is 两, stands at ``at``."""
        return self._measure.match(text, at) is not None and self._no_measure.match(text, at) is None


def _say_midnight(match: re.Match[str]) -> str:
    return "零点" if match.group(1) == "00" else f"零点{match.group(1)}分"


class ChineseDates(HanDates):
    """Recognisers of dates in Chinese."""

    def weekday(self, days: str) -> str:
        """Return the pattern of a weekday. days: members of the class of their own characters."""
        return f"周|週|星期|礼拜|禮拜|[{days}](?![{HAN}])"

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a digit."""
        seasons, nouns = any_of(self.table.season_words), any_of(self.table.year_nouns)
        return (
            (r"([1-9]\d?)/([1-9]\d?)(?=[层層楼樓])", self._read_floor),
            (r"[1-9]{2}(?=折)", self.speller.read_digits),
            *super().number_rows(),
            (rf"((?:19|20)\d\d)[/~–—-]((?:19|20)?\d\d)(?={seasons})", self._read_years),
            (rf"((?:19|20)\d\d)(?={nouns})", self._read_years),
            (r"(\d\d)年(\d{1,2})月(?:(\d{1,2})[日号號])?", self._read_short_year),
        )

    def _read_floor(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "15/28" of "15/28层"."""
        if int(match.group(1)) > int(match.group(2)):
            return None
        words = map(self.numbers.of_formula, match.groups())
        scan.emit(self.table.over.join(words), *match.span())
        return self.speller.finish_number(scan, match.end())

    def _read_short_year(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "26年3月", whose year is read digit by digit."""
        if int(match.group(2)) > 12:
            return None
        day = f"{int(match.group(3))}日" if match.group(3) else ""
        words = self.numbers.words(f"20{match.group(1)}年{self.month_and_day(int(match.group(2)))}{day}")
        scan.emit(words[2:], *match.span())
        return self.speller.finish_number(scan, match.end())

    def _read_years(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "2026-27" of a season, or the "2024" of a model."""
        years = (
            self.numbers.words(f"{year:0>4}年").removesuffix("年")[-2 if len(year) == 2 else 0 :]
            for year in match.groups()
        )
        scan.emit(self.table.range_word.join(years), *match.span())
        return self.speller.finish_number(scan, match.end())


class ChineseRules(HanNormalizer):
    """Recognisers of Chinese."""

    numbers_type = ChineseNumbers
    dates_type = ChineseDates


# The others are written as Mandarin is.
CHINESE: Final = han_language(__file__, "Chinese", ChineseRules, BOPOMOFO, ("cmn", "yue", "wuu", "nan"))
