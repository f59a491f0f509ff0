"""Recognisers that the languages other than English share: digits one by one, addresses mark by mark."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..tokenizer import ScanState, digit_group_sizes

# Runs of digits that are too long for a range, unless it is one of years.
LONG_DIGIT_GROUPS = r"(?!(?:1[5-9]|20)\d\d-(?:1[5-9]|20)\d\d(?!\d))\d{4,}(?:-\d{3,})+(?![-\d])"
_ADDRESS_PART = re.compile(r"[^\W\d_]+|\d+|[^\w]|_")


def finish_number(scan: ScanState, end: int) -> int:
    """Note a number that ends there, and with it any code that was announced."""
    scan.context.note_number()
    scan.context.code_words_left = 0
    return end


@dataclass(frozen=True, slots=True)
class Speller:
    """How a language spells. marks: what signs are called. digit: one alone. number: of a few digits."""

    marks: Mapping[str, str]
    digit: Callable[[str], str]
    number: Callable[[str], str]
    comma: str = ","

    def spell(self, scan: ScanState, start: int, stop: int) -> None:
        """Digits of the range one by one."""
        for at in range(start, stop):
            scan.emit(self.digit(scan.view[at]), at, at + 1)

    def read_digits(self, scan: ScanState, match: re.Match[str]) -> int:
        """A code of digits, with a pause after each group of them."""
        position = match.start()
        for size in digit_group_sizes(len(match.group())):
            self.spell(scan, position, position + size)
            position += size
            if position < match.end():
                scan.punctuate(self.comma)
        return finish_number(scan, match.end())

    def read_address(self, scan: ScanState, match: re.Match[str]) -> int:
        """An e-mail address or a URL, without its scheme."""
        scheme = re.match(r"\w+://", match.group())
        start = match.start() + (scheme.end() if scheme else 0)
        stop = match.start() + len(match.group().rstrip(".,;:!?'\"/*_"))
        for part in _ADDRESS_PART.finditer(scan.view, start, stop):
            text = part.group()
            if text.isdigit():
                self.spell(scan, part.start(), part.end())
            else:
                scan.emit(text if text.isalpha() else self.marks.get(text, ""), part.start(), part.end())
        scan.context.note_foreign_word()
        return max(stop, start)

    def read_version(self, scan: ScanState, match: re.Match[str]) -> int:
        """2.1.3 part by part."""
        for number, part in enumerate(re.finditer(r"\d+", match.group())):
            start, stop = match.start() + part.start(), match.start() + part.end()
            if number:
                scan.emit(self.marks["."], start - 1, start)
            if len(part.group()) < 3:
                scan.emit(self.number(part.group()), start, stop)
            else:
                self.spell(scan, start, stop)
        return finish_number(scan, match.end())

    def read_list_number(self, scan: ScanState, match: re.Match[str]) -> int:
        """1. at the beginning of a line."""
        scan.emit(self.number(match.group(1)), match.start(1), match.end(1))
        scan.punctuate(self.comma)
        return finish_number(scan, match.end())
