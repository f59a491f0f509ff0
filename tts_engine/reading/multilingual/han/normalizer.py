"""Grammar of Chinese and Japanese.

Every Han character and every mora is a word of its own. Expressions with digits are read by WeText, which
knows dates, times, money, units and phone numbers. The grammar finds them and reads what WeText does not
know: codes, addresses, digits beside Latin letters. Numbers in Japanese become katakana
(``japanese_numbers.py``).
Source: WeTextProcessing's grammars, by wetext (Apache-2.0).
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from ...address_patterns import UNSPACED_ADDRESSES
from ...lazy_pattern import LazyPattern
from ...markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ...spelling import LONG_DIGIT_GROUPS, Speller
from ...tokenizer import WORD_PATTERN, Grammar, Recognizer, RuleRow, ScanState, any_of, compile_rules
from ...unicode_scripts import BOPOMOFO, HAN, KANA, ignores_spaces
from ..number_formatter import MAX_NUMBER_DIGITS, import_extra
from .japanese_numbers import end_of_counter, numerals_to_kana
from .tables import HanTable

_CACHED_READINGS = 1024  # a reading takes 0.5 ms, and conversations repeat their numbers
_CODE_WINDOW_CHARACTERS = 10  # after a word that announces a code
_WITHOUT_CURRENCY_SIGNS = str.maketrans("", "", "$€£¥")
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = r"(?:%|‰|°[CF]?|(?:km/h|m/s|kg|km|cm|mm|mg|ml|kHz|Hz|GB|MB|TB|g|m|L)(?![A-Za-z]))"
_NUMERIC_EXPRESSION = re.compile(
    rf"(?:[$€£¥]?{_NUMBER}(?:[:/~–-]{_NUMBER}){{0,4}}{_UNIT}?[年月日号號时時点點分秒元円個个]?){{1,6}}"
)
_NUMBER_WITH_UNIT = re.compile(rf"{_NUMBER}{_UNIT}")
# Digits before one of these count something, even after a word that announces a code.
_COUNTED = ("位", "个", "個", "元", "天", "分", "次", "年", "月", "円", "人", ".", ",", ":", "%")
# A vowel of a digraph, a long vowel or a doubled consonant belongs to the mora before it.
_KANA_TAIL = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー\u3099\u309a"
_MIDNIGHT = re.compile(r"\A0:(\d\d)(?!\d)")  # a score to WeText
_MIXED_RUN = re.compile(r"\d+(?:\.\d+)?|[A-Za-z]+")


class HanNormalizer:
    """Recognisers of Chinese or Japanese. Raises MissingExtra if wetext is not installed."""

    def __init__(self, table: HanTable) -> None:
        self._table = table
        self._wetext = _load_wetext(table.code)
        self._wide_punctuation = str.maketrans(",;:.!?", table.wide_punctuation)
        self._speller = Speller(
            table.marks,
            self._digit,
            self._number_words,
            point=table.marks["."],
            comma=",".translate(self._wide_punctuation),
        )

    def grammar(self) -> Grammar:
        """Return the grammar of the language."""
        lines = compile_rules(*LINE_START_ROWS, (r"(\d{1,3})[.)] +(?=\S)", self._speller.read_list_number))
        letters = compile_rules(
            *self._speller.address_rows(UNSPACED_ADDRESSES),
            (rf"(?:{any_of(self._table.code_words)})", self._read_code_word),
            *self._number_prefix_rows(),
            (
                r"[A-Za-z]{1,20}(?:-?\d{1,20}(?:\.\d{1,9})?[A-Za-z]{0,20}){1,4}(?![A-Za-z0-9])",
                self._read_mixed,
            ),
        )
        word = rf"[{KANA}][{_KANA_TAIL}]*|[{HAN}{BOPOMOFO}]|{WORD_PATTERN}(?:-{WORD_PATTERN})*"
        return Grammar(
            lines,
            letters,
            compile_rules(*self._speller.address_rows(UNSPACED_ADDRESSES), *self._number_rows()),
            compile_rules(*MARKUP_ROWS, *self._sign_rows()),
            (LazyPattern(word), self._read_word),
        )

    def _number_prefix_rows(self) -> tuple[RuleRow, ...]:
        words = any_of(self._table.number_prefixes)
        return ((rf"({words})(?=\d)", self._read_number_prefix),) if words else ()

    def _number_rows(self) -> tuple[RuleRow, ...]:
        street_block = (r"\d{1,4}(?:-\d{1,4}){2,3}(?![\d-])", self._read_street_block)
        return (
            (r"((?:1[5-9]|2[01])\d\d)([-/.])(\d{1,2})\2(\d{1,2})(?![\d-])", self._read_date),
            (r"(\d{1,2})/(\d{1,2})(?=[(（])", self._read_month_and_day),
            (r"0\d{2,3}-\d{7,8}(?!\d)|\d{3}(?:-\d{3,4}){2}(?!\d)", self._speller.read_digit_groups),
            (r"0\d{1,4}(?:-\d{1,4}){2}(?![\d-])", self._speller.read_digit_groups),
            *((street_block,) if self._table.block_separator else ()),
            (r"(?<=〒)\d{3}-\d{4}(?!\d)", self._speller.read_digit_groups),
            (LONG_DIGIT_GROUPS, self._speller.read_digit_groups),
            (r"\d+(?:\.\d+){2,}(?![.\d])", self._speller.read_version),
            (r"\d+", self._read_code),
            (r"\d{1,6}[A-Za-z][A-Za-z0-9]{0,20}", self._read_mixed),
            (_NUMERIC_EXPRESSION.pattern, self._read_expression),
            (r"\d+", self._speller.read_digits),
        )

    def _sign_rows(self) -> tuple[RuleRow, ...]:
        return (
            (rf"([$€£¥])({_NUMBER}[万亿萬億兆]+)[元円]?", self._read_large_money),
            (_NUMERIC_EXPRESSION.pattern, self._read_expression),
            (r"\+\d{1,3}(?:[ -]?\d{1,5}){1,5}(?!\d)", self._speller.read_digit_groups),
            (r"-(?=\d)", self._read_minus),
            (r"[，、；：。！？]", self._read_wide_mark),
            *((pattern, self._with_wide_punctuation(read)) for pattern, read in PUNCTUATION_ROWS),
            (r"[@+&=]|#(?![A-Za-z0-9#])", self._read_mark),
            (r"~(?=\d)", self._read_range),
            (r"/(?=[年月周天日时次人件个]|小时|分钟)", self._read_per),
        )

    # Words

    def _read_word(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(unicodedata.normalize("NFC", match.group()), match.start(), match.end())
        scan.context.note_word()
        return match.end()

    def _read_code_word(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read a word that announces a code, character by character."""
        for at in range(match.start(), match.end()):
            scan.emit(scan.view[at], at, at + 1)
        scan.context.note_word()
        scan.context.code_words_left = _CODE_WINDOW_CHARACTERS
        return match.end()

    def _read_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._table.marks[match.group()], match.start(), match.end())
        return match.end()

    def _read_per(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._table.per, match.start(), match.end())
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

    # Numbers

    def _digit(self, digit: str) -> str:
        return self._table.digits[int(digit)]

    def _number_words(self, text: str) -> str:
        """Return a numeric expression as WeText reads it; digits that it leaves are read one by one."""
        for unit, name in self._table.units.items():
            text = text.replace(unit, name)
        text = _MIDNIGHT.sub(r"零点\1分", text.replace(",", "")) if not self._table.numbers_in_kana else text
        words = self._wetext(text).translate(_WITHOUT_CURRENCY_SIGNS)
        if self._table.numbers_in_kana:
            words = numerals_to_kana(words)
        return "".join(self._digit(one) if one in "0123456789" else one for one in words)

    def _read_expression(self, scan: ScanState, match: re.Match[str]) -> int | None:
        text = match.group()
        if max(len(run) for run in re.findall(r"\d+", text)) > MAX_NUMBER_DIGITS:
            return None
        if text[0] in "$€£¥" and text[-1] in "元円":
            text = text[1:]
        if self._table.numbers_in_kana:
            return self._read_with_counter(scan, match, text)
        scan.emit(self._words_before(text, scan.view[match.end() : match.end() + 2]), *match.span())
        return self._speller.finish_number(scan, match.end())

    def _read_with_counter(self, scan: ScanState, match: re.Match[str], text: str) -> int:
        """Read an expression together with the Japanese counter after it, which changes its sound."""
        end = end_of_counter(scan.view, match.end())
        counted = text + scan.view[match.end() : end]
        scan.emit(self._number_words(counted), match.start(), end)
        return self._speller.finish_number(scan, end)

    def _words_before(self, text: str, following: str) -> str:
        """Return the words of an expression before ``following``, two characters that decide its reading."""
        if not following or not all(map(ignores_spaces, following)):
            return self._number_words(text)
        words = self._number_words(text + following)
        return words.removesuffix(following) if words.endswith(following) else self._number_words(text)

    def _read_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2026-05-03" or "2026/5/3"."""
        year, month, day = match.group(1), int(match.group(3)), int(match.group(4))
        return self._emit_date(scan, match, f"{year}年", month, day)

    def _read_month_and_day(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "5/3" of "5/3（月）"."""
        return self._emit_date(scan, match, "", int(match.group(1)), int(match.group(2)))

    def _emit_date(
        self, scan: ScanState, match: re.Match[str], year: str, month: int, day: int
    ) -> int | None:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        scan.emit(self._number_words(f"{year}{month}月{day}日"), *match.span())
        return self._speller.finish_number(scan, match.end())

    def _read_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "~" between two amounts with their units."""
        if not scan.context.after_number:
            return None
        scan.emit(self._table.range_word, *match.span())
        return match.end()

    def _read_large_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "¥1万"."""
        words = self._number_words(match.group(2)) + self._table.currencies[match.group(1)]
        scan.emit(words, match.start(), match.end())
        return self._speller.finish_number(scan, match.end())

    def _read_street_block(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "1-2-3" of a Japanese address."""
        words = map(self._number_words, match.group().split("-"))
        scan.emit(self._table.block_separator.join(words), match.start(), match.end())
        return self._speller.finish_number(scan, match.end())

    def _read_code(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read digits one by one if they were announced as a code or begin with zero."""
        digits = match.group()
        following = scan.view[match.end() : match.end() + 1]
        announced = scan.context.code_words_left > 0 and len(digits) > 2 and following not in _COUNTED
        has_leading_zero = len(digits) > 1 and digits[0] == "0" and following not in (".", ":")
        if not (announced or has_leading_zero):
            return None
        return self._speller.read_digits(scan, match)

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and scan.view[match.start() - 1].isascii() and scan.view[match.start() - 1] != " ":
            return None
        number = _NUMERIC_EXPRESSION.match(scan.view, match.end())
        if number is None:
            return None
        end = end_of_counter(scan.view, number.end()) if self._table.numbers_in_kana else number.end()
        scan.emit(self._number_words(scan.view[match.start() : end]), match.start(), end)
        return self._speller.finish_number(scan, end)

    def _read_mixed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "GPT-4", "A1234" or "5G": the letters as written, long numbers digit by digit."""
        if _NUMBER_WITH_UNIT.match(match.group()):
            return None
        for run in _MIXED_RUN.finditer(scan.view, match.start(), match.end()):
            text = run.group()
            if text.isalpha():
                scan.emit(text, run.start(), run.end())
            elif "." in text or (len(text) < 3 and text[0] != "0"):
                scan.emit(self._number_words(text), run.start(), run.end())
            else:
                self._speller.spell(scan, run.start(), run.end())
        scan.context.note_word()
        return match.end()


def _load_wetext(language: str) -> Callable[[str], str]:
    """Return WeText's normalizer of "zh" or "ja". Raises MissingExtra if wetext is not installed."""
    normalize: Callable[[str], str] = import_extra("wetext").Normalizer(lang=language).normalize
    return lru_cache(_CACHED_READINGS)(normalize)
