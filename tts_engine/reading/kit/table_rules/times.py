"""Rules of hours and times in a language that a table describes."""

import re

from ...lazy_pattern import LazyPattern
from ..tokenizer import RuleRow, ScanState, any_of
from .language_table import LanguageTable
from .numbers import TableNumberWords
from .speller import TableSpeller

_MAX_HOUR = 24
_MAX_CLAUSE_OF_TIME = 12  # characters of a clause that is a time only
_TIME_BEHIND = re.compile(r"(?<![\d.,])\d{1,2}\.\d\d ?[-–] ?\Z")


def open_range(scan: ScanState, table: LanguageTable, opening: str, at: int) -> str:
    """Emit the word before a range unless it is written, and return the word before its first part."""
    previous = scan.context.previous_word
    if opening and previous != opening and previous not in table.cases:
        scan.emit(opening, at, at + 1)
        scan.context.note_word(opening)
    return scan.context.previous_word


class TableTimes:
    """Recognisers of times of one language."""

    whole_hour_cues: frozenset[str] = frozenset()  # words before "8h" as a time of day; none: any
    hour_mark = "hH"  # between hours and minutes: "9h30"; members of a pattern
    lone_hour_cues: frozenset[str] = frozenset()  # before an hour without a noun after it: "o 19."
    time_range_word = ""  # between two times, if it differs from ``range_word``
    minute_suffixes = ""  # after "9h30", which is no duration with them; members of a pattern

    def __init__(self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        names = {*table.weekdays.values()}
        inflected = (forms[name] for forms in table.inflections.values() for name in names & forms.keys())
        self._weekday_names = {name.lower() for name in (*names, *inflected)}
        self._score_cues = {*table.score_cues, *table.ratio_words}
        suffix = rf" ?(?:{table.hour_suffixes})(?!\w)"
        self._hour_follows = LazyPattern(
            rf" ?(?:[-–]|{re.escape(table.range_word)} ) ?\d{{1,2}}(?:[.:]\d\d)?{suffix}"
        )
        self._dash_before_time = LazyPattern(rf" ?[-–~/] ?(?=\d{{1,2}}(?:[:h]| h|\.\d\d|{suffix}))")
        forms = (form for unit in table.units.values() for form in unit.forms)
        nouns = rf" ?(?:%|(?:{any_of({*table.units, *table.money, *table.magnitudes, *forms})})(?!\w))"
        joint = rf"(?: ?[-–] ?| {re.escape(table.range_word)} )"
        self._unit_ahead = LazyPattern(nouns)
        self._other_time_ahead = LazyPattern(
            rf"(?: [^\W\d_]{{1,5}} | ?[-–] ?)\d{{1,2}}(?:[:.]\d\d)?{suffix}"
            rf"|{joint}\d{{1,2}}\.[0-5]\d(?!\d|\.\d)(?!{nouns})"
        )
        self._other_time_behind = LazyPattern(rf"(?<!\d)\d{{1,2}}\.[0-5]\d{joint}\Z")
        openings = "|".join(map(re.escape, sorted(table.opening_cues))) or "(?!)"
        self._opening_cues = tuple(table.opening_cues)
        self._opening_behind = re.compile(rf"(?<!\w)(?i:{openings})[^.!?\d]{{0,40}} \Z")

    def hour_rows(self) -> list[RuleRow]:
        """Return the rules of hours without minutes: "godz. 19", "pn. 9-17"."""
        joints = any_of((self._table.range_word, *self._table.case_joints))
        time, end = r"\d{1,2}(?:[:.][0-5]\d)?", r"(?![\w:/-]|[.,]\d| ?[%€$£₽])"
        return [
            (
                rf"(?P<first>{time})(?: ?[-–] ?| (?P<joint>{joints}) )(?P<second>{time}){end}",
                self._read_hours,
            ),
            (rf"(?P<hour>\d{{1,2}}){end}", self._read_lone_hour),
        ]

    def time_row(self) -> RuleRow:
        """Return the rule of "14:30", "9h30" and "9.05"."""
        table = self._table
        suffix = rf"(?: ?(?:{table.hour_suffixes}))?"
        whole_hour = r"| ?h(?!/(?!\d{1,2} ?[h:]))" if table.whole_hours else ""
        is_no_duration = r"(?!\d{1,2} ?[hH] ?\d\d ?[Mm]in)"
        minutes = ""
        if self.minute_suffixes:
            is_no_duration, minutes = "", rf"(?(mark)(?: ?(?:{self.minute_suffixes}))?)"
        pattern = (
            rf"{is_no_duration}(?P<hour>\d{{1,2}})"
            rf"(?:(?::|(?P<mark> ?[{self.hour_mark}] ?))(?P<minute>\d\d){minutes}{suffix}"
            rf"|\.(?P<after_stop>\d\d){suffix}{whole_hour})"
            rf"{table.end}(?!:\d|[ .]000(?!\d))(?(mark)(?!'))"
        )
        return pattern, self._read_time

    def seconds_row(self) -> RuleRow:
        """Return the rule of "14:02:11" and of the "14:02:11.5Z" of a log."""
        time = r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)(?:[.,](?P<fraction>\d{1,9}))?"
        zone = r"(?:(?P<utc>Z)|(?P<sign>[-+])(?P<offset>[01]\d):?[0-5]\d)?"
        return rf"{time}{zone}{self._table.end}(?!:\d)", self._read_seconds

    def _read_seconds(self, scan: ScanState, match: re.Match[str]) -> int | None:
        hour, table = int(match["hour"]), self._table
        if hour > _MAX_HOUR:
            return None
        case = self._hour_case(scan, scan.view[: match.start()])
        parts = [self._numbers.time(hour, int(match["minute"]), case)]
        if int(match["second"]) or match["fraction"]:
            parts.append(self.seconds_after(match["second"].lstrip("0") or "0", match["fraction"]))
        if match["sign"]:
            sign = table.marks["+"] if match["sign"] == "+" else table.minus_word
            parts.append(f"{sign} {self._numbers.number(int(match['offset']))}")
        scan.emit(" ".join(parts), match.start(), match.start("utc") if match["utc"] else match.end())
        for letter in "UTC" if match["utc"] else "":
            scan.emit(self._speller.letter_name(scan, letter), *match.span("utc"))
        return self._speller.finish_number(scan, match.end())

    def seconds_after(self, seconds: str, fraction: str | None) -> str:
        """Return the words of the seconds of a time of day."""
        noun = self._table.units[self._table.duration_units[-1]]
        return f"{self._table.seconds_joint} {self._numbers.counted(seconds, fraction, noun)}"

    def _read_time(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "14:30", and "9.05" where a word says that it is a time; a dash may lead to another time."""
        hour, minute = int(match["hour"]), int(match["minute"] or match["after_stop"] or 0)
        if hour > _MAX_HOUR or minute > 59 or scan.context.previous_word in self._score_cues:
            return None
        if match["after_stop"] and not self._is_told(scan, match):
            return None
        is_whole = not (match["minute"] or match["after_stop"])
        cues = self.whole_hour_cues
        if is_whole and cues and scan.context.previous_word not in cues:
            return None
        if self._dash_before_time.match(scan.view, match.end()):
            open_range(scan, self._table, self._table.time_range_opening, match.start())
        case = self._hour_case(scan, scan.view[: match.start()])
        end = self._speller.emit_number(scan, self._numbers.time(hour, minute, case), *match.span())
        return self._read_dash(scan, end)

    def _read_hours(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "9-17" of "pn. 9-17" and the "9 do 17" of "czynne od 9 do 17"."""
        table, previous, joint = self._table, scan.context.previous_word, match["joint"]
        times = [tuple(map(int, re.split("[:.]", match[part]))) for part in ("first", "second")]
        if any(time[0] > _MAX_HOUR or time[-1] > 59 for time in times):
            return None
        is_announced = previous in table.hour_words or previous in self._weekday_names
        is_announced = is_announced or self._is_lone_hour(scan, match)
        is_announced = is_announced or previous.startswith(self._opening_cues)
        is_opening = self._opening_behind.search(scan.view, max(0, match.start() - 60), match.start())
        is_after_day = self._is_alone(scan, match) and self._is_after_opening(scan, match.start())
        if self._is_counted(scan, match) or not (is_announced or is_opening or is_after_day):
            return None
        if not joint and previous != table.time_range_opening:
            previous = open_range(scan, table, table.time_range_opening, match.start())
        joint = joint or self.time_range_word or table.range_word
        first = self._hour_case(scan)
        second = first if joint in table.case_joints else table.case_after(joint)
        words = [
            self._numbers.time(time[0], time[1] if len(time) > 1 else 0, case)
            for time, case in zip(times, (first, second), strict=True)
        ]
        scan.emit(words[0], *match.span("first"))
        scan.emit(joint, match.end("first"), match.start("second"))
        return self._speller.emit_number(scan, words[1], *match.span("second"))

    def _read_lone_hour(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "19" of "o godz. 19", and of "o 19" without a noun."""
        hour = int(match["hour"])
        is_announced = scan.context.previous_word in self._table.hour_words or self._is_lone_hour(scan, match)
        if hour > _MAX_HOUR or self._is_counted(scan, match) or not is_announced:
            return None
        words = self._numbers.time(hour, 0, self._hour_case(scan))
        return self._speller.emit_number(scan, words, *match.span())

    def _is_lone_hour(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether the word before a number tells that it is an hour, and no noun follows."""
        noun = scan.next_word(match.end()).lower()
        previous, table = scan.context.previous_word, self._table
        return self._is_alone(scan, match) and (
            previous in self.lone_hour_cues
            or (
                previous in table.hour_cues
                and (not noun or noun not in (table.range_word, self.time_range_word))
                and self._is_after_opening(scan, match.start())
            )
        )

    def _is_alone(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether no noun follows a number."""
        noun = scan.next_word(match.end()).lower()
        is_last = not noun or noun in self._table.function_words
        return is_last or scan.next_visible(match.end()) in ".,;!?)"

    def _is_after_opening(self, scan: ScanState, at: int) -> bool:
        """Whether the number at ``at`` stands after "czynne do" or after a weekday: "pt. do 14"."""
        is_opening = self._opening_behind.search(scan.view, max(0, at - 60), at)
        weekday = scan.words[-2].text.lower() if len(scan.words) > 1 else ""
        return is_opening is not None or weekday in self._weekday_names

    def _is_counted(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a noun or a unit follows that is counted: "2 godziny 15 minut"."""
        noun = scan.next_word(match.end()).lower()
        table = self._table
        return noun in table.genders or noun in table.units or noun in table.money

    def _hour_case(self, scan: ScanState, before: str = "") -> str:
        """Return the case of an hour by the word before it, or before "godziny": "do godziny 15"."""
        table, previous = self._table, scan.context.previous_word
        case = table.case_after(previous, before)
        if case or previous not in table.hour_words or len(scan.words) < 2:
            return case
        return table.case_after(scan.words[-2].text.lower())

    def _is_told(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a suffix, a word or another time shows that "9.05" is a time."""
        behind = _TIME_BEHIND.search(scan.view, max(0, match.start() - 8), match.start())
        is_cued = behind is not None or scan.context.previous_word in self._table.hour_cues
        return bool(
            not match.group()[-1].isdigit()
            or (is_cued and not self._is_measure(scan, match))
            or self._hour_follows.match(scan.view, match.end())
            or (self._table.stop_times and self._is_beside_time(scan, match))
            or (self._table.lone_stop_times and self._is_time_alone(scan, match))
        )

    def _is_measure(self, scan: ScanState, match: re.Match[str]) -> bool:
        return self._unit_ahead.match(scan.view, match.end()) is not None

    def _is_time_alone(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether "09.30" has two digits before its stop or a suffix, and no unit, or is a whole clause."""
        mark = self._speller.suffix_mark
        has_suffix = bool(mark) and scan.view.startswith(mark, match.end())
        is_long = len(match["hour"]) > 1 and not self._is_measure(scan, match)
        is_clause = len(scan.view) < _MAX_CLAUSE_OF_TIME and scan.view.strip(" ,.;") == match.group()
        return has_suffix or ((is_long or is_clause) and not scan.context.code_words_left)

    def _is_beside_time(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether another time is beside the "9.05" of a range."""
        if self._other_time_ahead.match(scan.view, match.end()):
            return True
        is_joined = self._other_time_behind.compiled.search(
            scan.view, max(0, match.start() - 12), match.start()
        )
        return is_joined is not None and not self._is_measure(scan, match)

    def _read_dash(self, scan: ScanState, at: int) -> int:
        """Read the dash between two times; the slash of "8h-12h/14h-18h" is a pause."""
        dash = self._dash_before_time.match(scan.view, at)
        if dash is None:
            return at
        if "/" in dash.group():
            scan.punctuate(",")
            return dash.end()
        words = self.time_range_word or self._table.range_word
        scan.emit(words, at, dash.end())
        scan.punctuate("" if words else ",")
        scan.context.previous_word = words
        return dash.end()
