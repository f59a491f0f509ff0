"""Rules of words with a part abbreviated or in digits: "Goethestr.", "18-jährig", "24-h-Hotline"."""

import re

from ..tokenizer import RuleRow, ScanState, any_of
from .codes import TableCodes
from .language_table import LanguageTable
from .numbers import TableNumberWords
from .speller import TableSpeller


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
        if not self._table.joined_numbers:
            return ()
        endings = any_of(self._table.joined_abbreviations) or "(?!)"
        ending = rf"(?P<ending>(?:{endings})|[^\W\d_A-Z]{{4,30}})(?!\w)"
        return ((rf"(?P<whole>\d{{1,3}})-{ending}", self._read_adjective),)

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
        if (
            hyphen
            and self._speller.spelled_heads
            and first.isupper()
            and self._speller.spells_capitals(first)
        ):
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
