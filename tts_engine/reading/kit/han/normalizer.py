"""Grammar of Chinese and Japanese.

Every Han character and every mora is a word of its own. Expressions with digits are read by WeText, which
knows dates, times, money and phone numbers. The grammar finds them and reads what WeText does not know:
codes (``codes.py``), dates without words (``dates.py``), units and ranges (``amounts.py``), addresses.
Each of the languages has its own number words.
Source: WeTextProcessing's grammars, by wetext (Apache-2.0).
"""

import re
import unicodedata
from pathlib import Path

from ...language import Language
from ...unicode_scripts import BOPOMOFO, HAN, KANA, LATIN, NO_SPACE_SCRIPTS, ignores_spaces
from ..address_patterns import UNSPACED_ADDRESSES
from ..data_files import phrase_words
from ..markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ..mathematics.finder import with_mathematics
from ..patterns import RulePattern
from ..spelling import Speller
from ..tokenizer import (
    WORD_PATTERN,
    Grammar,
    Recognizer,
    RuleRow,
    ScanState,
    any_of,
    compile_capital_rules,
    compile_rules,
)
from .amounts import HanAmounts
from .codes import HanCodes
from .dates import HanDates
from .numbers import HanNumbers
from .tables import HanTable, han_table

# A vowel of a digraph, a long vowel or a doubled consonant belongs to the mora before it.
_KANA_TAIL = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー\u3099\u309a"
# A word of a script with blanks; it ends before Han and kana.
_SPACED_WORD = WORD_PATTERN.replace(r"[^\W\d_]", rf"(?![{NO_SPACE_SCRIPTS}])[^\W\d_]")


class HanNormalizer:
    """Recognisers of Chinese or Japanese.

    Attributes:
        numbers_type: number words of the language.
        dates_type: recognisers of its dates.
    """

    numbers_type: type[HanNumbers]
    dates_type: type[HanDates]

    def __init__(self, table: HanTable) -> None:
        numbers = self._numbers = self.numbers_type(table)
        self._table = table
        self._wide_punctuation = str.maketrans(",;:.!?", table.wide_punctuation)
        self._speller = Speller(
            table.marks,
            numbers.digit,
            numbers.words,
            point=table.version_point,
            comma=",".translate(self._wide_punctuation),
        )
        self._amounts = HanAmounts(table, numbers, self._speller)
        self._codes = HanCodes(table, numbers, self._speller, self._amounts.counts)
        self._dates = self.dates_type(table, numbers, self._speller)

    def grammar(self) -> Grammar:
        """Return the grammar of the language."""
        # One rule: each rule costs time at every character.
        patterns = (pattern for pattern, _ in self._speller.address_rows(UNSPACED_ADDRESSES))
        address = ("|".join(f"(?:{pattern})" for pattern in patterns), self._speller.read_address)
        word = rf"[{KANA}][{_KANA_TAIL}]*|[{HAN}{BOPOMOFO}]|{_SPACED_WORD}(?:-{_SPACED_WORD})*"
        return Grammar(
            lines=compile_rules(*LINE_START_ROWS, (r"(\d{1,3})[.)] +(?=\S)", self._speller.read_list_number)),
            letters=compile_capital_rules(*self._amounts.letter_rows())
            + compile_rules(
                address,
                *self._number_prefix_rows(),
                *self._codes.letter_rows(),
                *self._dates.letter_rows(),
            ),
            digits=compile_rules(
                address,
                *self._dates.number_rows(),
                *self._amounts.number_rows(),
                *self._codes.number_rows(),
                (r"\d{1,6}[A-Za-z][A-Za-z0-9]{0,20}", self._codes.read_mixed),
                *self._amounts.expression_rows(),
                (r"\d+", self._speller.read_digits),
            ),
            symbols=compile_rules(*MARKUP_ROWS, *self._sign_rows()),
            word=(RulePattern(word), self._read_word),
        )

    def grammar_with_formulas(self, module_file: str) -> Grammar:
        """Return the grammar of the language in whose folder ``module_file`` is, with its mathematics."""
        comma = ",".translate(self._wide_punctuation)
        return with_mathematics(
            module_file, self.grammar(), self._numbers.of_formula, self._speller.letter_name, comma
        )

    def _number_prefix_rows(self) -> tuple[RuleRow, ...]:
        words = any_of(self._table.number_prefixes)
        return ((rf"({words})(?=\d)", self._read_number_prefix),) if words else ()

    def _sign_rows(self) -> tuple[RuleRow, ...]:
        return (
            *self._dates.sign_rows(),
            *self._codes.sign_rows(),
            *self._amounts.sign_rows(),
            (UNSPACED_ADDRESSES.path, self._speller.read_address),
            (r"~(?=[$¥€£]?\d)", self._read_about),
            (r"[，、；：。！？]", self._read_wide_mark),
            *((pattern, self._with_wide_punctuation(read)) for pattern, read in PUNCTUATION_ROWS),
            (any_of(mark for mark in self._table.marks if len(mark) > 1) or r"(?!)", self._read_mark),
            (r"[@+&=→]|#(?![A-Za-z0-9#])", self._read_mark),
            (r"[-=]{1,2}>(?= ?[^\s>])", self._read_arrow),
        )

    def _read_word(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(unicodedata.normalize("NFC", match.group()), match.start(), match.end())
        scan.context.note_word()
        return match.end()

    def _read_about(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the sign of "~20分"; after a number it is a range."""
        if scan.context.after_number:
            return None
        scan.emit(self._table.about, *match.span())
        return match.end()

    def _read_arrow(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._table.marks["→"], *match.span())
        return match.end()

    def _read_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._table.marks[match.group()], match.start(), match.end())
        return match.end()

    def _read_wide_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.punctuate(match.group())
        scan.context.code_just_announced = match.group() == "：" and scan.context.code_words_left > 0
        if match.group() in "。！？":
            scan.context.end_sentence()
        return match.end()

    def _with_wide_punctuation(self, recognizer: Recognizer) -> Recognizer:
        """Return a recogniser of punctuation that makes the mark wide after a character that is."""

        def recognize(scan: ScanState, match: re.Match[str]) -> int | None:
            end = recognizer(scan, match)
            if scan.words and ignores_spaces(scan.words[-1].text[-1]):
                scan.words[-1].punctuation = scan.words[-1].punctuation.translate(self._wide_punctuation)
            return end

        return recognize

    def _read_number_prefix(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._table.number_prefixes[match.group(1)], match.start(), match.end())
        scan.context.note_word()
        return match.end()


def han_language(
    module_file: str, name: str, rules: type[HanNormalizer], script: str, aliases: tuple[str, ...] = ()
) -> Language:
    """Return the record of the language in whose folder, named by its code, ``module_file`` is.

    script: its letters besides Latin and Han. The grammar raises MissingExtra if wetext is not installed.
    """
    return Language(
        code=Path(module_file).parent.name,
        name=name,
        grammar=lambda: rules(han_table(module_file)).grammar_with_formulas(module_file),
        phrases=lambda: phrase_words(module_file),
        scripts=(LATIN, HAN, script),
        is_latin=False,
        aliases=aliases,
    )
