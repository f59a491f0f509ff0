"""Characters and digits of codes in a language that a table describes."""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from ..spelling import Speller
from ..tokenizer import ScanState
from .language_table import LanguageTable
from .numbers import TableNumberWords

_VOWEL = re.compile("[aeiouàâäãåáèéêëìíîïòóôöõøùúûüąęœæıаеёиоуыэюя]", re.IGNORECASE)
_ENDING = re.compile(r"(?P<mark>\W)(?P<suffix>[^\W\d_]{1,12})")
_MAX_SPELLED_LETTERS = 4  # without a vowel, in an address: "www", but not "rhythm"
_MAX_CODE_LETTERS = 3  # capitals beside digits, spelled though they could be read: "LA-12"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpeller(Speller):
    """Speller with the letters' names, the phone groups and the endings after numbers of a table."""

    table: LanguageTable
    suffix_mark: ClassVar[str] = ""  # an apostrophe that joins an ending to a number
    spelled_heads: ClassVar[bool] = False  # the capitals of "BTW-nummer" are spelled
    reads_pairs: ClassVar[bool] = False  # phone numbers are read in pairs

    @classmethod
    def of_table(cls, table: LanguageTable, numbers: TableNumberWords) -> Self:
        """The speller of a language."""
        return cls(
            table.marks,
            numbers.digit,
            lambda text: numbers.number(int(text)),
            point=table.marks["."],
            pairs_digits=cls.reads_pairs,
            table=table,
        )

    def letter_name(self, scan: ScanState, letter: str) -> str:
        """Return the name of ``letter``; a letter of another alphabet stays."""
        return self.table.letters.get(letter.lower(), letter)

    def emit_number(self, scan: ScanState, words: str, start: int, stop: int) -> int:
        """Emit the words of a number, and return where it ends."""
        scan.emit(words, start, stop)
        return self.finish_number(scan, stop)

    def finish_number(self, scan: ScanState, end: int) -> int:
        """Note that a number ends at ``end``, and join the ending to it that an apostrophe separates."""
        return Speller.finish_number(self, scan, self.join_suffix(scan, self.end_sentence(scan, end)))

    def end_sentence(self, scan: ScanState, end: int) -> int:
        """Keep the full stop of an abbreviation that ends the text at ``end``; return ``end``."""
        if scan.view[end - 1 : end] == "." and not scan.next_visible(end):
            scan.punctuate(".")
        return end

    def join_suffix(self, scan: ScanState, end: int) -> int:
        """Join the ending at ``end`` that an apostrophe separates to the last word; return where it ends."""
        ending = _ENDING.match(scan.view, end) if self.suffix_mark else None
        if ending is None or not scan.words or ending["mark"] != self.suffix_mark:
            return end
        word = scan.words[-1]
        word.text = self.with_suffix(word.text, ending["suffix"])
        word.stop = ending.end()
        return ending.end()

    def with_suffix(self, word: str, suffix: str) -> str:
        """Return ``word`` with an ending."""
        return word + suffix

    def read_address_word(self, scan: ScanState, start: int, stop: int) -> None:
        """Read the letters between two marks of an address; those without a vowel are spelled."""
        word = scan.view[start:stop]
        is_domain = word in self.table.spelled_domains and scan.view[start - 1 : start] == "."
        if is_domain or (len(word) <= _MAX_SPELLED_LETTERS and self.is_unpronounceable(word)):
            self.spell(scan, start, stop)
        else:
            scan.emit(word, start, stop)

    def read_address_digits(self, scan: ScanState, start: int, stop: int) -> None:
        """Read the digits of an address; two may be a number."""
        if self.table.address_pairs and stop - start == 2 and scan.view[start] != "0":
            scan.emit(self.number(scan.view[start:stop]), start, stop)
        else:
            self.spell(scan, start, stop)

    def spells_capitals(self, word: str) -> bool:
        """Whether a word in capitals is spelled, as DHL is and NASA is not."""
        return word in self.table.spelled_words or self.is_unpronounceable(word)

    def spells_in_code(self, letters: str) -> bool:
        """Whether letters beside digits are spelled."""
        is_short = len(letters) == 1 or (len(letters) <= _MAX_CODE_LETTERS and letters.isupper())
        return is_short or (letters.isupper() and self.spells_capitals(letters))

    def is_unpronounceable(self, word: str) -> bool:
        """Whether ``word`` has no vowel, and letters that have names."""
        return not _VOWEL.search(word) and all(letter in self.table.letters for letter in word.lower())
