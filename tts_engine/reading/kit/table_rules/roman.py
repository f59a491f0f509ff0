"""Values of Roman numerals, and their rules in a language that a table describes."""

import re
from itertools import pairwise
from typing import Final

from ..tokenizer import SMALL_LETTERS, RuleRow, ScanState, any_of
from .language_table import LanguageTable
from .numbers import TableNumberWords
from .speller import TableSpeller

_NUMERAL: Final = re.compile(r"(?=[IVXLC])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,4})\Z")
_VALUES: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_NAME_BEHIND = re.compile(r"(?<!\w)(?:[^\W\d_a-z][^\W\d_A-Z]{2,20}|[\uac00-\ud7a3]{2,20}) \Z")
_ROMAN_AFTER_NAME = re.compile("[IVX]{1,6}")
_STOP_IN_SENTENCE = re.compile(rf"\.(?= [{SMALL_LETTERS}])")
_ROMAN_BEHIND = re.compile(r"(?<!\w)[IVXLC]{2,7} [^\W\d_A-Z]{1,3} \Z")  # "XV e "


def roman_value(numeral: str) -> int | None:
    """Return the value of a numeral of I, V, X, L and C, also of "IIII"; None if it is not well-formed."""
    if not _NUMERAL.match(numeral):
        return None
    values = [_VALUES[letter] for letter in numeral]
    return sum(-value if value < after else value for value, after in pairwise([*values, 0]))


class TableRomanNumerals:
    """Recognisers of Roman numerals of one language."""

    def __init__(self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller

    def rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of Roman numerals with a word or a suffix that tells what they are."""
        table = self._table
        end = table.end
        rows: list[RuleRow] = []
        if table.roman_ordinals:
            after = any_of(table.roman_ordinals)
            joints = any_of({*table.case_joints, *table.day_joints}) or "(?!)"
            rows.append(
                (
                    rf"(?P<roman>[IVX]{{1,7}})(?P<joint> ?[-–] ?| (?:{joints}) )"
                    rf"(?=[IVX]{{1,7}}(?P<word>{after})(?!\w))",
                    self._read_first_roman,
                )
            )
            rows.append(
                (rf"(?P<roman>[IVX]|[IVXLC]{{2,7}})(?P<word>{after})(?!\w)", self._read_roman_ordinal)
            )
        if table.ordinals_by_noun:
            rows.append((r"(?=[A-Z])(?P<roman>[IVX]{1,6})(?= [^\W\d_])", self._read_before_noun))
        if table.roman_numbers:
            rows.append((rf"(?=[A-Z])(?P<roman>[IVX]|[IVXLC]{{2,7}}){end}", self._read_roman_number))
        return tuple(rows)

    def _read_roman_ordinal(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "XX" of "XX secolo"; a suffix without a blank, as in "XXe", is part of it."""
        number, word = roman_value(match["roman"]), match["word"]
        # The stop of "XIX. yüzyıl"; that of "faz II." ends a sentence.
        is_end = scan.context.previous_word in self._table.roman_numbers or not scan.next_visible(match.end())
        if number is None or (word == "." and is_end):
            return None
        readings = self._table.roman_ordinals
        reading = readings.get(f"{scan.context.previous_word}{word}", readings[word])
        rules, _, noun = reading.partition(": ")
        words = f"{self._numbers.spell_out(number, rules)} {noun}"
        if noun and word[0] == " ":
            return self._speller.emit_number(scan, words, *match.span())
        return self._speller.emit_number(
            scan, words, match.start(), match.end("roman" if word[0] == " " else "word")
        )

    def _read_first_roman(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "XVIII–" of "XVIII–XIX вв."."""
        number, word, previous = roman_value(match["roman"]), match["word"], scan.context.previous_word
        readings = self._table.roman_ordinals
        rules = readings.get(f"{previous}{word}", readings[word]).partition(": ")[0]
        if number is None or word[0] != " ":
            return None
        joint = match["joint"].strip()
        scan.emit(self._numbers.spell_out(number, rules), *match.span("roman"))
        scan.emit(self._table.range_word if joint in "-–" else joint, *match.span("joint"))
        is_joint = joint in "-–" or joint in self._table.case_joints
        scan.context.previous_word = previous if is_joint else joint
        return match.end()

    def _read_before_noun(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "III" of "na III piętrze"."""
        number, noun = roman_value(match["roman"]), scan.next_word(match.end())
        rules = self._table.ordinal_before(noun, scan.context.previous_word)
        if number is None or not rules:
            return None
        return self._speller.emit_number(scan, self._numbers.spell_out(number, rules), *match.span())

    def rules_after_name(self, name: str, roman: str) -> str:
        """Return the rule set of Roman numerals after a name; "" for none."""
        return self._table.roman_after_names if len(roman) > 1 else ""

    def _read_roman_number(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "XX" of "siglo XX"."""
        number, table = roman_value(match["roman"]), self._table
        reading = table.roman_numbers.get(scan.context.previous_word, "")
        rules, _, last = reading.rpartition(" ") if reading[-1:].isdigit() else (reading, "", "")
        is_after_name = _NAME_BEHIND.search(scan.view, max(0, match.start() - 24), match.start())
        is_second = _ROMAN_BEHIND.search(scan.view, max(0, match.start() - 14), match.start())
        is_day = scan.next_word(match.end()).lower() in table.months
        if not rules and _ROMAN_AFTER_NAME.fullmatch(match["roman"]) and is_after_name and not is_day:
            rules = self.rules_after_name(is_after_name.group().rstrip(), match["roman"])
        if len(match["roman"]) > 1 and is_second:
            rules = rules or "spellout-numbering"
        if number is None or not rules:
            return None
        if last and number > int(last):
            rules = "spellout-numbering"
        words = self._numbers.spell_out(number, rules)
        if "ordinal" not in rules or not table.roman_article:
            return self._speller.emit_number(scan, words, *match.span())
        stop = _STOP_IN_SENTENCE.match(scan.view, match.end())
        return self._speller.emit_number(
            scan, f"{table.roman_article} {words}", match.start(), (stop or match).end()
        )
