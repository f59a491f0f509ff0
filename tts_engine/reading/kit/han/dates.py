"""Dates, weekdays, fractions and scores of Chinese and Japanese: what "/", ":" and brackets mean.

"11/26" is a date, "1/3" a fraction and "135/85" neither; the words beside a number decide where its value
does not.
"""

import re
from abc import ABC, abstractmethod

from ..spelling import Speller
from ..tokenizer import RuleRow, ScanState, any_of
from .numbers import HanNumbers
from .tables import HanTable

_CONTEXT_CHARACTERS = 12  # beside a number, in which a word decides its reading
_TIME_FOLLOWS = r" ?\d{1,2}[:時时点點]|の ?\d|の(?:午|朝|昼|夜|夕)|[(（][周週星礼月火水木金土日一二三四五六]"
_DATE_RANGE_FOLLOWS = r" ?[~–—-] ?\d{1,2}/\d"
_DATE_RANGE_BEFORE = re.compile(r"\d/\d{1,2}(?:[(（].{1,3}[)）])? ?[~–—-] ?\Z")
_ENDS_OF_WEEKDAYS = tuple("一二三四五六日天曜")
_HALF_TIME_AHEAD = re.compile(r"[(（]\d{1,2}[:-]\d{1,2}[)）]")
_HALF_TIME_BEHIND = re.compile(r"\d[:-]\d{1,2}[(（]\Z")
_SET = re.compile("6-[0-4]|7-[56]")  # of tennis
_LOST_SET = re.compile("[0-4]-6|[56]-7")
_SET_WORD = "6-4"  # noted as the word before a set
_TIE_BREAK = re.compile(r"[67]-[67][(（]\d{1,2}[)）]")
_MONTH_AND_DAY = r"(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12]\d|3[01])"
_PADDED_MONTH_AND_DAY = r"(?:0[1-9]-(?:0[1-9]|[12]\d|3[01])|1[0-2]-0[1-9])"


class HanDates(ABC):
    """Recognisers of dates, fractions and scores."""

    def __init__(self, table: HanTable, numbers: HanNumbers, speller: Speller) -> None:
        self.table = table
        self.numbers = numbers
        self.speller = speller
        self._date_follows = re.compile(
            f"{_TIME_FOLLOWS}|{_DATE_RANGE_FOLLOWS}|{any_of(table.date_words_after)}"
        )
        self._fraction_follows = re.compile(any_of(table.fraction_words_after))
        self._score_follows = re.compile(any_of(table.score_words_after))

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a digit."""
        return (
            (r"((?:19|20)\d\d)(-)(\d\d)-(\d\d)T(?=\d\d:\d\d)", self._read_date),
            (r"(\d\d:[0-5]\d(?::[0-5]\d)?)(?:\.\d{1,9})?Z(?![A-Za-z])", self._read_universal_time),
            (r"((?:1[5-9]|2[01])\d\d)([-/.])(\d{1,2})\2(\d{1,2})(?![\d-])", self._read_date),
            (r"(\d{1,2})/(\d{1,2})/((?:19|20)\d\d)(?!\d)", self._read_date_with_year_last),
            (r"((?:19|20)\d\d)[/-](0[1-9]|1[0-2]|[1-9])(?![\d/.-])", self._read_year_and_month),
            (
                rf"({_MONTH_AND_DAY})(?= \d{{1,2}}:\d\d|[(（](?!\d{{1,2}}[:)）-]))(?![\d-])",
                self._read_month_and_day,
            ),
            (rf"({_PADDED_MONTH_AND_DAY})(?![\d-])", self._read_month_and_day),
            (r"(\d{1,2})/(\d{1,2})[~–—-](\d{1,2})(?![\d/:.])", self._read_days),
            (r"(\d{1,4})/(\d{1,5})(?![\d/])", self._read_slash),
            (r"(\d{1,2}):(\d\d)(?![\d:])", self._read_duration),
            (r"(\d{1,3})[:-](\d{1,3})(?![\d:-])", self._read_score),
        )

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a sign."""
        days = "".join(self.table.weekdays)
        return (
            (rf"[~–-](?={self.weekday(days)})", self._read_range_of_weekdays),
            (rf"[(（]([{days}])(?:曜日?)?(?:[・,、]?祝)?[)）]", self._read_weekday),
        )

    @abstractmethod
    def weekday(self, days: str) -> str:
        """Return the pattern of a weekday. days: members of the class of their own characters."""

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a letter."""
        return ()

    def _read_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2026-05-03" or "2026/5/3"."""
        year, month, day = match.group(1), int(match.group(3)), int(match.group(4))
        return self._emit_date(scan, match, f"{year}年", month, day)

    def _read_universal_time(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "08:14:09Z" of a log."""
        scan.emit(self.numbers.words(match.group(1)), *match.span(1))
        scan.emit("UTC", match.end(1), match.end())
        return self.speller.finish_number(scan, match.end())

    def _read_date_with_year_last(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "11/26/2026"."""
        return self._emit_date(scan, match, f"{match.group(3)}年", int(match.group(1)), int(match.group(2)))

    def _read_year_and_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2026/11"; after a word that announces a code it is one."""
        if scan.context.code_words_left:
            return None
        scan.emit(self.numbers.words(f"{match.group(1)}年{int(match.group(2))}月"), *match.span())
        return self.speller.finish_number(scan, match.end())

    def _read_month_and_day(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "12-05"; after a word that announces a code it is one."""
        if scan.context.code_words_left:
            return None
        month, _, day = match.group(1).partition("-")
        return self._emit_date(scan, match, "", int(month), int(day))

    def _read_slash(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "11/26", "1/3" or "135/85"."""
        one, other = int(match.group(1)), int(match.group(2))
        before = scan.view[max(0, match.start() - _CONTEXT_CHARACTERS) : match.start()].rstrip()
        is_date = 1 <= one <= 12 and 1 <= other <= 31 and len(match.group()) <= 5
        if is_date and self._is_after_or_before_date(scan.view, match.end(), before):
            return self._emit_date(scan, match, "", one, other)
        is_fraction = 0 < one <= other and (
            (one < other and (_is_everyday_fraction(one, other) or not is_date))
            or before.endswith(self.table.fraction_words_before)
            or bool(self._fraction_follows.match(scan.view, match.end()))
        )
        if is_fraction:
            scan.emit(self.numbers.words(match.group()), *match.span())
            return self.speller.finish_number(scan, match.end())
        if is_date:
            return self._emit_date(scan, match, "", one, other)
        scan.emit(self.numbers.words(match.group(1)) + self.table.over, match.start(), match.start(2))
        return match.start(2)

    def _is_after_or_before_date(self, view: str, end: int, before: str) -> bool:
        """Whether a word, a time or another date beside it makes "3/4" a date."""
        return (
            before.endswith(self.table.date_words_before)
            or _DATE_RANGE_BEFORE.search(before) is not None
            or self._date_follows.match(view, end) is not None
        )

    def _read_days(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "11/26~28"."""
        month, first, last = map(int, match.groups())
        if not (1 <= month <= 12 and 1 <= first < last <= 31):
            return None
        words = self.numbers.words(self.month_and_day(month, first)) + self.table.range_word
        scan.emit(words + self.numbers.words(f"{last}日"), *match.span())
        return self.speller.finish_number(scan, match.end())

    def _read_duration(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3:45" of a call that took so long."""
        before = scan.view[max(0, match.start() - _CONTEXT_CHARACTERS) : match.start()].rstrip(" ：:")
        if not before.endswith(self.table.duration_words_before or ("\n",)):
            return None
        minutes = f"{int(match.group(1))}分" if int(match.group(1)) else ""
        scan.emit(self.numbers.words(f"{minutes}{int(match.group(2))}秒"), *match.span())
        return self.speller.finish_number(scan, match.end())

    def _read_score(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "21:15" as a score if a word beside it says so."""
        before = scan.view[max(0, match.start() - _CONTEXT_CHARACTERS) : match.start()].rstrip()
        # "4-1(2-0)大胜"
        half_time = _HALF_TIME_AHEAD.match(scan.view, match.end())
        end = half_time.end() if half_time else match.end()
        is_half_time = _HALF_TIME_BEHIND.search(before) is not None
        is_set = _SET.fullmatch(match.group()) or (
            scan.context.word_before_number == _SET_WORD and _LOST_SET.fullmatch(match.group())
        )
        if not (
            is_set
            or _TIE_BREAK.match(scan.view, match.start())
            or before.endswith(self.table.score_words_before)
            or self._score_follows.match(scan.view, end + is_half_time)
        ):
            return None
        words = map(self.numbers.words, match.groups())
        scan.emit(self.table.versus.join(words), *match.span())
        if is_set:
            scan.context.previous_word = _SET_WORD
        return self.speller.finish_number(scan, match.end())

    def _emit_date(
        self, scan: ScanState, match: re.Match[str], year: str, month: int, day: int
    ) -> int | None:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        scan.emit(self.numbers.words(f"{year}{self.month_and_day(month, day)}"), *match.span())
        return self.speller.finish_number(scan, match.end())

    def month_and_day(self, month: int, day: int | None = None) -> str:
        text = f"{month}月" if day is None else f"{month}月{day}日"
        return self.numbers.month_and_day(text)

    def _read_range_of_weekdays(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "~" of "周一~周五"."""
        if scan.view[match.start() - 1 : match.start()] not in _ENDS_OF_WEEKDAYS:
            return None
        scan.emit(self.table.range_word, *match.span())
        return match.end()

    def _read_weekday(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "(木)" after a date."""
        if not scan.context.after_number:
            return None
        scan.emit(self.table.weekdays[match.group(1)], *match.span())
        return self.speller.finish_number(scan, match.end())


def _is_everyday_fraction(one: int, other: int) -> bool:
    return one < other and (other <= 5 or (one == 1 and other in (6, 8, 10)))
