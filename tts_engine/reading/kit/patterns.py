"""Patterns of rules, and what is found from a pattern: the signs that a text must contain, the longest match.

Signs are characters that most text lacks: marks and symbols each by itself, all digits as "0", and the
capitals A to Z as "A". A pattern is not tried in a text that lacks one of its signs, which changes no reading
and saves most of the time: an English clause has a few signs, and the grammar some 230 patterns.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from re import IGNORECASE, _constants, _parser  # type: ignore[attr-defined]  # the parser of ``re``
from typing import Any

from ..lazy_pattern import LazyPattern

DIGIT, CAPITAL = "0", "A"
_MAX_RANGE = 128  # characters of a range that are looked at one by one

# Each has one of these signs at least.
Need = frozenset[str]


@lru_cache(1_024)
def sign_of(character: str) -> str:
    """The sign of a character; "" for one that most text has."""
    if character.isdecimal():
        return DIGIT
    if "A" <= character <= "Z":
        return CAPITAL
    return "" if character.isalnum() or character in " \n" else character


def signs_in(text: str) -> frozenset[str]:
    """All signs of a text."""
    return frozenset(map(sign_of, frozenset(text)))


def needed_signs(pattern: str) -> tuple[Need, ...]:
    """The needs of a pattern: where it matches, the text has a sign of each of them."""
    parsed = _parser.parse(pattern)
    return tuple(frozenset(_needs(parsed, bool(parsed.state.flags & IGNORECASE))))


class RulePattern(LazyPattern):
    """The pattern of a rule."""

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """Of each of them, a text in which the pattern matches has a sign."""
        return needed_signs(self.pattern)


class PatternBehind:
    """A regular expression of what stands before a place: it ends with ``\\Z``, and has a longest match."""

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.pattern = re.compile(pattern, flags)
        self._max_characters = max_width(pattern)

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """The first match that ends at ``at``; none begins further before it than the longest one."""
        return self.pattern.search(text, max(0, at - self._max_characters), at)


def max_width(pattern: str) -> int:
    """The number of characters of the longest match of a pattern; at least 4 billion without a limit."""
    return int(_parser.parse(pattern).getwidth()[1])


def _needs(tokens: Iterable[tuple[Any, Any]], ignores_case: bool) -> Iterator[Need]:
    for operation, argument in tokens:
        match operation:
            case _constants.LITERAL:
                yield from _need([chr(argument)], ignores_case)
            case _constants.IN:
                yield from _need(_characters(argument), ignores_case)
            case _constants.SUBPATTERN:
                _, added, removed, inner = argument
                inside = (ignores_case or bool(added & IGNORECASE)) and not removed & IGNORECASE
                yield from _needs(inner, inside)
            case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
                least, _, inner = argument
                yield from _needs(inner, ignores_case) if least else ()
            case _constants.ASSERT:
                yield from _needs(argument[1], ignores_case)
            case _constants.ATOMIC_GROUP:
                yield from _needs(argument, ignores_case)
            case _constants.BRANCH:
                yield from _needs_of_branches(argument[1], ignores_case)


def _needs_of_branches(branches: Iterable[Any], ignores_case: bool) -> Iterator[Need]:
    """One need of each branch together, if every branch has one; the rarest."""
    of_branches = [list(_needs(branch, ignores_case)) for branch in branches]
    if all(of_branches):
        yield frozenset().union(*(min(needs, key=_commonness) for needs in of_branches))


def _commonness(need: Need) -> tuple[bool, int]:
    return not need.isdisjoint((DIGIT, CAPITAL, ".", ",")), len(need)


def _characters(members: Iterable[tuple[Any, Any]]) -> list[str] | None:
    """The characters of a set, a digit for all digits; None if it has too many."""
    characters: list[str] = []
    for kind, argument in members:
        if kind is _constants.LITERAL:
            characters.append(chr(argument))
        elif kind is _constants.RANGE and argument[1] - argument[0] < _MAX_RANGE:
            characters += map(chr, range(argument[0], argument[1] + 1))
        elif kind is _constants.CATEGORY and argument is _constants.CATEGORY_DIGIT:
            characters.append(DIGIT)
        else:
            return None
    return characters


def _need(characters: list[str] | None, ignores_case: bool) -> Iterator[Need]:
    """The need of one of some characters, unless most text has one."""
    if characters is None or (ignores_case and any(map(str.isalpha, characters))):
        return
    signs = frozenset(map(sign_of, characters))
    if "" not in signs:
        yield signs
