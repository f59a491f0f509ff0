"""Rules of dates in a language that a table describes."""

import re

from ...lazy_pattern import LazyPattern
from ..tokenizer import SMALL_LETTERS, RuleRow, ScanState, any_of
from .language_table import LanguageTable
from .numbers import TableNumberWords
from .roman import roman_value
from .speller import TableSpeller
from .times import TableTimes, open_range
from .weekdays import TableWeekdays

_MAX_DATE_CHARACTERS = 16  # of a date in digits and the word between it and the next
_CAPITALS_BEHIND = re.compile(r"(?<!\w)[A-Z]{1,3} \Z")  # the "FV" of an invoice
_FIRST_YEAR_OF_1900S = 50  # of the years with two digits


def _month_key(name: str) -> str:
    """Return what is equal for all spellings that match a month in any case: "KASIM", "Nİsan"."""
    return name.replace("İ", "i").replace("ı", "i").casefold()


_TIME_AHEAD = re.compile(r",? (?:[^\W\d_]{1,7}\.? ){0,2}\d{1,2}:\d\d(?!\d)")  # of "14.10 o godz. 9:30"


class TableDates:
    """Recognisers of dates of one language, and of the times beside them."""

    times_type: type[TableTimes] = TableTimes
    other_month_ahead = ""  # "|" and what else tells that two days are of a month; a pattern
    day_month_mark = "/"  # of "5/3" after ``date_cues``; a pattern

    def __init__(self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        self._end = table.end
        self._months = {name.lower(): name for name in table.months}
        self._months |= {
            f"{short}{stop}".lower(): name
            for short, name in (
                *zip(table.month_abbreviations, table.months, strict=False),
                *table.other_months.items(),
            )
            for stop in (".", "")
        }
        self._month_by_key = {_month_key(written): name for written, name in self._months.items()}
        month = rf"(?i:{any_of(self._months) or '(?!)'})(?!\w)"
        self._dash_before_date = LazyPattern(
            rf" ?[-–] ?(?=\d{{1,2}}(?:([./])\d{{1,2}}\1|\.? (?:de )?{month}))"
        )
        tail = table.date_template.partition("{year}")[2].strip()
        marks = [
            mark for mark, rules in table.ordinal_suffixes.items() if tail and rules.endswith(f": {tail}")
        ]
        written = any_of([*(mark for mark in marks if mark[0] == " "), *([f" {tail}"] if tail else [])])
        self._year_word = LazyPattern(rf"(?:{written or '(?!)'})(?!\w)")
        self._dash_before_stopped_date = LazyPattern(r" ?[-–] ?(?=\d{1,2}\.(?:0[1-9]|1[0-2])(?!\d))")
        self._weekday_names = {name.lower() for name in table.weekdays.values()}
        self._times = self.times_type(table, numbers, speller)
        self._weekdays = TableWeekdays(table, self._months)
        self._unit_plurals = table.unit_plurals
        date, to = r"(?<!\d)\d{1,2}[/-]\d{1,2}", any_of(table.day_joints) or "(?!)"
        self._date_ahead = LazyPattern(rf" (?:{to}) {date}(?![\w/-])")
        self._date_behind = LazyPattern(rf"{date} (?:{to}) \Z")

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of abbreviated days and months, and of days in Roman numerals."""
        return (*self._weekdays.rows(), *self._month_rows())

    def _month_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of abbreviated months without a day, and of "XX settembre"."""
        table = self._table
        short_names = (*table.month_abbreviations, *table.other_months)
        shorts = {f"{short}{stop}" for short in short_names for stop in (".", "")}
        written = any_of((*shorts, *table.months)) if table.day_first else "(?!)"
        numbers = {self._numbers.number(number) for number in range(1, 13)}
        words = numbers | {day.lower() for day in table.weekdays}
        unmistakable = any_of({f"{short}." for short in short_names if short.lower() not in words})
        return (
            (
                rf"(?=\w{{1,9}}\.?/\d)(?P<name>(?i:{written}))/"
                r"(?P<of_year>de )?(?P<year>(?:1[5-9]|20)\d\d)(?!\w)",
                self._read_month_and_year,
            ),
            (rf"(?=\w{{1,9}}\.? \d)(?i:{any_of(shorts) or '(?!)'})(?= \d{{4}}(?!\d))", self._read_month),
            (
                rf"(?=\w{{1,9}}\.)(?i:{unmistakable or '(?!)'})(?=[,)]| ?[{SMALL_LETTERS}\d])",
                self._read_month,
            ),
            (
                rf"(?=[A-Z])(?P<day>[IVX]{{2,6}}|[VX])(?= (?i:{any_of(table.months)})(?!\w))",
                self._read_roman_day,
            ),
            (rf"(?P<day>I)(?= (?:{any_of(map(str.capitalize, table.months))})(?!\w))", self._read_roman_day),
        )

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of dates and times."""
        table, end = self._table, self._end
        months = any_of(self._months) or r"(?!)"
        rows: list[RuleRow] = [
            (
                r"(?P<year>(?:19|20)\d\d)-(?P<month>0\d|1[0-2])-(?P<day>[0-3]\d)T(?=\d\d:\d\d)",
                self._read_date,
            ),
            (
                rf"(?P<year>(?:1[5-9]|2[01])\d\d)([-./]|\. )(?P<month>\d{{1,2}})\2(?P<day>\d{{1,2}}){end}"
                r"(?![-./]\d)(?:\.(?= ?\())?",
                self._read_date,
            ),
            (rf"(?P<day>\d{{1,2}})([-./])(?P<month>\d{{1,2}})\2(?P<year>\d{{4}}){end}", self._read_date),
        ]
        rows.append(
            (rf"(?P<year>(?:19|20)\d\d)-(?P<month>0[1-9]|1[0-2]){end}(?![/-]|[.,:]\d)", self._read_year_first)
        )
        if table.day_first:
            month_of_year = r"(?P<month>0[1-9]|1[0-2])[/.-](?P<year>20\d\d)(?![\w/-]|[.,]\d)"
            rows.append((month_of_year, self._read_month_number))
            short = r"(?P<month>0[1-9]|1[0-2])/(?P<year>2\d|3[0-5])(?![\w/-])"
            rows.append((short if table.day_months else "(?!)", self._read_expiry))
            first = rf"(?P<day>1)(?:\.?º|°|er)/(?P<month>0?[1-9]|1[0-2])(?:/(?P<year>\d{{4}}|\d\d))?{end}"
            rows.append((first if table.first_day_word else "(?!)", self._read_first_of_month))
            named = (
                rf"(?P<day>\d{{1,2}})(?:(?:\.|º|°|er)? |[-/])(?P<of_month>de )?(?P<name>(?i:{months}))(?!\w)"
            )
            rows.append(
                (rf"{named}(?:[ /-](?P<of_year>de )?(?P<year>\d{{4}})(?!\w))?", self._read_named_date)
            )
            rows.append(
                (rf"(?P<day>\d{{1,2}})/(?P<month>\d{{1,2}})/(?P<year>\d\d){end}(?!/)", self._read_date)
            )
            rows.append((rf"(?P<day>\d\d)\.(?P<month>\d\d)\.(?P<year>\d\d){end}(?!\.\d)", self._read_date))
            counted = any_of({*table.unit_plurals, *(unit for unit in table.units if len(unit) > 1)})
            end_of_range = r"(?=\d{1,2}/(?:0[1-9]|1[0-2])(?![\w/]))"
            rows.append((rf"(?P<day>\d{{1,2}})(?P<joint> ?[-–] ?){end_of_range}", self._read_day_of_range))
            if table.day_months:  # "gio. 15/1"
                rows.append((r"(?P<day>\d{1,2})/(?P<month>[1-9])(?![\w/-])", self._read_announced_day))
            rows.append(
                (
                    rf"(?P<day>\d{{1,2}})/(?P<month>0[1-9]|1[0-2])(?![\w/])(?! (?:{counted})(?!\w))",
                    self._read_day_and_month,
                )
            )
        rows += self._cued_date_rows()
        if table.hour_words:
            rows += self._times.hour_rows()
        rows += self.own_rows()
        rows += (self._times.seconds_row(), self._times.time_row())
        return tuple(rows)

    def own_rows(self) -> list[RuleRow]:
        """Return the rules of dates that one language only has, tried before those of times."""
        return []

    def _cued_date_rows(self) -> list[RuleRow]:
        """Return the rules of dates without a year that a word beside them tells from other numbers."""
        table = self._table
        rows: list[RuleRow] = []
        if table.date_cues and not table.day_months:
            rows.append(
                (
                    rf"(?P<day>\d{{1,2}}){self.day_month_mark}(?P<month>\d{{1,2}})(?![\w/-])",
                    self._read_announced_day,
                )
            )
            short = rf"(?P<day>\d{{1,2}})([-.])(?P<month>\d{{1,2}})\2(?P<year>\d\d){self._end}"
            rows.append((rf"{short}(?![-.]\d)", self._read_announced_date))
        if table.day_months:
            rows += self.day_month_rows()
        return rows

    def day_month_rows(self) -> list[RuleRow]:
        """Return the rules of "7.06" and of the first day of "12-26.08" and "od 12 do 26 maja"."""
        months, joints = any_of(self._months), any_of(self._table.day_joints)
        month = rf"\.? (?i:{months})(?!\w){self.other_month_ahead}"
        second = rf"(?=\d{{1,2}}(?:\.(?:0[1-9]|1[0-2])(?!\w|,\d|\.\d\d?(?!\d))|{month}))"
        counted = any_of((*self._table.units, *self._table.money, *self._table.magnitudes, "%"))
        # "1.02 т. г." has no unit.
        longer = any_of(short for short in self._table.abbreviations if "." in short) or "(?!)"
        return [
            (rf"(?P<day>\d{{1,2}})\.?(?P<joint> ?[-–] ?| (?:{joints}) ){second}", self._read_day_of_range),
            (
                r"(?P<day>\d{1,2})\.(?P<month>0[1-9]|1[0-2])(?![\w/]|[.,:]\d)"
                rf"(?! ?(?!(?:{longer})\.)(?:{counted})(?!\w| \d))(?:\.(?= ?[-–]|,? [{SMALL_LETTERS}\d]))?",
                self._read_stopped_date,
            ),
        ]

    def _day(self, scan: ScanState, match: re.Match[str]) -> str:
        before = scan.view[: match.start()]
        return self._numbers.day(int(match["day"]), scan.context.previous_word, before)

    def _read_month(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the month of "en nov. 2025"."""
        scan.emit(self._month_by_key[_month_key(match.group())], *match.span())
        scan.context.note_word(scan.words[-1].text)
        return match.end()

    def _read_month_and_year(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "mar/2025"."""
        scan.emit(self._month_by_key[_month_key(match["name"])], *match.span("name"))
        self._join(scan, match, "of_year", "year")
        return self._speller.emit_number(scan, self._numbers.year(int(match["year"])), *match.span("year"))

    def _read_month_number(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "08/2027", "08.2027" and "bis 08-2027"; after a word that announces a code it is none."""
        announced = "-" not in match.group() or "-" in self.day_month_mark
        announced = announced or scan.context.previous_word in self._table.date_cues
        if scan.context.code_words_left or not announced:
            return None
        return self._emit_month_of_year(scan, match)

    def _read_year_first(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2026-03"; "2003-04" is a season."""
        if scan.context.code_words_left or int(match["month"]) >= int(match["year"]) % 100:
            return None
        return self._emit_month_of_year(scan, match)

    def _emit_month_of_year(self, scan: ScanState, match: re.Match[str]) -> int:
        template = self._table.date_template.partition(" {day}")[0]
        template = template.removeprefix("{day}").removeprefix(" de")
        month, year = self._table.months[int(match["month"]) - 1], self._numbers.year(int(match["year"]))
        return self._speller.emit_number(scan, template.format(month=month, year=year), *match.span())

    def _read_expiry(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "09/26" of a card after "do"; a month comes before a year without its century."""
        if scan.context.previous_word not in self._table.date_cues:
            return None
        scan.emit(self._table.months[int(match["month"]) - 1], *match.span("month"))
        year = self._numbers.year(2000 + int(match["year"]))
        return self._speller.emit_number(scan, year, match.start("year"), match.end())

    def _read_roman_day(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the day of "via XX Settembre"."""
        day = roman_value(match["day"])
        if day is None or day > 31:
            return None
        words = self._numbers.day(day, scan.context.previous_word, scan.view[: match.start()])
        return self._speller.emit_number(scan, words, *match.span())

    def _read_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "31.12.2025", "31/12/25" or "2025-12-31"."""
        year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
        if year < 100:
            year += 2000 if year < _FIRST_YEAR_OF_1900S else 1900
        if self._is_reference(scan, match) or not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        if self._dash_before_date.match(scan.view, match.end()):
            open_range(scan, self._table, self._table.day_range_opening, match.start())
        words = self._numbers.date(year, month, self._day(scan, match))
        written = self._year_word.match(scan.view, match.end())
        end = self._speller.emit_number(scan, words, match.start(), (written or match).end())
        return self._read_date_dash(scan, end)

    def _read_announced_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3-6-26" of "el 3-6-26"."""
        return self._read_date(scan, match) if self._is_date_announced(scan) else None

    def _read_first_of_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "1º/6" and "1er/06/2026"."""
        return self._read_date(scan, match) if match["year"] else self._read_day_and_month(scan, match)

    def _is_date_announced(self, scan: ScanState) -> bool:
        previous = scan.context.previous_word
        return previous in self._table.date_cues or previous in self._weekday_names

    def _is_reference(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a word or capitals announce a code: "faktura nr 12/05/2026", "FV 12/05/2026"."""
        if not self._table.reference_slashes or "/" not in match.group():
            return False
        behind = scan.view[max(0, match.start() - 5) : match.start()]
        return scan.context.code_words_left > 0 or _CAPITALS_BEHIND.search(behind) is not None

    def _read_named_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "3. März 2026" or "3 de mayo de 2026"."""
        day, month, year = int(match["day"]), self._month_by_key[_month_key(match["name"])], match["year"]
        if not 1 <= day <= 31:
            return None
        scan.emit(self._day(scan, match), match.start(), match.end("day"))
        self._join(scan, match, "of_month", "name")
        scan.emit(month, *match.span("name"))
        if year:
            self._join(scan, match, "of_year", "year")
            scan.emit(self._numbers.year(int(year)), *match.span("year"))
        return self._read_date_dash(scan, self._speller.finish_number(scan, match.end()))

    def _read_date_dash(self, scan: ScanState, at: int) -> int:
        """Read the dash between two dates."""
        dash = self._dash_before_date.match(scan.view, at)
        if dash is None:
            return at
        scan.emit(self._table.day_range_word, at, dash.end())
        scan.context.previous_word = self._table.day_range_word
        return dash.end()

    def _read_day_of_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "12-" of "12-26.08" and the "12 do" of "od 12 do 26 maja"."""
        if not 1 <= int(match["day"]) <= 31:
            return None
        joint = match["joint"].strip()
        if joint in "-–":
            open_range(scan, self._table, self._table.day_range_opening, match.start())
            joint = self._table.day_range_word
        scan.emit(self._day(scan, match), match.start(), match.end("day"))
        scan.emit(joint, match.start("joint"), match.end())
        if joint not in self._table.case_joints:  # "między 5 a 10 maja" governs both
            scan.context.previous_word = joint
        scan.context.line_start = scan.context.sentence_start = False
        return match.end()

    def _read_stopped_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "7.06"; "12.10" may be a time or a decimal fraction."""
        previous, month = scan.context.previous_word, match["month"]
        is_announced = previous in self._table.date_cues or previous in self._weekday_names
        is_time = previous in self._table.hour_words or previous in self._times.lone_hour_cues
        dash = self._dash_before_stopped_date.match(scan.view, match.end())
        is_announced = is_announced or _TIME_AHEAD.match(scan.view, match.end()) is not None
        if is_time or previous in self._table.section_words or not (is_announced or dash or month[0] == "0"):
            return None
        if dash:
            open_range(scan, self._table, self._table.day_range_opening, match.start())
        if self._read_day_and_month(scan, match) is None:
            return None
        if dash is None:
            return self._speller.end_sentence(scan, match.end())
        scan.emit(self._table.day_range_word, match.end(), dash.end())
        scan.context.previous_word = self._table.day_range_word
        return dash.end()

    def _join(self, scan: ScanState, match: re.Match[str], joint: str, part: str) -> None:
        """Emit the word before a part of a date; the slash of "10/abr" is said as the language joins them."""
        start = match.start(part)
        if match[joint]:
            scan.emit(match[joint], match.start(joint), match.end(joint) - 1)
        elif scan.view[start - 1] == "/" and " de " in self._table.date_template:
            scan.emit("de", start - 1, start)

    def _read_day_and_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "24.12." or "24/12"; "Seite 3/12" and "8/10 Punkten" are no dates."""
        day, month = int(match["day"]), int(match["month"])
        following = scan.next_word(match.end())
        if "/" in match.group() and self._table.slash_word(scan.context.previous_word, following):
            return None
        # Where dates have stops, "6/10" is a fraction unless a word says otherwise.
        is_fraction = self._table.day_months and "/" in match.group() and match["month"][0] != "0"
        previous = scan.context.previous_word
        is_fraction = is_fraction and previous not in self._table.date_cues
        is_fraction |= "/" in match.group() and (
            previous in self._table.slash_cues or previous in self._table.slash_words
        )
        if is_fraction or not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        words = self._table.date_template.partition(" {year}")[0].format(
            day=self._day(scan, match), month=self._table.months[month - 1]
        )
        return self._speller.emit_number(scan, words.removesuffix(" de"), *match.span())

    def _read_announced_day(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "18/7" of "el 18/7", and "op 25-5"; before a noun "op 1-2 dagen" is a range."""
        table, announced = self._table, self._is_date_announced(scan)
        following = scan.next_word(match.end()).lower()
        if following and match.group() in table.fractions:  # "del 1/3 de los clientes"
            announced &= following in table.function_words and following not in table.partitives
        is_amount = following in self._unit_plurals or following in table.units  # "em 3/5 dias"
        announced &= not is_amount or scan.context.previous_word in self._weekday_names  # "gio. 15/1 ore 8"
        if "-" in match.group():
            rises = int(match["day"]) < int(match["month"])
            counts = following.endswith(("en", "s")) or following in table.genders
            is_range = rises and following and counts and following not in table.function_words
            announced = match["month"][0] == "0" or (announced and not is_range)
        announced = announced or self._is_beside_date(scan, match)
        return self._read_day_and_month(scan, match) if announced else None

    def _is_beside_date(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether another such date follows or precedes: "24-12 t/m 1-1"."""
        if self._date_ahead.match(scan.view, match.end()):
            return True
        before = max(0, match.start() - _MAX_DATE_CHARACTERS)
        return self._date_behind.compiled.search(scan.view, before, match.start()) is not None
