"""Recognisers that the languages other than English share: digits one by one, addresses mark by mark."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .codes import group_sizes
from .scan import Scan

# Runs of digits that are too long for a range, unless it is one of years.
LONG_GROUPS = r"(?!(?:1[5-9]|20)\d\d-(?:1[5-9]|20)\d\d(?!\d))\d{4,}(?:-\d{3,})+(?![-\d])"
_ADDRESS_PART = re.compile(r"[^\W\d_]+|\d+|[^\w]|_")


def done(scan: Scan, end: int) -> int:
    """Note a number that ends there, and with it any code that was announced."""
    scan.memory.hear_number()
    scan.memory.code_words_left = 0
    return end


@dataclass(frozen=True, slots=True)
class Speller:
    """How a language spells. marks: what signs are called. digit: one alone. number: of a few digits."""

    marks: Mapping[str, str]
    digit: Callable[[str], str]
    number: Callable[[str], str]
    comma: str = ","

    def spell(self, scan: Scan, start: int, stop: int) -> None:
        """Digits of the range one by one."""
        for at in range(start, stop):
            scan.say(self.digit(scan.view[at]), at, at + 1)

    def read_digits(self, scan: Scan, match: re.Match[str]) -> int:
        """A code of digits, with a pause after each group of them."""
        place = match.start()
        for size in group_sizes(len(match.group())):
            self.spell(scan, place, place + size)
            place += size
            if place < match.end():
                scan.pause(self.comma)
        return done(scan, match.end())

    def read_address(self, scan: Scan, match: re.Match[str]) -> int:
        """An e-mail address or a URL, without its scheme."""
        scheme = re.match(r"\w+://", match.group())
        start = match.start() + (scheme.end() if scheme else 0)
        stop = match.start() + len(match.group().rstrip(".,;:!?'\"/*_"))
        for part in _ADDRESS_PART.finditer(scan.view, start, stop):
            text = part.group()
            if text.isdigit():
                self.spell(scan, part.start(), part.end())
            else:
                scan.say(text if text.isalpha() else self.marks.get(text, ""), part.start(), part.end())
        scan.memory.hear_foreign()
        return max(stop, start)

    def read_version(self, scan: Scan, match: re.Match[str]) -> int:
        """2.1.3 part by part."""
        for number, part in enumerate(re.finditer(r"\d+", match.group())):
            start, stop = match.start() + part.start(), match.start() + part.end()
            if number:
                scan.say(self.marks["."], start - 1, start)
            if len(part.group()) < 3:
                scan.say(self.number(part.group()), start, stop)
            else:
                self.spell(scan, start, stop)
        return done(scan, match.end())

    def read_list_number(self, scan: Scan, match: re.Match[str]) -> int:
        """1. at the beginning of a line."""
        scan.say(self.number(match.group(1)), match.start(1), match.end(1))
        scan.pause(self.comma)
        return done(scan, match.end())
