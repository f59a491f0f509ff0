"""Korean: "(주)" and the days in brackets, month before day, houses, ranges, and irregular months."""

import re
from dataclasses import replace
from typing import Final

from ...clause_boundaries import BoundaryRules
from ...kit.patterns import PatternBehind
from ...kit.table_rules.amounts.amounts import TableAmounts
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.number_context import TableNumberContext
from ...kit.table_rules.numbers import TableNumberWords
from ...kit.tokenizer import RuleRow, ScanState, any_of
from ...unicode_scripts import HAN, HANGUL, LATIN

_BRACKETED_WORDS = {"사": "사단법인", "유": "유한회사", "재": "재단법인", "주": "주식회사"}
_BRACKETED_WEEKDAYS = {
    "월": "월요일",
    "화": "화요일",
    "수": "수요일",
    "목": "목요일",
    "금": "금요일",
    "토": "토요일",
    "일": "일요일",
    "월~금": "월요일에서 금요일",
    "월-금": "월요일에서 금요일",
    "월~토": "월요일에서 토요일",
    "월-토": "월요일에서 토요일",
    "토~일": "토요일에서 일요일",
    "토-일": "토요일에서 일요일",
}
# After "5/3" as a date
_DATE_ENDS = (
    r"\(| ?(?:기준|현재|마감|예정|출발|도착|출시|접수|발송|방문|체크[인아])"
    r"|까지|부터|에(?!서|는 )| ?자 |[~-]\d{1,2}/\d| \d{1,2}:\d\d| 오[전후]"
)
_SET = re.compile(r"[0-7]-[0-7]")  # of tennis
# After "4-1" as a score
_SCORE_ENDS = (
    r"(?:\(\d[-:]\d\))?(?:으?로)? ?"
    r"(?:이[겼기긴]|승리|패[했배]|졌|지고|비[겼기긴]|앞[섰서]|뒤[졌지]|완승|대승|역전|꺾|제압|완파)"
)
_MONTHS = {"6": "유", "06": "유", "10": "시"}  # read differently before "월"
_STREET_BEHIND = PatternBehind(r"(?:(?<!으)로|길|동|리|가) \Z")
_PERIOD_BEHIND = PatternBehind(r"\d ?(?:일|주|주일|달|개월|년|시간|분)에 \Z")
_PLACE_AHEAD = re.compile(r"\d{1,2}번 ?(?:출구|게이트|창구|승강장|버스|홈|문제|좌석|테이블|방)")
_RANGE_ENDS = "일월년시분초원층호번회주개명도세간만억천"  # last letters of a word before the "~" of a range


class KoreanNumbers(TableNumberWords):
    """Number words of Korean."""

    def digit(self, digit: str) -> str:
        """Return the word of a digit in a code."""
        return "공" if digit == "0" else super().digit(digit)


class KoreanNumberContext(TableNumberContext):
    """Case and gender of numbers in Korean."""

    def case(self, scan: ScanState, match: re.Match[str]) -> str:
        """Return the case of a number; that of "3일에 1번" counts times."""
        is_of_period = _PERIOD_BEHIND.search(scan.view, match.start()) is not None
        names_place = _PLACE_AHEAD.match(scan.view, match.start()) is not None
        return "times" if is_of_period and not names_place else super().case(scan, match)


class KoreanDates(TableDates):
    """Recognisers of dates in Korean."""

    def own_rows(self) -> list[RuleRow]:
        """Return the rules of dates whose month comes first, and of irregular months."""
        stop = rf"/|\.(?=\d{{1,2}}\((?:{any_of(_BRACKETED_WEEKDAYS)})\))"
        return [
            (
                rf"(?P<month>\d{{1,2}})(?:{stop})(?P<day>\d{{1,2}})(?={_DATE_ENDS})",
                self._read_month_and_day,
            ),
            (rf"(?P<year>\d\d)([./])(?P<month>\d\d)\2(?P<day>\d\d)(?!\2?\d){self._end}", self._read_date),
            (rf"(?P<month>{any_of(_MONTHS)})(?=월)", self._read_irregular_month),
            (r"(?P<floor>[1-9]\d?)/(?P<floors>[1-9]\d?)(?=층)", self._read_floor),
            (rf"(?P<one>\d{{1,3}})[-:](?P<other>\d{{1,3}})(?={_SCORE_ENDS})", self._read_score),
            (r"(?P<one>6|7)-(?P<other>(?<=6-)[0-4]|[56])(?=,|\(\d{1,2}\))", self._read_score),
            (r"(?P<one>[0-6])-(?P<other>6|7)(?![\d-]|[.:]\d)", self._read_lost_set),
        ]

    def _read_month_and_day(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "5/3" of "5/3(월)"."""
        month, day = int(match["month"]), int(match["day"])
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        words = f"{self._table.months[month - 1]} {self._numbers.day(day, '')}일"
        return self._speller.emit_number(scan, words, *match.span())

    def _read_score(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "4-1" of "4-1로 이겼다"."""
        scan.emit(f"{self._numbers.number(int(match['one']))} 대", *match.span("one"))
        scan.context.previous_word = match.group()
        return self._speller.emit_number(
            scan, self._numbers.number(int(match["other"])), *match.span("other")
        )

    def _read_lost_set(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3-6" of "6-4, 3-6"."""
        follows_set = scan.context.previous_word == "0" and _SET.fullmatch(scan.context.word_before_number)
        return self._read_score(scan, match) if follows_set else None

    def _read_floor(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3/15" of "3/15층"."""
        floor, floors = int(match["floor"]), int(match["floors"])
        if floor > floors:
            return None
        words = f"{self._numbers.number(floors)} 층 중 {self._numbers.number(floor)}"
        return self._speller.emit_number(scan, words, *match.span())

    def _read_irregular_month(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._speller.emit_number(scan, _MONTHS[match.group()], *match.span())


class KoreanAmounts(TableAmounts):
    """Recognisers of amounts in Korean."""

    context_type = KoreanNumberContext
    repeats_units = True

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a sign."""
        ends = rf"(?: ~ |(?<=[\da-zA-Z.)%{_RANGE_ENDS}])~)(?=[^\W\d_]{{0,3}} ?[₩$€]?\d)"
        return (*super().sign_rows(), (ends, self._read_range_sign))

    def house_joint(self, scan: ScanState, start: int, stop: int) -> str:
        """Return the word between two numbers after the name of a street that no noun follows, else ""."""
        following = scan.view[stop : stop + 1]
        is_noun = following.isalpha() and following not in self._table.particle_letters
        return "다시" if _STREET_BEHIND.search(scan.view, start) and not is_noun else ""

    def _read_range_sign(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the sign of "3월 2일~3월 15일"."""
        scan.emit(self._table.range_word, *match.span())
        return match.end()

    def _read_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        # "제" makes an ordinal of the number, after which no unit follows.
        is_ordinal = scan.view.endswith("제", 0, match.start())
        return None if is_ordinal else super()._read_unit(scan, match)


class KoreanRules(TableNormalizer):
    """Recognisers of Korean."""

    numbers_type = KoreanNumbers
    dates_type = KoreanDates
    amounts_type = KoreanAmounts

    def own_symbol_rows(self) -> tuple[RuleRow, ...]:
        """Return the rule of words in brackets."""
        words = any_of((*_BRACKETED_WORDS, *_BRACKETED_WEEKDAYS))
        return ((rf"\(({words})\)", self._read_bracketed),)

    def _read_bracketed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "(주)", and the "(목)" of "26일(목)"; that of a price is no day."""
        last = scan.view[: match.start()].rstrip(" ")[-1:]
        words = _BRACKETED_WEEKDAYS if last.isdigit() or last in (".", "일") else _BRACKETED_WORDS
        spoken = words.get(match.group(1)) or _BRACKETED_WORDS.get(match.group(1))
        if spoken is None:
            return None
        scan.emit(spoken, *match.span())
        self._codes.note_word(scan, spoken)
        return match.end()


KOREAN: Final = replace(
    table_language(__file__, "Korean", KoreanRules, scripts=(LATIN, HAN, HANGUL), is_latin=False),
    boundary_rules=BoundaryRules,  # its clauses end as those of English do
)
