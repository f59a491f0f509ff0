"""Rules of what an amount is for: "/Monat", "per kWh", "7 jours/7"."""

import re

from ....lazy_pattern import LazyPattern
from ....unicode_scripts import HANGUL
from ...tokenizer import RuleRow, ScanState, any_of
from ..language_table import LanguageTable
from ..numbers import NumberPatterns, TableNumberWords, with_noun
from ..speller import TableSpeller

_MIN_UNIT_LETTERS = 3  # of a unit after "64/"; a shorter one may be part of a code
_DIGIT = re.compile(r"\d")
_COUNTED_NOUN_BEHIND = re.compile(
    rf"\d(?: [^\W\d_]{{2,20}}|[{HANGUL}]{{1,4}}| ?[%€$£₽])?(?: [^\W\d_]{{2,8}})?\Z"
)


class TableRates:
    """Recognisers of rates of one language."""

    def __init__(
        self,
        table: LanguageTable,
        numbers: TableNumberWords,
        speller: TableSpeller,
        patterns: NumberPatterns,
    ) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        self._patterns = patterns
        self._per = LazyPattern(
            rf" ?/ ?(?:(?P<known>{any_of(table.per) or '(?!)'})(?!\w)"
            rf"|(?P<size>\d{{1,3}}) ?(?P<of>{patterns.units}){patterns.end}"
            rf"|(?P<unit>{patterns.units}){patterns.end}"
            r"|(?P<word>[^\W\d_]{1,20}\b)|(?P<number>\d{1,3}(?!\d)))"
        )

    def letter_row(self) -> RuleRow:
        """Return the rule of "per kWh"."""
        patterns, cues = self._patterns, any_of(self._table.per_cues)
        rate = rf"(?P<cue>(?i:{cues})) (?P<unit>{patterns.units}){patterns.end}" if cues else "(?!)"
        return rate, self._read_rate

    def sign_row(self) -> RuleRow:
        """Return the rule of the "/" after a noun."""
        units = (unit for unit in self._table.units if len(unit) >= _MIN_UNIT_LETTERS and unit.isalpha())
        return rf"/(?:{any_of({*self._table.per_nouns, *units, '7'})})(?!\w)", self._read_slash

    def read_per(self, scan: ScanState, at: int, counted: str = "") -> int:
        """Read the "/Monat" after a price or a unit, and return where it ends.

        ``counted``: begins the entry of what is no price, where it has one of its own.
        """
        table, match = self._table, self._per.match(scan.view, at)
        if match is None:
            return at
        known = match["known"] or (match["word"] or "").lower()
        entry = table.per.get(f"{counted}{known}") or table.per.get(known)
        if entry:
            words = entry
        elif match["number"]:
            words = f"{table.fraction_word} {self._numbers.number(int(match['number']))}"
        elif match["of"]:
            words = f"{table.per_word} {self._numbers.counted(match['size'], None, table.units[match['of']])}"
        elif match["unit"]:
            words = f"{table.per_word} {with_noun('', table.noun_form(table.units[match['unit']], 1))}"
        else:
            words = f"{table.per_word} {match['word']}"
        if words.endswith("{}"):
            self._put_before_amount(scan, words.removesuffix("{}"), at, match.end())
        else:
            scan.emit(words, at, match.end())
        return match.end()

    def _put_before_amount(self, scan: ScanState, words: str, start: int, stop: int) -> None:
        """Say the "ayda" of "500 TL/ay" before the amount that was read last."""
        place = self._start_of_last(scan, len(scan.words))
        if place and not _DIGIT.search(scan.view, scan.words[place].start, start):
            place = self._start_of_last(scan, place)  # "3 tablet/gün"
        amount = scan.words[place:]
        del scan.words[place:]
        first = amount[0].start if amount else start
        scan.emit(words, first, stop)
        for word in amount:
            word.stop = stop
        scan.words += amount

    def _start_of_last(self, scan: ScanState, place: int) -> int:
        """Return the place of the first of the words before ``place`` that stand for the same characters."""
        start = scan.words[place - 1].start if place else -1
        while place and scan.words[place - 1].start == start:
            place -= 1
        return place

    def _read_rate(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "per kWh"."""
        if match.start() and scan.view[match.start() - 1].isalnum():
            return None
        scan.emit(match["cue"], *match.span("cue"))
        scan.emit(self._table.units[match["unit"]].forms[0], *match.span("unit"))
        scan.context.note_word(scan.words[-1].text)
        return self._speller.end_sentence(scan, match.end())

    def _read_slash(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "/jour" of "3 fois/jour", the "/min" of "64/min", and "7 jours/7"."""
        if not _COUNTED_NOUN_BEHIND.search(scan.view, max(0, match.start() - 24), match.start()):
            return None
        return self._speller.end_sentence(scan, self.read_per(scan, match.start(), "/"))
