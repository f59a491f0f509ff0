"""English text as a language model writes it, to the words that a person would say on the phone.

One left-to-right scan over an ordered list of rules (``recognisers.py``), so that every spoken word keeps the
range of the text it stands for; passes of substitutions would lose the ranges. Not a pronunciation
dictionary: words it does not know go through as they are. Deterministic, no I/O, no clock.

``TextNormalizer`` does it for text that arrives in pieces; ``normalize`` for a whole one. Both cut at the same safe
places (``clauses.py``) before reading, so they cannot read differently.
Source: Unicode 15.1 categories and compatibility forms for what is folded.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from .clause_boundaries import (
    MAX_CLAUSE_CHARACTERS,
    BoundaryKind,
    BoundaryRules,
    ClauseBoundary,
    next_boundary,
)
from .english.clause_normalizer import EnglishClauseNormalizer
from .tokenizer import DraftWord, punctuate

_MAX_SLICE_CHARACTERS = 4096  # characters folded at once: bounds the memory that a huge push takes


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
class NormalizedClause:
    """Words up to a safe place to cut. ``stop``: characters of the text pushed so far that are read."""

    words: tuple[SpokenWord, ...]
    stop: int
    ending: BoundaryKind


class ClauseNormalizer(Protocol):
    """How clauses are read. What it is given first is folded text, cut where a cut is safe.

    ``least``: characters that are never too many to wait for an end.
    """

    min_forced_cut: int

    @property
    def boundary_rules(self) -> BoundaryRules:
        """What is no end of a clause."""

    def fold(self, text: str) -> tuple[str, list[int]]:
        """``text`` in the scanner's alphabet, with the position of each character; without context."""

    def forced_cut(self, view: str) -> int | None:
        """How many characters of ``view`` are too many to wait for an end; None if they are not."""

    def read(self, view: str) -> list[DraftWord]:
        """A whole clause."""

    def read_stable_prefix(self, view: str) -> tuple[list[DraftWord], int]:
        """A clause of so many characters: as far as no later text can change it, and how far that is."""

    def end_line(self) -> None:
        """What comes next begins a new line."""


class TextNormalizer:
    """Normalises text that arrives in pieces of any size.

    Gives words as soon as no later text can change them. The same text gives the same pieces, however it was
    split. Holds one clause, as long as it may be, and one slice of a push. ``clauses``: how they are read.
    """

    def __init__(
        self,
        max_characters: int = MAX_CLAUSE_CHARACTERS,
        context: str = "",
        clause_normalizer: ClauseNormalizer | None = None,
    ) -> None:
        self._max_characters = max_characters
        self._clause_normalizer = clause_normalizer or EnglishClauseNormalizer(max_characters)
        self._text = ""
        self._positions: list[int] = []
        self._pushed = 0
        self._decided_until = 0
        if context:
            view, _ = self._clause_normalizer.fold(context[-MAX_CLAUSE_CHARACTERS:])
            self._clause_normalizer.read(view)

    def push(self, text: str) -> list[NormalizedClause]:
        """Take more text; the pieces that are safe now."""
        pieces: list[NormalizedClause] = []
        for begin in range(0, len(text), _MAX_SLICE_CHARACTERS):
            part = text[begin : begin + _MAX_SLICE_CHARACTERS]
            folded, positions = self._clause_normalizer.fold(part)
            self._text += folded
            self._positions += [self._pushed + position for position in positions]
            self._pushed += len(part)
            pieces += self._take_clauses(final=False)
        return pieces

    def flush(self) -> list[NormalizedClause]:
        """No more text for now: everything that is held. What comes next begins a new line."""
        pieces = self._take_clauses(final=True)
        if self._text:
            pieces.append(
                self._clause(*self._read_to(0, ClauseBoundary(len(self._text), BoundaryKind.SENTENCE)))
            )
        self._text, self._positions, self._decided_until = "", [], 0
        self._clause_normalizer.end_line()
        return pieces

    def _take_clauses(self, *, final: bool) -> list[NormalizedClause]:
        pieces: list[NormalizedClause] = []
        begin = 0
        while True:
            view = self._text[begin : begin + self._max_characters]
            bound = (
                self._clause_normalizer.forced_cut(view)
                if len(view) >= self._clause_normalizer.min_forced_cut
                else None
            )
            boundary, self._decided_until = next_boundary(
                view[:bound],
                self._decided_until,
                final=final and bound is None,
                boundary_rules=self._clause_normalizer.boundary_rules,
            )
            if boundary is not None:
                words, stop, ending = self._read_to(begin, boundary)
            elif bound is not None:
                words, stop, ending = self._read_stable_prefix(begin, bound)
            else:
                break
            pieces.append(self._clause(words, stop, ending))
            begin, self._decided_until = stop, 0
        self._text, self._positions = self._text[begin:], self._positions[begin:]
        return pieces

    def _read_to(self, begin: int, boundary: ClauseBoundary) -> tuple[list[SpokenWord], int, BoundaryKind]:
        stop = begin + boundary.stop
        view = self._text[begin:stop]
        draft_words = self._clause_normalizer.read(view)
        if boundary.ending is not BoundaryKind.CLAUSE and view.rstrip().endswith(".."):
            punctuate(draft_words, ".")
        return self._spoken_words(draft_words, begin), stop, boundary.ending

    def _read_stable_prefix(self, begin: int, bound: int) -> tuple[list[SpokenWord], int, BoundaryKind]:
        """A clause that is too long: as far as no later text can change it."""
        draft_words, stop = self._clause_normalizer.read_stable_prefix(self._text[begin : begin + bound])
        return self._spoken_words(draft_words, begin), begin + stop, BoundaryKind.FORCED

    def _spoken_words(self, draft_words: list[DraftWord], begin: int) -> list[SpokenWord]:
        """With ranges in the text pushed."""
        at = self._positions
        return [
            SpokenWord(word.text, word.punctuation, at[begin + word.start], at[begin + word.stop - 1] + 1)
            for word in draft_words
        ]

    def _clause(self, words: list[SpokenWord], stop: int, ending: BoundaryKind) -> NormalizedClause:
        return NormalizedClause(tuple(words), self._positions[stop - 1] + 1, ending)


def normalize(text: str, *, context: str = "", offset: int = 0) -> list[SpokenWord]:
    """The words a person would say for ``text``.

    ``context``: the text just before, so that "0417" after "your PIN is" is a PIN. ``offset`` is added to the
    ranges.
    """
    reader = TextNormalizer(context=context)
    pieces = [*reader.push(text), *reader.flush()]
    return [
        replace(word, start=word.start + offset, stop=word.stop + offset)
        for piece in pieces
        for word in piece.words
    ]
