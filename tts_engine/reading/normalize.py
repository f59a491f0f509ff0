"""English text as a language model writes it, to the words that a person would say on the phone.

One left-to-right scan over an ordered list of rules (``recognisers.py``), so that every spoken word keeps the
range of the text it stands for; passes of substitutions would lose the ranges. Not a pronunciation
dictionary: words it does not know go through as they are. Deterministic, no I/O, no clock.

``Reader`` does it for text that arrives in pieces; ``normalize`` for a whole one. Both cut at the same safe
places (``clauses.py``) before reading, so they cannot read differently.
Source: Unicode 15.1 categories and compatibility forms for what is folded.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from .clauses import ENGLISH, Boundary, Ending, Habits, next_boundary
from .recognisers import read, read_settled
from .scan import Draft, Memory, Scan, pause

LONGEST_CLAUSE = 400  # characters; a longer one is cut where nothing is read as one thing
_SETTLED = 100  # characters from the end of an unfinished clause beyond which readings no longer change
_SLICE = 4096  # characters folded at once: bounds the memory that a huge push takes


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """One word to be said.

    ``text``: letters and apostrophes only; a single capital is a letter's name ("eh" and "eye" where it would
    be a word), small "a" the article. ``punctuation``: what follows it, one of ``"" , . ? ! ; : —``.
    ``start``/``stop``: characters of the text that it stands for.
    """

    text: str
    punctuation: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Words up to a safe place to cut. ``stop``: characters of the text pushed so far that are read."""

    words: tuple[SpokenWord, ...]
    stop: int
    ending: Ending


FOLDED = {
    **dict.fromkeys("\t\r\x1f", " "),
    **dict.fromkeys("\n\x0b\x0c\x1c\x1d\x1e\x85\u2028", "\n"),
    "\u2029": "\n\n",
    **dict.fromkeys("‘’‚‛ʼʹ′＇", "'"),
    **dict.fromkeys("“”„‟«»″＂", '"'),
    **dict.fromkeys("‐‑−﹣－", "-"),
    **dict.fromkeys("‒–", "–"),
    **dict.fromkeys("—―⸺⸻", "—"),
    "…": "...",
    "。": ". ",
    "、": ", ",
    "，": ", ",
    "！": "! ",
    "？": "? ",
    "；": "; ",
    "：": ": ",
    "،": ",",
    "؛": ";",
    "؟": "?",
    **dict.fromkeys("•‣◦▪●·∙", "•"),
    **dict.fromkeys("™®℠¡¿", ""),
    "²": "^2",
    "³": "^3",
    "½": " 1/2",
    "¼": " 1/4",
    "¾": " 3/4",
    "⅓": " 1/3",
    "⅔": " 2/3",
    "⅛": " 1/8",
    "⁄": "/",
    "℃": "°C",
    "℉": "°F",
    "￥": "¥",
    "￡": "£",
}
_KEPT_SYMBOLS = "°©§±×÷≈≤≥→"


def _fold_character(character: str, folded: Mapping[str, str]) -> str:
    if character in folded:
        return folded[character]
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs", "Cn", "Co", "Me") or "\ufe00" <= character <= "\ufe0f":
        return ""
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category in ("Zs", "Sk", "So") and character not in _KEPT_SYMBOLS and character not in "^`":
        compatible = unicodedata.normalize("NFKC", character)
        return compatible if compatible.isascii() and compatible.isalnum() else " "
    if category in ("No", "Nl") or "\uff00" <= character <= "\uffef" or "\ufb00" <= character <= "\ufb06":
        compatible = unicodedata.normalize("NFKC", character)
        return compatible if compatible.isascii() or compatible.isalpha() else " "
    return character


_PLAIN = re.compile(r"[\n -~]*\Z")


def fold(text: str, table: Mapping[str, str] = FOLDED) -> tuple[str, list[int]]:
    """``text`` in the scanner's alphabet, and for each character of it its position in ``text``.

    Quotes, dashes, blanks and digits become ASCII, compatibility characters what they are compatible with;
    controls, zero-width characters, lone surrogates and emoji go. Character by character: no context.
    """
    if _PLAIN.match(text):
        return text, list(range(len(text)))
    folded: list[str] = []
    positions: list[int] = []
    for position, character in enumerate(text):
        replacement = character if " " <= character <= "~" else _fold_character(character, table)
        folded.append(replacement)
        positions.extend([position] * len(replacement))
    return "".join(folded), positions


class ClauseReader(Protocol):
    """How clauses are read. What it is given first is folded text, cut where a cut is safe.

    ``least``: characters that are never too many to wait for an end.
    """

    least: int

    @property
    def habits(self) -> Habits:
        """What is no end of a clause."""

    def fold(self, text: str) -> tuple[str, list[int]]:
        """``text`` in the scanner's alphabet, with the position of each character; without context."""

    def bound(self, view: str) -> int | None:
        """How many characters of ``view`` are too many to wait for an end; None if they are not."""

    def read(self, view: str) -> list[Draft]:
        """A whole clause."""

    def read_settled(self, view: str) -> tuple[list[Draft], int]:
        """A clause of so many characters: as far as no later text can change it, and how far that is."""

    def end_line(self) -> None:
        """What comes next begins a new line."""


class EnglishClauses:
    """For voices that are given words: numbers and codes as words, letters respelled."""

    habits = ENGLISH

    def __init__(self, longest: int = LONGEST_CLAUSE) -> None:
        self._longest = self.least = longest
        self._memory = Memory()

    def fold(self, text: str) -> tuple[str, list[int]]:
        """Into ASCII as far as it goes."""
        return fold(text)

    def bound(self, view: str) -> int | None:
        """By characters alone."""
        return self._longest if len(view) >= self._longest else None

    def read(self, view: str) -> list[Draft]:
        """By the rules of ``recognisers.py``."""
        scan = Scan(view, self._memory)
        read(scan, len(view))
        return scan.words

    def read_settled(self, view: str) -> tuple[list[Draft], int]:
        """Up to a blank a good way before the end."""
        scan = Scan(view, self._memory)
        stop = read_settled(scan, len(view) - _SETTLED)
        self._memory = scan.memory
        return scan.words, stop

    def end_line(self) -> None:
        """No number goes on over it."""
        self._memory.end_line()


class Reader:
    """Normalises text that arrives in pieces of any size.

    Gives words as soon as no later text can change them. The same text gives the same pieces, however it was
    split. Holds one clause, as long as it may be, and one slice of a push. ``clauses``: how they are read.
    """

    def __init__(
        self, longest: int = LONGEST_CLAUSE, context: str = "", clauses: ClauseReader | None = None
    ) -> None:
        self._longest = longest
        self._clauses = clauses or EnglishClauses(longest)
        self._text = ""
        self._positions: list[int] = []
        self._pushed = 0
        self._decided = 0
        if context:
            view, _ = self._clauses.fold(context[-LONGEST_CLAUSE:])
            self._clauses.read(view)

    def push(self, text: str) -> list[Piece]:
        """Take more text; the pieces that are safe now."""
        pieces: list[Piece] = []
        for begin in range(0, len(text), _SLICE):
            part = text[begin : begin + _SLICE]
            folded, positions = self._clauses.fold(part)
            self._text += folded
            self._positions += [self._pushed + position for position in positions]
            self._pushed += len(part)
            pieces += self._take(final=False)
        return pieces

    def flush(self) -> list[Piece]:
        """No more text for now: everything that is held. What comes next begins a new line."""
        pieces = self._take(final=True)
        if self._text:
            pieces.append(self._piece(*self._read_to(0, Boundary(len(self._text), Ending.SENTENCE))))
        self._text, self._positions, self._decided = "", [], 0
        self._clauses.end_line()
        return pieces

    def _take(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        begin = 0
        while True:
            view = self._text[begin : begin + self._longest]
            bound = self._clauses.bound(view) if len(view) >= self._clauses.least else None
            boundary, self._decided = next_boundary(
                view[:bound], self._decided, final=final and bound is None, habits=self._clauses.habits
            )
            if boundary is not None:
                words, stop, ending = self._read_to(begin, boundary)
            elif bound is not None:
                words, stop, ending = self._read_settled(begin, bound)
            else:
                break
            pieces.append(self._piece(words, stop, ending))
            begin, self._decided = stop, 0
        self._text, self._positions = self._text[begin:], self._positions[begin:]
        return pieces

    def _read_to(self, begin: int, boundary: Boundary) -> tuple[list[SpokenWord], int, Ending]:
        stop = begin + boundary.stop
        view = self._text[begin:stop]
        drafts = self._clauses.read(view)
        if boundary.ending is not Ending.CLAUSE and view.rstrip().endswith(".."):
            pause(drafts, ".")
        return self._words(drafts, begin), stop, boundary.ending

    def _read_settled(self, begin: int, bound: int) -> tuple[list[SpokenWord], int, Ending]:
        """A clause that is too long: as far as no later text can change it."""
        drafts, stop = self._clauses.read_settled(self._text[begin : begin + bound])
        return self._words(drafts, begin), begin + stop, Ending.CUT

    def _words(self, drafts: list[Draft], begin: int) -> list[SpokenWord]:
        """With ranges in the text pushed."""
        at = self._positions
        return [
            SpokenWord(word.text, word.punctuation, at[begin + word.start], at[begin + word.stop - 1] + 1)
            for word in drafts
        ]

    def _piece(self, words: list[SpokenWord], stop: int, ending: Ending) -> Piece:
        return Piece(tuple(words), self._positions[stop - 1] + 1, ending)


def normalize(text: str, *, context: str = "", offset: int = 0) -> list[SpokenWord]:
    """The words a person would say for ``text``.

    ``context``: the text just before, so that "0417" after "your PIN is" is a PIN. ``offset`` is added to the
    ranges.
    """
    reader = Reader(context=context)
    pieces = [*reader.push(text), *reader.flush()]
    return [
        replace(word, start=word.start + offset, stop=word.stop + offset)
        for piece in pieces
        for word in piece.words
    ]
