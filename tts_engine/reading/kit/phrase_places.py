"""Finds the places between phrases at which an unfinished clause may be cut, see ``phrase_cuts.py``."""

import re
from collections.abc import Iterator

from ..open_formula import TEX_OPENING, is_inside_tex
from ..phrase_cuts import PLAIN_WORD, PhraseWords
from ..unicode_scripts import NO_SPACE_SCRIPTS

_WORDS_AFTER = 2  # whole ones, between the cut and the limit
_UNSPACED_AFTER = 4  # characters of scripts without blanks, for them
_MIN_SHARE = 1 / 3  # of the characters before the limit stands before the cut
_MAX_PLACES = 4  # that are tried, since each is read
_TOKEN = re.compile(r"\S+")
_DIGIT = re.compile(r"\d")
_UNSPACED_PLACE = re.compile(rf"[{NO_SPACE_SCRIPTS}](?=[{NO_SPACE_SCRIPTS}])")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
# No cut so many characters after and before a number, whose reading may depend on the words around it
_AFTER_NUMBER, _BEFORE_NUMBER = 12, 24


def phrase_places(view: str, words: PhraseWords) -> list[int]:
    """Places at which an unfinished clause may be cut, best first: of equal ones the latest."""
    places = [*_places(view, words), *(_unspaced_places(view, words) if words.is_unspaced else ())]
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
    tokens = [*_TOKEN.finditer(view)]
    for left, right, after in zip(tokens, tokens[1:], tokens[_WORDS_AFTER:-1], strict=False):
        before, behind = left.group(), right.group()
        if not (PLAIN_WORD.fullmatch(before) and PLAIN_WORD.fullmatch(behind) and behind == behind.lower()):
            continue
        if before.isupper():  # perhaps a Roman number
            continue
        rank = words.rank(before.lower(), behind)
        if rank == 3 and not (before == before.lower() and PLAIN_WORD.fullmatch(after.group())):
            continue
        if rank is not None:
            yield left.end(), rank


def _unspaced_places(view: str, words: PhraseWords) -> Iterator[tuple[int, int]]:
    """Places between two characters of scripts that write no blanks, and their ranks."""
    for place in _UNSPACED_PLACE.finditer(view, 0, max(0, len(view) - _UNSPACED_AFTER)):
        rank = words.rank_unspaced(view, place.end())
        if rank is not None:
            yield place.end(), rank


def _is_open(view: str, at: int) -> bool:
    """Whether a bracket or a quote before ``at`` is not closed."""
    before = view[:at]
    return before.count('"') % 2 == 1 or any(
        before.count(opening) > before.count(closing) for opening, closing in _BRACKETS
    )
