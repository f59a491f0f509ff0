"""One piece of text being read: what has been said so far, and what it says about the next words.

The state that the recognisers share, and the shape of a rule. Not a recogniser itself.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .english import number_words as numbers
from .english import vocabulary

_COMBINING_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e"
)


_LETTER = rf"[^\W\d_][{_COMBINING_MARKS}]*"


WORD_PATTERN = rf"(?:{_LETTER}){{1,60}}(?:'(?:{_LETTER}){{1,60}})*"


WORD = re.compile(WORD_PATTERN)


_DIGIT_GROUP_SIZES = {
    6: (3, 3),
    7: (3, 4),
    8: (4, 4),
    9: (3, 3, 3),
    10: (3, 3, 4),
    11: (4, 4, 3),
    12: (4, 4, 4),
}


def digit_group_sizes(length: int) -> tuple[int, ...]:
    """How a run of that many digits is said so that it can be written down."""
    if length < 6:
        return (length,)
    if length in _DIGIT_GROUP_SIZES:
        return _DIGIT_GROUP_SIZES[length]
    rest = length % 4
    head = (4,) * (length // 4 - (1 if rest == 1 else 0))
    return head + ((3, 2) if rest == 1 else (rest,) if rest else ())


CODE_WINDOW = 8  # words after "code" in which a number is read digit by digit
CODE_CONTINUATION_WINDOW = 2  # words after such a number in which another one is


@dataclass(slots=True)
class ReadingContext:
    """What the words already read say about the next ones."""

    code_words_left: int = 0  # words for which a number is still a code
    identifier_expected: bool = False  # "order", "flight": a number at once is its number
    code_just_announced: bool = False  # the last word was the one that announced a code
    previous_word: str = ""  # the last word as written, lower case
    previous_capitalized: bool = False  # it was capitalised, and not as the first of its sentence
    after_number: bool = False  # the last thing read was a number and nothing came after it
    after_phone: bool = False  # that number was a phone number: "x" is its extension
    after_code: bool = False  # that number was a code
    after_comma: bool = False
    address_words_left: int = 0  # words for which "St" is a street
    line_start: bool = True
    sentence_start: bool = True

    def note_word(self, word: str) -> None:
        """Note a word of running text."""
        lower = word.lower()
        self.code_just_announced = False
        self.code_words_left = max(0, self.code_words_left - 1)
        self.address_words_left = max(0, self.address_words_left - 1)
        if lower in vocabulary.CODE_WORDS or (self.identifier_expected and lower in vocabulary.NUMBER_NOUNS):
            self.code_words_left, self.code_just_announced = CODE_WINDOW, True
        if lower in vocabulary.IDENTIFIED_NOUNS or lower in vocabulary.NUMBER_NOUNS:
            self.identifier_expected = True
        elif lower not in vocabulary.LINKING_WORDS and not (word.isupper() and len(word) < 4):
            self.identifier_expected = False
        self.previous_capitalized = word[:1].isupper() and not self.sentence_start
        self.previous_word = lower
        self.after_number = self.after_phone = self.after_code = self.after_comma = False
        self.line_start = self.sentence_start = False

    def note_foreign_word(self, word: str = "") -> None:
        """Note a word of a language other than English, or of none."""
        self.code_words_left = max(0, self.code_words_left - 1)
        self.previous_word = word.lower()
        self.code_just_announced = self.after_number = self.line_start = self.sentence_start = False

    def note_number(self) -> None:
        """Note a number."""
        self.after_number, self.identifier_expected, self.previous_word = True, False, "0"
        self.after_phone = self.after_code = self.after_comma = False
        self.previous_capitalized = self.line_start = self.sentence_start = False

    def end_line(self) -> None:
        """Note that a new line begins; no number goes on over it."""
        self.line_start = self.sentence_start = True
        self.after_number = False

    def end_sentence(self) -> None:
        """Forget what holds for one sentence only; "Here is your code." still announces one."""
        if not self.code_just_announced:
            self.code_words_left = 0
        self.identifier_expected = self.after_number = self.previous_capitalized = False
        self.address_words_left = 0
        self.sentence_start = True


@dataclass(slots=True)
class DraftWord:
    """A spoken word with its range in the view, and punctuation that may still grow."""

    text: str
    punctuation: str
    start: int
    stop: int


_PUNCTUATION_STRENGTH = {mark: weight for weight, mark in enumerate(("", ",", "—", ";", ":", ".", "!", "?"))}
_PUNCTUATION_STRENGTH |= {
    wide: _PUNCTUATION_STRENGTH[narrow] for wide, narrow in zip("，、；：。！？", ",,;:.!?", strict=True)
}


def punctuate(words: Sequence[DraftWord], mark: str) -> None:
    """Put ``mark`` after the last word, unless a stronger one is there."""
    if words and _PUNCTUATION_STRENGTH[mark] > _PUNCTUATION_STRENGTH[words[-1].punctuation]:
        words[-1].punctuation = mark


@dataclass(slots=True)
class ScanState:
    """One piece of text being read.

    ``respells``: words that rules of spelling get wrong are written so that they come out right.
    """

    view: str
    context: ReadingContext
    words: list[DraftWord] = field(default_factory=list)
    respells: bool = True

    def emit(self, words: str, start: int, stop: int) -> None:
        """Speak ``words``, all of which stand for the characters ``start`` to ``stop``."""
        self.words += [DraftWord(word, "", start, stop) for word in words.split()]

    def punctuate(self, mark: str) -> None:
        """Put ``mark`` after the last word, unless a stronger one is there."""
        punctuate(self.words, mark)

    def spell(self, start: int, stop: int) -> None:
        """Letters and digits of the range one by one."""
        for at in range(start, stop):
            character = self.view[at]
            if character.isdigit():
                self.emit(numbers.DIGITS[int(character)], at, at + 1)
            elif character.isalpha():
                self.emit(self.letter_name(character), at, at + 1)

    def spell_groups(self, start: int, stop: int, sizes: tuple[int, ...]) -> None:
        """The same with a pause after each group; ``sizes`` sum up to the length of the range."""
        for size in sizes:
            self.spell(start, start + size)
            start += size
            if start < stop:
                self.punctuate(",")

    def next_visible(self, at: int) -> str:
        """The next character that is no blank; "" at the end of the piece."""
        match = _NEXT_VISIBLE.match(self.view, at)
        return match.group(1) if match else ""

    def next_word(self, at: int) -> str:
        """The next word, when nothing but blanks comes before it."""
        match = _NEXT_WORD.match(self.view, at)
        return match.group(1) if match else ""

    def letter_name(self, letter: str) -> str:
        """What makes a voice say the letter's name."""
        capital = letter.upper()[:1]
        return vocabulary.LETTER_NAMES.get(capital, capital) if self.respells else capital


_NEXT_VISIBLE = re.compile(r" *([^ ])")
_NEXT_WORD = re.compile(r"[ -]*([^\W\d_]+(?:\.[^\W\d_])*(?:'[^\W\d_]+)?)")
Recognizer = Callable[[ScanState, "re.Match[str]"], int | None]
RuleRow = tuple[str, Recognizer]
Rule = tuple["re.Pattern[str]", Recognizer]


@dataclass(frozen=True, slots=True)
class Grammar:
    """How a language is read: rules by what a reading begins with, those of a line, plain words."""

    lines: tuple[Rule, ...]
    letters: tuple[Rule, ...]
    digits: tuple[Rule, ...]
    symbols: tuple[Rule, ...]
    word: Rule


def end_sentence_if_capital_follows(scan: ScanState, at: int) -> None:
    """After an abbreviation's full stop: it ends the sentence too when a capital follows, or nothing."""
    following = scan.next_visible(at)
    if not following or following.isupper() or following in "\n\"'(":
        scan.punctuate(".")
        scan.context.end_sentence()


def compile_rules(*table: RuleRow) -> tuple[Rule, ...]:
    """A table of rules with its patterns compiled, in the order in which they are tried."""
    return tuple((re.compile(pattern), read) for pattern, read in table)
