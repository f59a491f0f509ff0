"""Reading of codes, addresses and versions character by character, for every language.

A language provides the words for digits, marks and short numbers; a ``Speller`` reads with them.
Source: NANP and ITU-T E.123 for the grouping of digits.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .address_patterns import AddressPatterns
from .tokenizer import RuleRow, ScanState

# Digits with hyphens that are too long for a range of numbers; "1999-2005" is one of years.
# "****1234", the end of a number; not the bold "**20**"
MASKED_DIGITS = r"[*•]{2,12}\d{2,4}(?!\d)(?!\*\*|[^*\n]{0,80}[^\s*]\*\*)"
# Digits that may be a code, if what follows says so: "4471 is your PIN", "347 912 is your code".
NAMED_DIGITS = r"(?:\d{4,8}|\d{3}[ -]\d{3})(?!\d|[.,:]\d)"
LONG_DIGIT_GROUPS = r"(?!(?:1[5-9]|20)\d\d-(?:1[5-9]|20)\d\d(?!\d))\d{4,}(?:-\d{3,})+(?![-\d])"
_DIGIT_GROUP_SIZES = {
    6: (3, 3),
    7: (3, 4),
    8: (4, 4),
    9: (3, 3, 3),
    10: (3, 3, 4),
    11: (4, 4, 3),
    12: (4, 4, 4),
}
_ADDRESS_PART = re.compile(r"[^\W\d_]+|\d+|[^\w]|_")
_SCHEME = re.compile(r"(?:https?|ftp|mailto):(?://)?", re.IGNORECASE)
_ADDRESS_TRAILERS = ".,;:!?'\"/*_"  # marks at the end of an address that belong to the sentence


def digit_group_sizes(length: int) -> tuple[int, ...]:
    """Return the sizes of the groups in which ``length`` digits are read so that they can be written down."""
    if length < 6:
        return (length,)
    if length in _DIGIT_GROUP_SIZES:
        return _DIGIT_GROUP_SIZES[length]
    rest = length % 4
    head = (4,) * (length // 4 - (1 if rest == 1 else 0))
    return head + ((3, 2) if rest == 1 else (rest,) if rest else ())


@dataclass(frozen=True, slots=True)
class Speller:
    """Recognisers that read character by character or part by part, with the words of one language."""

    marks: Mapping[str, str]  # names of the marks in addresses and phone numbers
    digit: Callable[[str], str]  # word of a digit on its own
    number: Callable[[str], str]  # words of a number of up to three digits
    point: str  # between the parts of a version; those of an IP address have the name of "." between them
    comma: str = ","  # mark of the pause between groups
    pairs_digits: bool = False  # groups of two digits are read as numbers
    pauses_before_at: bool = False  # "anna dot lee, at", which is heard as one word without a pause

    def digit_name(self, scan: ScanState, digit: str) -> str:
        """Return the word of ``digit``."""
        return self.digit(digit)

    def letter_name(self, scan: ScanState, letter: str) -> str:
        """Return what makes a voice say the name of ``letter``."""
        return letter

    def finish_number(self, scan: ScanState, end: int) -> int:
        """Note that a number ends at ``end``, and with it any code that was announced."""
        scan.context.note_number()
        scan.context.code_words_left = 0
        return end

    def spell(self, scan: ScanState, start: int, stop: int) -> None:
        """Emit the digits and letters of the range one by one; a full stop belongs to what it follows."""
        for at in range(start, stop):
            character = scan.view[at]
            if character.isdigit():
                scan.emit(self.digit_name(scan, character), at, at + 1)
            elif character.isalpha():
                scan.emit(self.letter_name(scan, character), at, at + 1)
            elif character == "." and scan.words and scan.words[-1].stop == at:
                scan.words[-1].stop = at + 1

    def spell_in_groups(self, scan: ScanState, start: int, stop: int, sizes: tuple[int, ...] = ()) -> None:
        """Spell the range with a pause after each group.

        ``sizes``: of the groups, which add up to the length of the range; by default ``digit_group_sizes``.
        """
        for size in sizes or digit_group_sizes(stop - start):
            self.spell(scan, start, start + size)
            start += size
            if start < stop:
                scan.punctuate(self.comma)

    def read_digits(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read a code of digits in groups."""
        self.spell_in_groups(scan, match.start(), match.end())
        return self.finish_number(scan, match.end())

    def read_digit_groups(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read a phone number, or another number of several groups, with a pause after each group."""
        if match.group().startswith("+"):
            scan.emit(self.marks["+"], match.start(), match.start() + 1)
        for index, group in enumerate(re.finditer(r"\d+", match.group())):
            start, stop = match.start() + group.start(), match.start() + group.end()
            if index:
                scan.punctuate(self.comma)
            if self.pairs_digits and len(group.group()) == 2 and group.group()[0] != "0":
                scan.emit(self.number(group.group()), start, stop)
            else:
                self.spell(scan, start, stop)
        return self.finish_number(scan, match.end())

    def read_version(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "2.1.3" part by part; long parts and parts with a leading zero are spelled."""
        parts = list(re.finditer(r"\d+", match.group()))
        is_ip_address = len(parts) == 4
        for index, part in enumerate(parts):
            start, stop = match.start() + part.start(), match.start() + part.end()
            if index:
                scan.emit(self.marks["."] if is_ip_address else self.point, start - 1, start)
            text = part.group()
            if len(text) == 1 or (len(text) == 2 and text[0] != "0"):
                scan.emit(self.number(text), start, stop)
            else:
                self.spell(scan, start, stop)
        return self.finish_number(scan, match.end())

    def read_list_number(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "1." at the start of a line; a sentence begins after it."""
        scan.emit(self.number(match.group(1)), match.start(1), match.end(1))
        scan.punctuate(self.comma)
        end = self.finish_number(scan, match.end())
        scan.context.sentence_start = True
        return end

    def address_rows(self, patterns: AddressPatterns) -> tuple[RuleRow, ...]:
        """Return the rules of addresses."""
        # One rule for both: each is tried at every word.
        named = f"(?:{patterns.website}|{patterns.file})"
        return tuple((pattern, self.read_address) for pattern in (patterns.url, patterns.email, named))

    def read_address(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read an e-mail address or a URL mark by mark, without its scheme."""
        scheme = _SCHEME.match(match.group())
        start = match.start() + (scheme.end() if scheme else 0)
        stop = match.start() + len(match.group().rstrip(_ADDRESS_TRAILERS))
        for part in _ADDRESS_PART.finditer(scan.view, start, stop):
            text = part.group()
            if text.isdigit():
                self.read_address_digits(scan, part.start(), part.end())
            elif text.isalpha():
                self.read_address_word(scan, part.start(), part.end())
            else:
                if text == "@" and self.pauses_before_at and not scan.view[start : part.start()].isalpha():
                    scan.punctuate(self.comma)
                scan.emit(self.marks.get(text, ""), part.start(), part.end())
        self.note_address(scan)
        return max(stop, start)

    def read_address_digits(self, scan: ScanState, start: int, stop: int) -> None:
        """Read the digits of an address one by one."""
        self.spell(scan, start, stop)

    def read_address_word(self, scan: ScanState, start: int, stop: int) -> None:
        """Read the letters between two marks of an address."""
        scan.emit(scan.view[start:stop], start, stop)

    def note_address(self, scan: ScanState) -> None:
        """Note that an address was read."""
        scan.context.note_word()
