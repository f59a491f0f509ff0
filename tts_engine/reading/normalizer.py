"""Incremental conversion of written text into spoken words.

``TextNormalizer`` takes text in pieces of any size. It folds each piece (``folding.py``), cuts the folded
text into clauses at safe boundaries (``clause_boundaries.py``) and passes each clause to a
``ClauseNormalizer``, which tokenizes it by the grammar of its language (``tokenizer.py``). The result depends
on the text only, not on how it was split. No I/O, no clock. It is not a pronunciation dictionary: words that
no rule matches stay as written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .clause_boundaries import (
    MAX_CLAUSE_CHARACTERS,
    BoundaryKind,
    BoundaryRules,
    ClauseBoundary,
    next_boundary,
)
from .phrase_cuts import FIRST_WORDS, MAX_WORDS, MORE_WORDS, count_words, limit_of, words_after
from .pronunciation.lexicon import Lexicon, PronouncedRange, Pronunciation, PronunciationFinder
from .unicode_scripts import ignores_spaces, is_syllabic

_APOSTROPHE_LIKE = re.compile(r"(?<![\w`])([^\W\d_]+)`(?=[^\W\d_])")  # not the "`" that ends `code`
_WITHIN_SENTENCES = (BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS)
_PUNCTUATION_STRENGTH = {mark: weight for weight, mark in enumerate(("", ",", "—", ";", ":", ".", "!", "?"))}
_PUNCTUATION_STRENGTH |= {
    wide: _PUNCTUATION_STRENGTH[narrow] for wide, narrow in zip("，、；：。！？", ",,;:.!?", strict=True)
}
_MAX_SLICE_CHARACTERS = 4096  # folded at once; bounds the memory that a huge push takes


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """Word to be spoken, or a mark of the model such as "[laughter]", which is in place but no word.

    ``text``: for English, letters and apostrophes only; a single capital is the name of a letter, spelled
    "eh" and "eye" where the letter is also a word, and a small "a" is the article. ``punctuation``: what
    follows the word, one of ``"" , . ? ! ; : —`` or, after Han and kana, their wide forms.
    ``start``/``stop``: characters of the text that the word stands for. ``phonemes``: IPA that voices with
    phonemes speak instead of ``text``; "" where the phonemes of the word before include this one; None to
    read ``text``. ``pinyin``: the same in Mandarin syllables with tone digits, "tian1 qi4".
    """

    text: str
    punctuation: str
    start: int
    stop: int
    is_mark: bool = False
    phonemes: str | None = None
    pinyin: str | None = None


@dataclass(slots=True)
class DraftWord:
    """Spoken word whose punctuation may still change.

    ``start``/``stop``: characters of the view that the word stands for. ``is_mark``, ``phonemes``,
    ``pinyin``: see ``SpokenWord``.
    """

    text: str
    punctuation: str
    start: int
    stop: int
    is_mark: bool = False
    phonemes: str | None = None
    pinyin: str | None = None


def punctuate(words: Sequence[DraftWord], mark: str) -> None:
    """Put ``mark`` after the last word unless a stronger mark follows it already."""
    if words and _PUNCTUATION_STRENGTH[mark] > _PUNCTUATION_STRENGTH[words[-1].punctuation]:
        words[-1].punctuation = mark


@dataclass(frozen=True, slots=True)
class NormalizedClause:
    """Spoken words of one clause. ``stop``: characters of the pushed text that are read so far.

    ``following``: the next words, as written, of a clause that was cut between phrases.
    """

    words: tuple[SpokenWord, ...]
    stop: int
    ending: BoundaryKind
    following: tuple[str, ...] = ()


class ClauseNormalizer(Protocol):
    """Reader of clauses in one or more languages.

    ``min_forced_cut``: number of folded characters below which ``forced_cut`` is None for any text.
    ``pronunciations``: those of the stream, and of the clause that is read next.
    """

    min_forced_cut: int
    pronunciations: PronunciationFinder

    @property
    def boundary_rules(self) -> BoundaryRules:
        """Language facts for the search of clause boundaries."""

    def fold(self, text: str) -> tuple[str, list[int]]:
        """Return ``text`` folded, and the position in ``text`` of each folded character."""

    def forced_cut(self, view: str) -> int | None:
        """Return after how many characters ``view`` is cut without a boundary, or None to wait for one."""

    def read(self, view: str) -> list[DraftWord]:
        """Read a whole clause."""

    def read_stable_prefix(self, view: str) -> tuple[list[DraftWord], int]:
        """Read the part of an unfinished clause that later text cannot change, and return where it ends."""

    def read_phrase(self, view: str) -> tuple[list[DraftWord], int] | None:
        """Read an unfinished clause up to a place between two phrases, and return where; None without one."""

    def end_line(self) -> None:
        """Note that the next clause begins a new line."""


class TextNormalizer:
    """Normalizer of text that arrives in pieces of any size.

    Returns words as soon as no later text can change them, and the same clauses for any split of the text.
    Holds at most one clause of ``max_characters`` folded characters and one slice of a push. ``context``:
    text that precedes the first push; it decides, for example, whether a number is a code. ``first_words``:
    after as many words without a boundary, a clause is cut between phrases.
    """

    def __init__(
        self,
        clause_normalizer: ClauseNormalizer,
        max_characters: int = MAX_CLAUSE_CHARACTERS,
        context: str = "",
        first_words: int = FIRST_WORDS,
    ) -> None:
        self._max_characters = max_characters
        self._clause_normalizer = clause_normalizer
        self._text = ""  # folded text that is not read yet
        self._positions: list[int] = []  # of each of its characters in the pushed text
        self._pushed = 0  # characters pushed in all
        self._decided_until = 0  # no boundary in self._text before this position
        self._pronounced: list[PronouncedRange] = []  # of self._text
        self._first_words = first_words
        self._words_read = 0  # since the last flush
        self._more_words = 0  # than the clause has had, before it is searched for a place between phrases
        if context:
            view, _ = self._clause_normalizer.fold(context[-MAX_CLAUSE_CHARACTERS:])
            self._clause_normalizer.read(view)

    def use_lexicons(self, lexicons: Sequence[Lexicon]) -> None:
        """Say words as the lexicons have them; the first that has a word decides."""
        self._clause_normalizer.pronunciations.lexicons = tuple(lexicons)

    @property
    def held_characters(self) -> int:
        """Folded characters that are not read yet."""
        return len(self._text)

    @property
    def pushed_characters(self) -> int:
        """Characters pushed in all, with those before ``begin_at``."""
        return self._pushed

    def begin_at(self, position: int) -> None:
        """Count characters from ``position``; before the first push, for text that follows another's."""
        self._pushed = position

    def push(self, text: str, pronunciation: Pronunciation | None = None) -> list[NormalizedClause]:
        """Take more text and return the clauses that are complete now.

        pronunciation: of the whole text, of at most 4,096 characters, which is then not cut inside.
        """
        clauses: list[NormalizedClause] = []
        if pronunciation is not None:
            self._add_pronounced(text, pronunciation)
            return self._take_clauses(final=False)
        for begin in range(0, len(text), _MAX_SLICE_CHARACTERS):
            part = text[begin : begin + _MAX_SLICE_CHARACTERS]
            folded, positions = self._clause_normalizer.fold(part)
            self._text += folded
            self._positions += [self._pushed + position for position in positions]
            self._pushed += len(part)
            clauses += self._take_clauses(final=False)
        return clauses

    def skip(self, characters: int) -> None:
        """Count characters that are not read; words on both sides stay apart."""
        if self._text[-1:].isalnum():
            self._text += " "
            self._positions.append(self._pushed)
        self._pushed += characters

    def flush(self, ending: BoundaryKind = BoundaryKind.SENTENCE) -> list[NormalizedClause]:
        """Return the clauses that are still held; the next text begins a new line.

        ending: of text without a boundary at its end.
        """
        clauses = list(self._take_clauses(final=True))
        if self._text:
            clauses.append(self._read_to(0, ClauseBoundary(len(self._text), ending)))
        self._text, self._positions, self._decided_until = "", [], 0
        self._words_read = self._more_words = 0
        self._pronounced.clear()
        self._clause_normalizer.end_line()
        return clauses

    def _add_pronounced(self, text: str, pronunciation: Pronunciation) -> None:
        folded, positions = self._clause_normalizer.fold(text)
        if not folded:  # no sound
            self._pushed += len(text)
            return
        if self._text[-1:].isalnum() and folded[:1].isalnum():
            self._text += " "  # it is a word of its own
            self._positions.append(self._pushed)
        start = len(self._text)
        self._pronounced.append(
            PronouncedRange(folded, start, start + len(folded), start + len(folded), pronunciation)
        )
        # Rules must not read the text, nor cut in it.
        self._text += "".join(character if character.isalpha() else "x" for character in folded)
        self._positions += [self._pushed + position for position in positions]
        self._pushed += len(text)

    def _select_pronounced(self, begin: int) -> None:
        """Give the clause that begins at ``begin`` the ranges in it, at their places there."""
        ranges = (_moved(each, -begin) for each in self._pronounced if each.start >= begin)
        self._clause_normalizer.pronunciations.ranges = {each.start: each for each in ranges}

    def _take_clauses(self, *, final: bool) -> list[NormalizedClause]:
        clauses: list[NormalizedClause] = []
        begin = 0
        while (found := self._next_clause(begin, final=final)) is not None:
            clause, begin = found
            clauses.append(clause)
            self._decided_until = self._more_words = 0
        self._text, self._positions = self._text[begin:], self._positions[begin:]
        self._pronounced = [_moved(each, -begin) for each in self._pronounced if each.start >= begin]
        return clauses

    def _next_clause(self, begin: int, *, final: bool) -> tuple[NormalizedClause, int] | None:
        """Read the clause that begins at ``begin`` of the held text, and return it and its end there.

        None if the end is not known yet.
        """
        view = self._text[begin : begin + self._max_characters]
        forced_cut = (
            self._clause_normalizer.forced_cut(view)
            if len(view) >= self._clause_normalizer.min_forced_cut
            else None
        )
        while (limit := self._phrase_limit(view[:forced_cut])) is not None:
            found = self._find_clause(begin, view[:limit], final=False) or self._read_phrase(begin, limit)
            if found is not None:
                return found
            self._more_words += MORE_WORDS
        found = self._find_clause(begin, view[:forced_cut], final=final and forced_cut is None)
        if found is None and forced_cut is not None:
            return self._read_stable_prefix(begin, begin + forced_cut)
        return found

    def _phrase_limit(self, view: str) -> int | None:
        """Where a clause without a boundary has enough words to be cut between phrases; None before."""
        read = self._words_read
        words = self._first_words if read < self._first_words else read if read < MAX_WORDS else MAX_WORDS
        return limit_of(view, words + self._more_words)

    def _find_clause(self, begin: int, view: str, *, final: bool) -> tuple[NormalizedClause, int] | None:
        """Read the clause up to the first boundary in ``view``, which begins at ``begin``."""
        search = next_boundary(view, self._decided_until, self._clause_normalizer.boundary_rules, final=final)
        self._decided_until = search.decided_until
        if search.boundary is None:
            return None
        return self._read_to(begin, search.boundary), begin + search.boundary.stop

    def _read_phrase(self, begin: int, limit: int) -> tuple[NormalizedClause, int] | None:
        """Read a clause that many words wait in up to a place between two phrases."""
        self._select_pronounced(begin)
        view = self._view(begin, begin + limit)
        found = self._clause_normalizer.read_phrase(view)
        if found is None:
            return None
        words, length = found
        stop = begin + length
        clause = self._clause(words, begin, stop, BoundaryKind.FORCED)
        return replace(clause, following=words_after(view, length)), stop

    def _read_to(self, begin: int, boundary: ClauseBoundary) -> NormalizedClause:
        stop = begin + boundary.stop
        view = self._view(begin, stop)
        self._select_pronounced(begin)
        words = self._clause_normalizer.read(view)
        if boundary.kind not in _WITHIN_SENTENCES and view.rstrip().endswith(".."):
            punctuate(words, ".")
        return self._clause(words, begin, stop, boundary.kind)

    def _read_stable_prefix(self, begin: int, limit: int) -> tuple[NormalizedClause, int]:
        """Read a clause that is too long as far as no later text can change it."""
        self._select_pronounced(begin)
        words, length = self._clause_normalizer.read_stable_prefix(self._view(begin, limit))
        stop = begin + length
        return self._clause(words, begin, stop, BoundaryKind.FORCED), stop

    def _view(self, begin: int, stop: int) -> str:
        """The held text of a clause, apostrophes instead of the backticks of "isn`t"."""
        view = self._text[begin:stop]
        return _APOSTROPHE_LIKE.sub(r"\1'", view) if "`" in view else view

    def _clause(self, words: list[DraftWord], begin: int, stop: int, kind: BoundaryKind) -> NormalizedClause:
        """Return the words with ranges in the pushed text instead of the clause's view."""
        positions = self._positions
        if self._words_read < MAX_WORDS:
            self._words_read += count_words(self._text[begin:stop])
        spoken = tuple(
            SpokenWord(
                word.text,
                word.punctuation,
                positions[begin + word.start],
                positions[begin + word.stop - 1] + 1,
                word.is_mark,
                word.phonemes,
                word.pinyin,
            )
            for word in words
        )
        return NormalizedClause(spoken, positions[stop - 1] + 1, kind)


def _moved(part: PronouncedRange, by: int) -> PronouncedRange:
    return replace(part, start=part.start + by, stop=part.stop + by, end=part.end + by)


def join_words(words: Sequence[SpokenWord]) -> str:
    """Join words as they are written: with blanks in spaced scripts, without beside Han and kana."""
    parts: list[str] = []
    for index, word in enumerate(words):
        if index and not _are_joined(words[index - 1], word):
            parts.append(" ")
        parts += (word.text, word.punctuation)
    return "".join(parts)


def full_stop_after(word: SpokenWord) -> str:
    """Return the mark that ends a sentence after ``word``, in the width of its script."""
    return "。" if ignores_spaces(word.text[-1]) else "."


def _are_joined(left: SpokenWord, right: SpokenWord) -> bool:
    """Whether no blank is written between two words."""
    last, first = (left.text + left.punctuation)[-1], right.text[0]
    if ignores_spaces(last) or ignores_spaces(first):
        return True
    if left.is_mark or right.is_mark:  # as written: <strong> touches the words that it encloses
        return right.start - left.stop <= len(left.punctuation)
    return left.stop == right.start and is_syllabic(last) and is_syllabic(first)
