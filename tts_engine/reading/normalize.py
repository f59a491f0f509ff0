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
from dataclasses import dataclass, replace

from .clauses import Boundary, Ending, next_boundary
from .recognisers import read, read_settled
from .scan import Memory, Scan

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


_FOLDED = {
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
}
_KEPT_SYMBOLS = "°©§±×÷≈≤≥→"


def _fold_character(character: str) -> str:
    if character in _FOLDED:
        return _FOLDED[character]
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


def fold(text: str) -> tuple[str, list[int]]:
    """``text`` in the scanner's alphabet, and for each character of it its position in ``text``.

    Quotes, dashes, blanks and digits become ASCII, compatibility characters what they are compatible with;
    controls, zero-width characters, lone surrogates and emoji go. Character by character: no context.
    """
    if _PLAIN.match(text):
        return text, list(range(len(text)))
    folded: list[str] = []
    positions: list[int] = []
    for position, character in enumerate(text):
        replacement = character if " " <= character <= "~" else _fold_character(character)
        folded.append(replacement)
        positions.extend([position] * len(replacement))
    return "".join(folded), positions


class Reader:
    """Normalises text that arrives in pieces of any size.

    Gives words as soon as no later text can change them. The same text gives the same pieces, however it was
    split. Holds at most ``longest`` characters and one slice of a push.
    """

    def __init__(self, longest: int = LONGEST_CLAUSE, context: str = "") -> None:
        self._longest = longest
        self._memory = Memory()
        self._text = ""
        self._positions: list[int] = []
        self._pushed = 0
        self._decided = 0
        if context:
            self._remember(context)

    def _remember(self, context: str) -> None:
        view, _ = fold(context[-LONGEST_CLAUSE:])
        scan = Scan(view, self._memory)
        read(scan, len(view))

    def push(self, text: str) -> list[Piece]:
        """Take more text; the pieces that are safe now."""
        pieces: list[Piece] = []
        for begin in range(0, len(text), _SLICE):
            part = text[begin : begin + _SLICE]
            folded, positions = fold(part)
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
        self._memory.line_start = self._memory.sentence_start = True
        self._memory.numeric = False
        return pieces

    def _take(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        begin = 0
        while True:
            view = self._text[begin : begin + self._longest]
            full = len(view) == self._longest
            boundary, self._decided = next_boundary(view, self._decided, final=final and not full)
            if boundary is not None:
                words, stop, ending = self._read_to(begin, boundary)
            elif full:
                words, stop, ending = self._read_settled(begin)
            else:
                break
            pieces.append(self._piece(words, stop, ending))
            begin, self._decided = stop, 0
        self._text, self._positions = self._text[begin:], self._positions[begin:]
        return pieces

    def _read_to(self, begin: int, boundary: Boundary) -> tuple[list[SpokenWord], int, Ending]:
        stop = begin + boundary.stop
        scan = Scan(self._text[begin:stop], self._memory)
        read(scan, boundary.stop)
        if boundary.ending is not Ending.CLAUSE and scan.view.rstrip().endswith(".."):
            scan.pause(".")
        return self._words(scan, begin), stop, boundary.ending

    def _read_settled(self, begin: int) -> tuple[list[SpokenWord], int, Ending]:
        """A clause that is too long: as far as no later text can change it."""
        scan = Scan(self._text[begin : begin + self._longest], self._memory)
        stop = begin + read_settled(scan, self._longest - _SETTLED)
        self._memory = scan.memory
        return self._words(scan, begin), stop, Ending.CUT

    def _words(self, scan: Scan, begin: int) -> list[SpokenWord]:
        """With ranges in the text pushed."""
        at = self._positions
        return [
            SpokenWord(word.text, word.punctuation, at[begin + word.start], at[begin + word.stop - 1] + 1)
            for word in scan.words
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
