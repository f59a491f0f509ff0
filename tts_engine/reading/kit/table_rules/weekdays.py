"""Rules of the days of the week in a language that a table describes."""

import re
from collections.abc import Iterable

from ...lazy_pattern import LazyPattern
from ..tokenizer import SMALL_LETTERS, RuleRow, ScanState, any_of
from .language_table import LanguageTable
from .times import open_range

_MAX_WEEKDAY_CHARACTERS = 16  # of an abbreviated day and the word between it and the next


class TableWeekdays:
    """Recognisers of abbreviated days of one language. months: as they are written."""

    def __init__(self, table: LanguageTable, months: Iterable[str]) -> None:
        self._table, self._months = table, months
        self._days = any_of(table.weekdays)
        self._days_of_letters = any_of(day for day in table.weekdays if len(day) > 1) or r"(?!)"
        joints = any_of(table.case_joints) or "(?!)"
        self._weekday_governor = re.compile(
            rf"(?<!\w)([^\W\d_]+) (?:(?:{self._days_of_letters})\.?(?:,|,? (?:{joints})) )+\Z"
        )
        cues = any_of({*table.weekday_cues, table.range_word})
        self._day_joint = rf"(?:,? (?:{cues}) |, | ?/ ?)"
        self._weekday_behind = LazyPattern(rf"(?<!\w)(?:{self._days_of_letters})\.?{self._day_joint}\Z")

    def rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of abbreviated days."""
        days, days_of_letters, joint = self._days, self._days_of_letters, self._day_joint
        if not days:
            return ()
        hour = r"\d{1,2}(?:[.:]\d\d)?"
        words = any_of({*self._table.weekday_cues, self._table.range_word} - {""}) or "(?!)"
        hours = rf" (?:(?:{words}) )?{hour}(?:(?: ?[-–] ?| {self._table.range_word} ){hour})?"
        hours += rf" ?(?:{self._table.hour_suffixes})(?!\w)"
        date = rf",? \d{{1,2}}(?:[./]\d|\.? (?:de )?(?i:{any_of(self._months)})(?!\w))"
        plain_day = r"|,?:? ?\d{1,2} ?[-–] ?\d| ?[—:]|,? -" if self._table.plain_weekdays else ""
        openers = any_of({*self._table.function_words, *self._table.hour_cues} - {""}) or "(?!)"
        cues = any_of(self._table.hour_cues) or "(?!)"
        cued_hours = rf",? (?:(?:{openers}) ){{1,2}}\d{{1,2}}(?:[:.hH]\d\d|h)(?!\w)"
        cued_hours += rf"|,? (?:(?:{openers}) )?(?:{cues}) \d{{1,2}}(?!\d|[,/]\d)"
        letter_hours = rf" (?:(?:{words}) )?{hour}(?: ?[-–] ?| {self._table.range_word} ){hour}(?!\w)"
        letter = any_of(day for day in self._table.weekdays if len(day) == 1) or "(?!)"
        followers = rf",? (?:{any_of(self._table.weekday_followers) or '(?!)'})(?!\w)"
        other = rf"(?!(?:{any_of(self._table.weekday_words) or '(?!)'})[ :])"
        joints = any_of(self._table.weekday_joints) or "(?!)"
        between = rf"\.?(?: ?[-–] ?| ?(?P<joint>[+&]|(?<= )(?:{joints})(?= )) ?)"
        rows: tuple[RuleRow, ...] = (
            (rf"(?P<first>{days}){between}(?P<second>{days})(?!\w)\.?", self._read_weekdays),
            (rf"({days})\.?(?={date}{plain_day})", self._read_weekday),
            (
                rf"(?P<first>{days}) (?P<joint>{self._table.range_word}) (?P<second>{days})(?!\w)"
                r"(?=:|,?(?: de)? \d)",
                self._read_weekdays,
            ),
            (
                rf"(?P<first>{letter}) (?P<joint>{self._table.range_word}) (?P<second>{letter})"
                r"(?=[,.)]? ?\Z)",
                self._read_lettered_weekdays,
            ),
            (
                rf"{other}({days_of_letters})(?:(?={hours})|\.(?=,| (?!\d+,\d)[{SMALL_LETTERS}\d])"
                rf"|\.?(?=,?(?: ?:)? \d{{1,2}}(?: ?h|[:.]\d\d(?![\d.])| ?[-–] ?\d{{1,2}}(?![\d./]))"
                rf"|{joint}(?!\1)(?:{days_of_letters})(?!\w)))",
                self._read_weekday,
            ),
            (
                rf"{other}({days_of_letters})\.?(?={cued_hours}|{followers}|: ?\Z)",
                self._read_weekday,
            ),
            (rf"({letter})(?={letter_hours}|{followers})", self._read_lettered_weekday),
            (rf"({days_of_letters})\.?(?!\w)", self._read_announced_weekday),
        )
        begin = "(?=[A-Z])" if all("A" <= day[0] <= "Z" for day in self._table.weekdays) else ""
        return tuple((begin + pattern, recognizer) for pattern, recognizer in rows)

    def _read_weekday(self, scan: ScanState, match: re.Match[str]) -> int:
        name = self._table.weekdays[match.group(1)]
        governor = self._governor_of_weekday(scan, match.start())
        scan.emit(self._table.inflected(name, governor), match.start(), match.end())
        scan.context.note_word(name)
        return match.end()

    def _governor_of_weekday(self, scan: ScanState, at: int) -> str:
        """Return the word that governs a weekday: the "w" of all days of "w pon., śr. i pt."."""
        governor = self._weekday_governor.search(scan.view, max(0, at - 30), at)
        if governor:
            return governor.group(1).lower()
        previous = scan.context.previous_word
        return "" if previous in self._table.case_joints else previous

    def _read_announced_weekday(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the days of "du lun. au ven." and "Mo, Mi und Fr"."""
        before = max(0, match.start() - _MAX_WEEKDAY_CHARACTERS)
        has_stop = match.group()[-1] == "." or self._table.plain_weekdays
        in_brackets = scan.view[before : match.start()].endswith("(") and scan.view[match.end() :][:1] == ")"
        is_word = match.group(1) in self._table.weekday_words  # "al mar."
        is_cued = scan.context.previous_word in self._table.weekday_cues and not is_word
        announced = (is_cued or in_brackets) and has_stop
        announced = announced or bool(self._weekday_behind.compiled.search(scan.view, before, match.start()))
        return self._read_weekday(scan, match) if announced else None

    def _read_lettered_weekday(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "S" of "L-V de 9 a 14 h; S de 10 a 13 h"; after a word it is a letter."""
        is_after_word = scan.view[: match.start()].rstrip()[-1:].isalnum()
        is_joined = scan.context.previous_word in self._table.counted_joints
        return self._read_weekday(scan, match) if is_joined or not is_after_word else None

    def _read_lettered_weekdays(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "de L a V" at the end of a clause; "S a M" are sizes."""
        days = [*self._table.weekdays]
        return (
            self._read_weekdays(scan, match)
            if days.index(match["first"]) < days.index(match["second"])
            else None
        )

    def _read_weekdays(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "Mo-Fr" and "sab e dom"."""
        table, previous = self._table, self._governor_of_weekday(scan, match.start())
        if not match["joint"]:
            previous = open_range(scan, table, table.day_range_opening, match.start())
        first, second = table.weekdays[match["first"]], table.weekdays[match["second"]]
        scan.emit(table.inflected(first, previous), *match.span("first"))
        joint = match["joint"] or table.day_range_word
        joint = table.marks["&"] if joint in ("+", "&") else table.bare_abbreviations.get(joint, joint)
        scan.emit(joint, match.end("first"), match.start("second"))
        governor = previous if joint in table.case_joints else joint
        scan.emit(table.inflected(second, governor), match.start("second"), match.end())
        scan.context.note_word(second)
        return match.end()
