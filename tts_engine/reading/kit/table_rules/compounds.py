"""Rules of words with a part abbreviated or in digits: "Goethestr.", "18-jährig", "24-h-Hotline"."""

import re

from ..tokenizer import RuleRow, ScanState, any_of
from .codes import TableCodes
from .language_table import LanguageTable
from .numbers import TableNumberWords
from .speller import TableSpeller

_YEARS_OF_CENTURIES = range(1100, 2000)


class TableCompounds:
    """Recognisers of compound words of one language."""

    def __init__(
        self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller, codes: TableCodes
    ) -> None:
        self._table, self._numbers, self._speller, self._codes = table, numbers, speller, codes

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of words with an abbreviated ending, and of ranges of sizes."""
        endings = any_of(self._table.abbreviated_endings)
        word = r"[^\W\d_]{1,30}(?:\.?-[^\W\d_]{1,30}){0,4}?"
        rows: list[RuleRow] = []
        if endings:
            rows.append(
                (
                    rf"(?=[^\s.]{{2,60}}(?:\.| \d))(?P<head>{word}\.?-?)(?P<ending>{endings})(?:\.|(?= \d))",
                    self._read_ending,
                )
            )
        if self._table.range_word:
            size = "X{0,4}S|M|X{0,4}L"
            rows.append((rf"(?P<low>{size})[-–](?P<high>{size})(?![\w-]| ?\d)", self._read_sizes))
            rows.append((r"(?P<low>[^\W\d_])(?P<dash>[-–])(?P<high>[^\W\d_])(?![\w–-])", self._read_letters))
        return tuple(rows)

    def head_rows(self) -> tuple[RuleRow, ...]:
        """Return the rule of words with an abbreviated beginning."""
        heads = any_of(self._table.abbreviated_heads)
        rest = r"\.-?(?P<rest>[^\W\d_]{4,30})(?!\w|[.@]\w)"
        return ((rf"(?P<head>{heads}){rest}", self._read_head),) if heads else ()

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of words that begin with a number."""
        table = self._table
        rows: list[RuleRow] = []
        if table.joined_suffixes:
            suffixes = any_of(table.joined_suffixes)
            rows.append(
                (rf"(?P<whole>\d{{1,4}})-?(?P<ending>(?:{suffixes})[a-z]{{0,2}})(?!\w)", self._read_joined)
            )
        if table.unit_compounds:
            rows.append(
                (
                    rf"(?P<whole>\d{{1,4}})(?:,(?P<fraction>\d{{1,2}}))?-?(?P<unit>{any_of(table.units)})-(?=[A-Z])",
                    self._read_unit_compound,
                )
            )
        if table.joined_numbers:
            endings = any_of(table.joined_abbreviations) or "(?!)"
            rows.append(
                (
                    rf"(?P<whole>\d{{1,3}})-(?P<ending>(?:{endings})|[^\W\d_A-Z]{{4,30}})(?!\w)",
                    self._read_adjective,
                )
            )
        return tuple(rows)

    def _read_adjective(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "24-godzinny" as one word."""
        number, ending = self._numbers.joined(int(match["whole"])), match["ending"]
        if not number or f"-{ending}" in self._table.ordinal_suffixes:
            return None
        ending = self._table.joined_abbreviations.get(ending, ending)
        scan.emit(number + ending, *match.span())
        scan.context.note_word(scan.words[-1].text)
        return match.end()

    def _read_ending(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "Goethestr." and "Rechnungs-Nr."."""
        head, ending = match["head"], self._table.abbreviated_endings[match["ending"]]
        first, hyphen, rest = head.partition("-")
        first = self._table.abbreviations.get(first.removesuffix("."), first.removesuffix("."))
        start = match.start()
        if hyphen and self._table.spelled_heads and first.isupper() and self._speller.spells_capitals(first):
            self._speller.spell(scan, start, start + len(first))
            start, first = start + len(first), ""
        scan.emit(f"{first}{hyphen}{rest}{ending}".lstrip("-"), start, match.end())
        self._codes.note_word(scan, ending)
        return self._speller.end_sentence(scan, match.end())

    def _read_head(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "Geb.-Datum" and "adm.kosten" as one word."""
        if match.start() and scan.view[match.start() - 1].isalnum():
            return None
        scan.emit(self._table.abbreviated_heads[match["head"]] + match["rest"].lower(), *match.span())
        self._codes.note_word(scan, match["rest"])
        return match.end()

    def _read_sizes(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "S-XL"."""
        if match.start() and scan.view[match.start() - 1].isalnum():
            return None
        self._speller.spell(scan, *match.span("low"))
        scan.emit(self._table.range_word, match.end("low"), match.start("high"))
        self._speller.spell(scan, *match.span("high"))
        scan.context.note_word()
        return match.end()

    def _read_letters(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "C–E", and "C-E" after the word of a section."""
        is_range = match["low"].isupper() and match["high"].isupper() and match["low"] < match["high"]
        is_told = match["dash"] == "–" or scan.context.previous_word in self._table.section_words
        return self._read_sizes(scan, match) if is_range and is_told else None

    def _read_joined(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "50er" and "18-jährig" as one word."""
        number, table = int(match["whole"]), self._table
        if number in _YEARS_OF_CENTURIES and table.lone_year_rules:
            words = self._numbers.spell_out(number, table.lone_year_rules)
        else:
            words = self._numbers.number(number, table.times.gender if table.times else "")
        scan.emit(words + match["ending"], *match.span())
        scan.context.note_word(match["ending"])
        return match.end()

    def _read_unit_compound(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "24-h-" of "24-h-Hotline"."""
        noun = self._table.units[match["unit"]]
        words = self._numbers.counted(match["whole"], match["fraction"], noun)
        scan.emit(words, *match.span())
        scan.context.note_word(words)
        return match.end()
