"""Finds the places between phrases at which an unfinished clause may be cut, see ``phrase_cuts.py``."""

import re
from collections.abc import Iterator
from functools import cache

from ..open_formula import TEX_OPENING, is_inside_tex
from ..phrase_cuts import PLAIN_WORD, PhraseWords
from ..unicode_scripts import NO_SPACE_SCRIPTS, is_unspaced

_WORDS_AFTER = 2  # whole ones, between the cut and the limit
_UNSPACED_AFTER = 4  # characters of scripts without blanks, for them
_MIN_SHARE = 1 / 3  # of the characters before the limit stands before the cut
_MAX_PLACES = 4  # that are tried, since each is read
_TOKEN = re.compile(r"\S+")
_DIGIT = re.compile(r"\d")
_HIRAGANA = re.compile("[\u3041-\u309f]")
_UNSPACED_PLACE = re.compile(rf"[{NO_SPACE_SCRIPTS}](?=[{NO_SPACE_SCRIPTS}])")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
# No cut so many characters after and before a number, whose reading may depend on the words around it
_AFTER_NUMBER, _BEFORE_NUMBER = 12, 24


def phrase_places(view: str, words: PhraseWords) -> list[int]:
    """Places at which an unfinished clause may be cut, best first: of equal ones the latest."""
    places = [*_places(view, words), *(_unspaced_places(view, words) if _is_unspaced(words) else ())]
    has_tex = ("$" in view or "\\" in view) and TEX_OPENING.search(view) is not None
    ranked = sorted(
        (rank, -at)
        for at, rank in places
        if at >= _MIN_SHARE * len(view)
        and not _DIGIT.search(view, max(0, at - _AFTER_NUMBER), at + _BEFORE_NUMBER)
        and not _is_open(view, at)
        and not (has_tex and is_inside_tex(view, at))
    )
    return [-at for _, at in ranked[:_MAX_PLACES]]


def _places(view: str, words: PhraseWords) -> Iterator[tuple[int, int]]:
    """Places between two words, and their ranks."""
    tokens, never_last = [*_TOKEN.finditer(view)], _never_last(words)
    for left, right, after in zip(tokens, tokens[1:], tokens[_WORDS_AFTER:-1], strict=False):
        before, behind = left.group(), right.group()
        if not (PLAIN_WORD.fullmatch(before) and PLAIN_WORD.fullmatch(behind) and behind == behind.lower()):
            continue
        if before.isupper():  # perhaps a Roman number
            continue
        if before.lower() in never_last:
            continue
        rank = _rank(words, before.lower(), behind)
        if rank == 3 and not (before == before.lower() and PLAIN_WORD.fullmatch(after.group())):
            continue
        if rank is not None:
            yield left.end(), rank


@cache
def _never_last(words: PhraseWords) -> frozenset[str]:
    """The words in which no part ends."""
    return frozenset((*words.clause_words, *words.phrase_words, *words.bound_words, *words.inner_words))


def _rank(words: PhraseWords, left: str, right: str) -> int | None:
    """How good a cut between two words is, 0 to 3, best first; None for a bad one."""
    if right in words.inner_words:
        return None
    if right in words.clause_words or left.endswith(words.clause_endings):
        return 0
    if right in words.phrase_words or left.endswith(words.phrase_endings):
        return 1
    return 2 if right in words.bound_words else 3


def _unspaced_places(view: str, words: PhraseWords) -> Iterator[tuple[int, int]]:
    """Places between two characters of scripts that write no blanks, and their ranks."""
    for place in _UNSPACED_PLACE.finditer(view, 0, max(0, len(view) - _UNSPACED_AFTER)):
        rank = _rank_unspaced(words, view, place.end())
        if rank is not None:
            yield place.end(), rank


@cache
def _is_unspaced(words: PhraseWords) -> bool:
    """Whether a language writes no blanks between words."""
    return any(map(is_unspaced, "".join(words.clause_words)))


def _rank_unspaced(words: PhraseWords, view: str, at: int) -> int | None:
    """As ``_rank`` at a place in a script that writes no blanks, where words are not known."""
    if view.startswith(words.clause_words, at):
        return 0
    if view.startswith(words.phrase_words, at):
        return 1
    if _HIRAGANA.match(view, at):  # the ending may go on
        return None
    if view.endswith(words.clause_endings, 0, at):
        return 0
    return 1 if view.endswith(words.phrase_endings, 0, at) else None


def _is_open(view: str, at: int) -> bool:
    """Whether a bracket or a quote before ``at`` is not closed."""
    before = view[:at]
    return before.count('"') % 2 == 1 or any(
        before.count(opening) > before.count(closing) for opening, closing in _BRACKETS
    )
