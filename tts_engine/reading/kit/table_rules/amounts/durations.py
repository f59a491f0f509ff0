"""Rules of durations that are written as one: "1h23min45s", "2m30s", "10'", "3'20\"", "2h47'"."""

import re

from ...tokenizer import RuleRow, ScanState, any_of
from ..language_table import LanguageTable
from ..number_context import TableNumberContext
from ..numbers import TableNumberWords
from ..plural_rules import CountedNoun
from ..speller import TableSpeller

_UNITS_OF_LOGS = (("h",), ("min",), ("s", "sec"))  # which every language has beside its own
_OPENING_QUOTE_BEHIND = re.compile(r"(?<!\w)'[^']{0,60}\Z")
_MAX_QUOTE = 60  # characters that are searched for an opening quotation mark


class TableDurations:
    """Recognisers of durations of one language."""

    def __init__(
        self,
        table: LanguageTable,
        numbers: TableNumberWords,
        speller: TableSpeller,
        context: TableNumberContext,
    ) -> None:
        self._table, self._numbers, self._speller, self._context = table, numbers, speller, context
        self._nouns = [table.units[name] for name in table.duration_units]

    def rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of durations; with blanks, each unit is read by itself."""
        hour, minute, second = (
            any_of({*common, *self._spellings(noun)})
            for common, noun in zip(_UNITS_OF_LOGS, self._nouns, strict=True)
        )
        short_minute = any_of({"m", self._table.duration_units[1][0]})
        hours = rf"(?P<hours>\d{{1,3}}) ?(?:{hour}) ?"
        minutes, seconds = r"(?P<minutes>\d{1,3}) ?", r"(?P<seconds>\d{1,2}) ?"
        joined = rf"(?P<hours>\d{{1,3}})(?:{hour})(?P<minutes>\d{{1,3}})(?:{minute}|{short_minute})"
        joined += rf"(?:(?P<seconds>\d{{1,2}})(?:{second}))?"
        short = (
            rf"(?P<hours>(?!)){{0}}(?P<minutes>\d{{1,3}})(?:{minute}|{short_minute})"
            rf"(?P<seconds>\d{{1,2}})(?:{second})"
        )
        primes = rf"(?:{hours})?{minutes}'(?!')(?: ?{seconds}(?:\"|''))?(?![\w'])"
        rows: list[RuleRow] = [(f"{each}{self._table.end}", self._read) for each in (joined, short)]
        if self._speller.suffix_mark != "'":
            rows.append((primes, self._read_primes))
        return tuple(rows)

    def _spellings(self, noun: CountedNoun) -> list[str]:
        return [unit for unit, named in self._table.units.items() if named == noun and unit[-1] != "."]

    def _read(self, scan: ScanState, match: re.Match[str]) -> int:
        case = self._context.case(scan, match)
        counted = (
            self._numbers.counted(part.lstrip("0") or "0", None, noun, case)
            for part, noun in zip(match.group("hours", "minutes", "seconds"), self._nouns, strict=True)
            if part
        )
        return self._speller.emit_number(scan, " ".join(counted), *match.span())

    def _read_primes(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "10'" as minutes; the minute of a match, "al 23'", has no noun, and a quote may end there."""
        is_alone = not (match["hours"] or match["seconds"])
        before = max(0, match.start() - _MAX_QUOTE)
        is_quoted = _OPENING_QUOTE_BEHIND.search(scan.view, before, match.start()) is not None
        if is_alone and (is_quoted or scan.context.previous_word in self._table.minute_cues):
            return None
        return self._read(scan, match)
