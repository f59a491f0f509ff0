"""Rules of dates, times and days of the week in a language that a table describes."""

import re

from ...tokenizer import RuleRow, ScanState, any_of
from .language_tables import LanguageTable
from .numbers import TableNumberWords
from .speller import TableSpeller

_MAX_HOUR = 24


def _month_key(name: str) -> str:
    """Return what is equal for all spellings that match a month in any case: "KASIM", "Nİsan"."""
    return name.replace("İ", "i").replace("ı", "i").casefold()


class TableDates:
    """Recognisers of dates and times of one language."""

    def __init__(self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        self._end = r"(?![A-Za-z0-9])" if table.particles else r"(?!\w)"
        self._months = {name.lower(): name for name in table.months}
        self._months |= {
            f"{short}{stop}".lower(): name for short, name in table.short_months.items() for stop in (".", "")
        }

        self._month_by_key = {_month_key(written): name for written, name in self._months.items()}
        self._weekday = re.compile(rf"(?<!\w)(?:{any_of(table.weekdays) or '(?!)'})(?!\w)")
        self._hour_behind = re.compile(rf" ?(?:{table.hour_suffixes})(?!\w)")
        nouns = any_of((*table.units, *table.money))
        self._unit_behind = re.compile(rf" ?(?:{nouns})(?!\w)")
        joint = rf"(?: ?[-–] ?| {table.range_word} )"
        self._time_behind = re.compile(
            rf"(?: [^\W\d_]{{1,5}} | ?[-–] ?)\d{{1,2}}(?:[:.]\d\d)? ?(?:{table.hour_suffixes})(?!\w)"
            rf"|{joint}\d{{1,2}}\.[0-5]\d(?!\d|\.\d)(?! ?(?:{nouns})(?!\w))"
        )
        self._stop_time_before = re.compile(rf"(?<!\d)\d{{1,2}}\.[0-5]\d{joint}\Z")

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of abbreviated days of the week, and of months before a year."""
        return (*self._weekday_rows(), *self._month_rows())

    def _month_rows(self) -> tuple[RuleRow, ...]:
        if not (self._table.day_first and self._table.month_abbreviations):
            return ()
        year = r"(?:\.?(?: (?P<of_year>de )?|/)|(?<=\.))(?P<year>(?:1[5-9]|20)\d\d|(?<=/)\d\d)(?!\w)"
        first = "".join(sorted({letter for name in self._months for letter in (name[0], name[0].upper())}))
        name = rf"(?=[{first}])(?P<name>(?i:{any_of(self._months)}))"  # the letters spare most words the list
        return ((name + year, self._read_month_and_year),)

    def _weekday_rows(self) -> tuple[RuleRow, ...]:
        days = any_of(self._table.weekdays)
        days_of_letters = any_of(day for day in self._table.weekdays if len(day) > 1) or r"(?!)"
        if not days:
            return ()
        mark = "[./-]" if self._table.date_cues else "[./]"
        date = rf",? \d{{1,2}}(?:{mark}\d|\.? (?:de )?(?i:{any_of(self._months)})(?!\w))"
        joint = rf"\.?(?: ?[-–] ?|/| (?:{any_of(self._table.weekday_joints) or '(?!)'}) )"
        hour = rf"\d{{1,2}}(?:[:h]\d\d| ?h| ?[-–] ?\d{{1,2}} ?(?:{self._table.hour_suffixes})(?!\w))"
        return (
            (rf"(?:{days})(?:{joint}(?:{days}))+(?!\w)\.?", self._read_weekdays),
            (rf"({days})\.?(?={date})", self._read_weekday),
            (rf"({days_of_letters})\.?(?=:? {hour})", self._read_weekday),
            (rf"({days_of_letters})(?=: *$)", self._read_listed_weekday),
            (rf"({days_of_letters})\.(?!\w)", self._read_announced_weekday),
        )

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of dates and times."""
        table, end = self._table, self._end
        months = any_of(self._months) or r"(?!)"
        suffix = rf"(?: ?(?:{table.hour_suffixes}))?"
        whole_hour = r"|h(?!/)" if table.whole_hours else ""
        time = (
            rf"(?P<hour>\d{{1,2}})(?:(?:(?P<letter> ?[{table.hour_mark}] ?)|:)(?P<minute>\d\d)"
            rf"(?(letter)(?:m| ?min)?){suffix}"
            rf"|\.(?P<after_stop>\d\d){suffix}{whole_hour}){end}(?!:\d)"
        )
        rows: list[RuleRow] = [
            (r"(?P<month>0[1-9]|1[0-2])/(?P<year>20\d\d)(?![\w/-])", self._read_month_number),
            (
                rf"(?P<year>(?:1[5-9]|2[01])\d\d)([-./])(?P<month>\d{{1,2}})\2(?P<day>\d{{1,2}}){end}(?!\2)",
                self._read_date,
            ),
            (rf"(?P<day>\d{{1,2}})[º°]?([-./])(?P<month>\d{{1,2}})\2(?P<year>\d{{4}}){end}", self._read_date),
        ]
        if table.day_first:
            joint = r"(?:(?:\.|º|°|o|er)? (?P<of_month>de )?|[/-])"
            named = rf"(?P<day>\d{{1,2}}){joint}(?P<name>(?i:{months}))(?!\w)"
            year = r"(?: (?P<of_year>de )?|[/-])(?P<year>\d{4})(?!\w)"
            rows.append((rf"{named}(?:{year})?", self._read_named_date))
            rows.append((r"(?P<day>\d{1,2})/(?P<month>0[1-9]|1[0-2])(?![\w/])", self._read_day_and_month))
        if table.month_day_template:
            rows.append((r"(?P<month>\d{1,2})/(?P<day>\d{1,2})(?=\()", self._read_month_and_day))
        if table.date_cues:
            rows.append(
                (r"(?P<day>\d{1,2})[-/](?P<month>\d{1,2})(?![\w/-])", self._read_announced_day_and_month)
            )
        if table.day_month_stops:
            rows.append((r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?!\d)", self._read_day_and_month))
        if table.month_readings:
            irregular = any_of(table.month_readings)
            rows.append((rf"(?P<month>{irregular})(?={table.month_suffix})", self._read_irregular_month))
        rows.append((time, self._read_time))
        return tuple(rows)

    def _emit(self, scan: ScanState, words: str, start: int, stop: int) -> int:
        scan.emit(words, start, stop)
        return self._speller.finish_number(scan, stop)

    def _read_weekday(self, scan: ScanState, match: re.Match[str]) -> int:
        name = self._table.weekdays[match.group(1)]
        scan.emit(name, match.start(), match.end())
        scan.context.note_word(name)
        return match.end()

    def _read_announced_weekday(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the days of "du lun. au ven." and "za. om 10 uur"."""
        following = scan.next_visible(match.end())
        is_inside = following.islower() or following.isdigit()
        announced = scan.context.previous_word in self._table.weekday_cues
        return self._read_weekday(scan, match) if announced or is_inside else None

    def _read_listed_weekday(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the day of "sáb: 9h-13h" at the start of a clause; "zo:" is another word."""
        is_word = match.group(1).lower() in self._table.function_words
        return None if scan.words or is_word else self._read_weekday(scan, match)

    def _read_weekdays(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "Mo-Fr", "ma t/m vr" and "ma/wo/vr"."""
        table, last = self._table, match.start()
        for day in self._weekday.finditer(scan.view, *match.span()):
            joint = scan.view[last : day.start()].lstrip(".").strip()
            joint = table.bare_abbreviations.get(joint, joint)
            scan.emit(
                {"-": table.range_word, "–": table.range_word, "/": ""}.get(joint, joint), last, day.start()
            )
            scan.emit(table.weekdays[day.group()], *day.span())
            last = day.end()
        scan.context.note_word(scan.words[-1].text)
        return match.end()

    def _read_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "31.12.2025" or "2025-12-31"."""
        year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        words = self._numbers.date(year, month, day, scan.context.previous_word)
        return self._emit(scan, words, *match.span())

    def _read_named_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "3. März 2026" or "3 de mayo de 2026"."""
        day, month, year = int(match["day"]), self._month_by_key[_month_key(match["name"])], match["year"]
        if not 1 <= day <= 31:
            return None
        scan.emit(self._numbers.day(day, scan.context.previous_word), match.start(), match.end("day"))
        self._join(scan, match, "of_month", "name")
        scan.emit(month, *match.span("name"))
        if year:
            self._join(scan, match, "of_year", "year")
            scan.emit(self._numbers.year(int(year)), *match.span("year"))
        return self._speller.finish_number(scan, match.end())

    def _join(self, scan: ScanState, match: re.Match[str], joint: str, part: str) -> None:
        """Emit the word before a part of a date, as it is written or as the language says it."""
        if match[joint]:
            scan.emit(match[joint], match.start(joint), match.end(joint) - 1)
        elif " de " in self._table.date_template:
            scan.emit("de", *match.span(part))

    def _read_month_and_year(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "okt. 2025" or "mar/2025"."""
        scan.emit(self._month_by_key[_month_key(match["name"])], *match.span("name"))
        self._join(scan, match, "of_year", "year")
        return self._emit(scan, self._numbers.year(int(match["year"])), *match.span("year"))

    def _read_month_number(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "08/2027"; after a word that announces a code it is none."""
        if scan.context.code_words_left or not self._table.day_first:
            return None
        words = (
            self._table.date_template.removeprefix("{day}")
            .removeprefix(" de")
            .format(
                month=self._table.months[int(match["month"]) - 1], year=self._numbers.year(int(match["year"]))
            )
        )
        return self._emit(scan, words, *match.span())

    def _read_announced_day_and_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "op 25-5"."""
        return self._read_day_and_month(scan, match) if self._follows_date_cue(scan, match) else None

    def _follows_date_cue(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether it is a date; before a noun, as in "op 1-2 plekken", numbers that rise are a range."""
        if match["month"][0] == "0" or scan.context.previous_word not in self._table.date_cues:
            return match["month"][0] == "0"
        if self._hour_behind.match(scan.view, match.end()):
            return False
        is_range = "-" in match.group() and int(match["day"]) < int(match["month"])
        following = scan.next_word(match.end()).lower()
        return not is_range or not following or following in self._table.function_words

    def _read_day_and_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "24.12." or "24/12"."""
        day, month = int(match["day"]), int(match["month"])
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        words = self._table.date_template.partition(" {year}")[0].format(
            day=self._numbers.day(day, scan.context.previous_word), month=self._table.months[month - 1]
        )
        return self._emit(scan, words.removesuffix(" de"), *match.span())

    def _read_month_and_day(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "5/3" of "5/3(월)"."""
        month, day = int(match["month"]), int(match["day"])
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        words = self._table.month_day_template.format(
            month=self._table.months[month - 1], day=self._numbers.day(day, "")
        )
        return self._emit(scan, words, *match.span())

    def _read_irregular_month(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._emit(scan, self._table.month_readings[match.group()], *match.span())

    def _read_time(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "14:30", and "9.05" where a word says that it is a time; a dash may lead to another time."""
        hour, minute = int(match["hour"]), int(match["minute"] or match["after_stop"] or 0)
        if hour > _MAX_HOUR or minute > 59:
            return None
        has_suffix = not match.group()[-1].isdigit()
        if match["after_stop"] and not (has_suffix or self._is_announced_time(scan, match)):
            return None
        case = self._table.case_after(scan.context.previous_word)
        end = self._emit(scan, self._numbers.time(hour, minute, case), *match.span())
        return self._read_dash(scan, end)

    def _is_announced_time(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a word before "9.05", or another time beside it, tells that it is a time."""
        if scan.context.previous_word in self._table.hour_cues or self._time_behind.match(
            scan.view, match.end()
        ):
            return True
        is_joined = self._stop_time_before.search(scan.view, max(0, match.start() - 12), match.start())
        return is_joined is not None and not self._unit_behind.match(scan.view, match.end())

    def _read_dash(self, scan: ScanState, at: int) -> int:
        """Read the dash between two times."""
        dash = re.compile(r" ?[-–~] ?(?=\d{1,2}(?:[:h]|\.\d\d))").match(scan.view, at)
        if dash is None:
            return at
        words = self._table.time_range_word or self._table.range_word
        scan.emit(words, at, dash.end())
        scan.context.previous_word = words
        return dash.end()
