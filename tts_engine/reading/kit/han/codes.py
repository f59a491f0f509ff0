"""Codes of Chinese and Japanese: phone numbers, groups of digits, rooms, versions, digits beside letters."""

import re
from collections.abc import Callable

from ..spelling import LONG_DIGIT_GROUPS, MASKED_DIGITS, NAMED_DIGITS, Speller
from ..tokenizer import RuleRow, ScanState, any_of
from .numbers import HanNumbers
from .tables import HanTable

_CODE_WINDOW_CHARACTERS = 10  # after a word that announces a code
_PHONE_WINDOW_CHARACTERS = 4
_MIN_CODE_DIGITS = 3
_MIN_MIXED_CODE_CHARACTERS = 5  # "ab12c" after "password"
_MAX_PREFIX_CHARACTERS = 3
_MIXED_RUN = re.compile(r"\d+(?:\.\d+)*|[A-Za-z]+")
# Japan's street blocks: "4-2-8", "1-10-1005"
_STREET_BLOCK = r"[1-9]\d?(?:-[1-9]\d{0,2}){1,2}(?:-[1-9]\d{0,3})?(?![\d-])"


class HanCodes:
    """Recognisers of codes. ``counts``: whether what stands at a position of a text is counted."""

    def __init__(
        self, table: HanTable, numbers: HanNumbers, speller: Speller, counts: Callable[[str, int], bool]
    ) -> None:
        self._table = table
        self._numbers = numbers
        self._speller = speller
        self._counts = counts

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a letter."""
        words = (*self._table.code_words, *self._table.phone_words, *"转打拨警救")
        starts = "".join(sorted({word[0] for word in words}))  # most characters begin none of them
        end = r"(?:(?<![A-Za-z])|(?![A-Za-z]))"  # "ID" but not "IDEA"
        return (
            (
                rf"(?=[{starts}])(?:(?P<code>(?:{any_of(self._table.code_words)}){end})|(?P<extension>转(?=\d{{3,5}}(?!\d)))"
                rf"|(?:{any_of(self._table.phone_words)}){end}|[打拨警救](?=\d{{3,12}}(?!\d)))",
                self._read_announcement,
            ),
            (r"(?:UTC|GMT)[-–](?=\d{1,2}(?!\d))", self._read_offset_of_zone),
            (
                r"[A-Za-z]{1,20}(?:-?\d{1,20}(?:\.\d{1,9}){0,4}[A-Za-z]{0,20}){1,4}(?![A-Za-z0-9])",
                self.read_mixed,
            ),
        )

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a digit before those of dates and amounts."""
        groups = self._speller.read_digit_groups
        spelled_before = rf"\d{{3,4}}(?=(?:{any_of(self._table.spelled_before)})(?![内外友程况线人源产价东]))"
        return (
            (r"0\d{2,3}-\d{7,8}(?!\d)|\d{3}(?:-\d{3,4}){2}(?![\d-])", groups),
            (r"0\d{1,4}(?:-\d{1,4}){2}(?![\d-])", groups),
            (r"0\d{1,4}[- ]\d{3,4} \d{3,4}(?!\d)|1\d\d \d{4} \d{4}(?!\d)|[48]00 \d{3} \d{4}(?!\d)", groups),
            (r"\d{2,6}\*{2,12}\d{2,4}(?!\d)", groups),
            (r"(?<=第)\d{5,}(?=期)", self._speller.read_digits),
            (r"1[3-9]\d{9}(?!\d)", self._read_mobile_number),
            (r"(?<=〒)\d{3}-\d{4}(?!\d)", groups),
            *(((_STREET_BLOCK, self._read_street_block),) if self._table.block_separator else ()),
            (r"\d+(?:-\d+){2,8}(?![\d-])", groups),
            (r"\d{3,4}(?: \d{3,4}){2,4}(?![\d年月日])", groups),
            (r"[05-9][05](?=后(?!续|来|面))", self._speller.read_digits),
            (r"\d+(?:[ -]\d{3,})+(?!-?\d)", self._read_announced_groups),
            (LONG_DIGIT_GROUPS, self._read_long_groups),
            (r"\d+(?:\.\d+){2,}(?![.\d])", self._speller.read_version),
            *(((spelled_before, self._speller.read_digits),) if self._table.spelled_before else ()),
            (
                r"(?:(?<=[后後前末])\d{1,2}位|\d{1,2}桁)(?=数?字?[是为為はがの:：])",
                self._read_number_of_digits,
            ),
            (rf"{NAMED_DIGITS}(?={self._table.code_names or '(?!)'})", groups),
            (r"\d+", self._read_code),
        )

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that are tried at a sign."""
        return (
            (r"\+(?=(?:[ -]?\d){7})\d{1,3}(?:[ -]?\d{1,5}){1,5}(?!\d)", self._speller.read_digit_groups),
            (MASKED_DIGITS, self._speller.read_digit_groups),
            (r"\(0\d{1,4}\) ?\d{1,4}-?\d{4}(?!\d)", self._speller.read_digit_groups),
        )

    def _read_announcement(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read a word that announces a code, character by character."""
        if match.lastgroup == "extension" and not scan.context.after_number:
            return None
        window = _CODE_WINDOW_CHARACTERS if match.lastgroup == "code" else _PHONE_WINDOW_CHARACTERS
        window = max(window, scan.context.code_words_left - len(match.group()))
        for at in range(match.start(), match.end()):
            scan.emit(scan.view[at], at, at + 1)
        scan.context.note_word()
        scan.context.code_words_left = window
        return match.end()

    def _read_offset_of_zone(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "UTC-" of "UTC-5"."""
        scan.emit(scan.view[match.start() : match.end() - 1], match.start(), match.end() - 1)
        scan.emit(self._table.minus, match.end() - 1, match.end())
        return match.end()

    def _read_mobile_number(self, scan: ScanState, match: re.Match[str]) -> int:
        self._speller.spell_in_groups(scan, *match.span(), sizes=(3, 4, 4))
        return self._speller.finish_number(scan, match.end())

    def _read_number_of_digits(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "4位" of "后4位是1234", which announces a code."""
        scan.emit(self._numbers.words(match.group()), *match.span())
        end = self._speller.finish_number(scan, match.end())
        scan.context.code_words_left = _CODE_WINDOW_CHARACTERS
        return end

    def _read_announced_groups(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "6234 5678" or "123-4567" after a word that announces a code."""
        if not scan.context.code_words_left or self._counts(scan.view, match.end()):
            return None
        return self._speller.read_digit_groups(scan, match)

    def _read_long_groups(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "4482-9917"; "3000-5000元" is a range."""
        first, _, last = match.group().partition("-")
        is_range = last.isdigit() and int(first) < int(last) and len(last) - len(first) < 2
        if is_range and not scan.context.code_words_left and self._counts(scan.view, match.end()):
            return None
        return self._speller.read_digit_groups(scan, match)

    def _read_street_block(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "1-2-3" of a Japanese address."""
        parts = match.group().split("-")
        if scan.context.code_words_left or (len(parts) == 2 and self._counts(scan.view, match.end())):
            return None
        scan.emit(self._table.block_separator.join(map(self._numbers.words, parts)), *match.span())
        return self._speller.finish_number(scan, match.end())

    def _read_code(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read digits one by one if they are announced as a code, are a room or begin with zero."""
        digits = match.group()
        following = scan.view[match.end() : match.end() + 1]
        counts = self._counts(scan.view, match.end())
        announced = scan.context.code_words_left > 0 and len(digits) >= _MIN_CODE_DIGITS and not counts
        has_leading_zero = len(digits) > 1 and digits[0] == "0" and following not in (".", ":")
        if not (announced or has_leading_zero or (not counts and self._is_room(scan.view, match))):
            return None
        return self._speller.read_digits(scan, match)

    def _is_room(self, view: str, match: re.Match[str]) -> bool:
        """Whether the number is the "501" of "2单元501"."""
        before = view[max(0, match.start() - _MAX_PREFIX_CHARACTERS) : match.start()]
        return 3 <= len(match.group()) <= 4 and before.endswith(self._table.spelled_after or ("\n",))

    def read_mixed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "GPT-4", "A1234" or "5G": the letters as written, long numbers digit by digit."""
        is_code = scan.context.code_words_left > 0 and len(match.group()) >= _MIN_MIXED_CODE_CHARACTERS
        for run in _MIXED_RUN.finditer(scan.view, match.start(), match.end()):
            text = run.group()
            if text.isalpha():
                scan.emit(text, run.start(), run.end())
            elif text.count(".") > 1:
                scan.emit(self._version_words(text), run.start(), run.end())
            elif not is_code and ("." in text or (len(text) < _MIN_CODE_DIGITS and text[0] != "0")):
                scan.emit(self._numbers.words(text), run.start(), run.end())
            else:
                self._speller.spell(scan, run.start(), run.end())
        scan.context.note_word()
        return match.end()

    def _version_words(self, text: str) -> str:
        return self._table.version_point.join(map(self._numbers.words, text.split(".")))
