"""Rules of ordinals in a language that a table describes: "1er", "3. Stock", "2025 г."."""

import re

from ..tokenizer import ScanState
from .language_table import LanguageTable
from .number_context import TableNumberContext
from .numbers import TableNumberWords
from .speller import TableSpeller

_MINUTE = re.compile(r" [Mm]in(?![\w.])")
_MIN_JOINED_NOUN = 4  # letters of the last part of a compound
_MAX_LONE_ORDINAL = 31  # of "1°" without a noun; a larger number counts degrees


class TableOrdinals:
    """Recognisers of ordinals of one language."""

    lone_ordinal_cues: frozenset[str] = frozenset()  # words before "2°" without a noun; else of degrees

    def __init__(
        self,
        table: LanguageTable,
        numbers: TableNumberWords,
        speller: TableSpeller,
        context: TableNumberContext,
    ) -> None:
        self._table, self._numbers, self._speller, self._context = table, numbers, speller, context
        self._joined_nouns = tuple(noun for noun in table.ordinal_nouns if len(noun) >= _MIN_JOINED_NOUN)

    def read_suffixed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "1er"; a suffix that begins with a blank may be read as another word."""
        number, suffix = match["whole"], match["suffix"]
        # "180°" without a noun is no ordinal.
        if suffix in self._table.units and not self._context.gender_of_noun(scan, match.end(), 1):
            cues = self.lone_ordinal_cues or {scan.context.previous_word}
            if number != "1" and (
                self._numbers.value(number) > _MAX_LONE_ORDINAL or scan.context.previous_word not in cues
            ):
                return None
        # "г." is the year after four digits, else grams.
        if suffix.startswith(" ") and len(number) != 4:
            return None
        rules, _, word = self._suffix_reading(scan, match, match).partition(": ")
        words = self._numbers.spell_out(self._numbers.value(number), rules)
        if not word:
            return self._speller.emit_number(
                scan, words, match.start(), match.end("whole" if suffix[0] == " " else "suffix")
            )
        scan.emit(words, *match.span("whole"))
        self._speller.emit_number(scan, word, match.start("suffix") + 1, match.end())
        if not scan.next_visible(match.end()):
            scan.punctuate(".")
        return match.end()

    def rules_of_suffix(self, scan: ScanState, match: re.Match[str], suffixed: re.Match[str]) -> str:
        """Return the rule set of the number that ``match`` begins with, by the suffix of ``suffixed``."""
        return self._suffix_reading(scan, match, suffixed).partition(": ")[0]

    def _suffix_reading(self, scan: ScanState, match: re.Match[str], suffixed: re.Match[str]) -> str:
        """Return the entry of a suffix, by the word before the number or the noun after it."""
        suffixes, noun = self._table.ordinal_suffixes, scan.next_word(suffixed.end())
        number, suffix = match["whole"], suffixed["suffix"]
        previous = self._table.governor(scan.context.previous_word, scan.view[: match.start()])
        reading = suffixes.get(f"{previous}{suffix}") if previous else None
        if reading is None and number[-1] == "0":
            reading = suffixes.get(f"0{suffix}")
        return reading or self.rules_by_noun(suffix, noun) or suffixes[suffix]

    def rules_by_noun(self, suffix: str, noun: str) -> str | None:
        """Return the entry of a suffix that the noun after it tells apart, or None."""
        return None

    def read_stop(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3." of "der 3. Stock", or of "3. kat" where a small letter follows an ordinal."""
        rules = self._rules_of_stop(scan, match)
        if rules is None:
            return None
        return self._emit_ordinal(scan, match, self._numbers.spell_out(int(match["number"]), rules))

    def _names_ordinal(self, noun: str) -> bool:
        """Whether ordinals stand before a noun: "Stufe", and where nouns are joined "Mahnstufe"."""
        nouns = self._table.ordinal_nouns
        return noun in nouns or (self._context.nouns_are_capitalized and noun.endswith(self._joined_nouns))

    def read_added(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "90.+3" of "in der 90.+3 Minute"."""
        rules = self._rules_of_stop(scan, match)
        if rules is None:
            return None
        minute, added = (self._numbers.spell_out(int(match[part]), rules) for part in ("number", "added"))
        return self._emit_ordinal(scan, match, f"{minute} {self._table.marks['+']} {added}")

    def _emit_ordinal(self, scan: ScanState, match: re.Match[str], words: str) -> int:
        """Emit an ordinal, with the "min" that is written after it without a stop."""
        previous = scan.context.previous_word
        end = self._speller.emit_number(scan, words, *match.span())
        minute = _MINUTE.match(scan.view, end)
        if minute is None or "min" not in self._table.units:
            return end
        noun = self._table.inflected(self._table.units["min"].forms[0], previous)
        scan.emit(noun, end + 1, minute.end())
        scan.context.note_word(noun)
        return minute.end()

    def _rules_of_stop(self, scan: ScanState, match: re.Match[str]) -> str | None:
        """Return the rule set of an ordinal with a stop, or None for another number."""
        before, noun = scan.view[: match.start()], scan.next_word(match.end())
        previous = scan.context.previous_word
        rules = self._table.ordinal_before(noun, previous)
        rules = rules or self._numbers.ordinal_rules_after(previous, before)
        has_suffix = scan.view[match.end()] == self._speller.suffix_mark
        is_ordinal = has_suffix or noun[:1].islower() or self._names_ordinal(noun.partition("'")[0].lower())
        if rules is None and self._table.stop_ordinals and is_ordinal:
            case = self._table.case_after(previous)
            key = f"{self._context.gender_of_noun(scan, match.end(), 1)} {case}".strip()
            rules = self._table.stop_ordinals.get(key) or self._table.stop_ordinals[""]
        return rules
