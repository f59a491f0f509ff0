"""Regular expressions that are compiled when they are first used.

The reader has some 250 patterns, and a text needs few of them; compiling all takes a quarter of a second.
"""

import re
from collections.abc import Callable
from functools import cached_property

from .needed_signs import Need, max_width, needed_signs


class LazyPattern:
    """A regular expression, compiled when ``compiled`` is first read."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern; raises ``re.error`` if it is invalid."""
        return re.compile(self.pattern)

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """Of each of them, a text in which the pattern matches has a sign."""
        return needed_signs(self.pattern)

    @cached_property
    def match(self) -> Callable[[str, int], re.Match[str] | None]:
        """The compiled pattern's method ``match``; looking it up once shortens the loop over the rules."""
        return self.compiled.match


class PatternBehind:
    """A regular expression of what stands before a place: it ends with ``\\Z``, and has a longest match."""

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.pattern = re.compile(pattern, flags)
        self._max_characters = max_width(pattern)

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """The first match that ends at ``at``; none begins further before it than the longest one."""
        return self.pattern.search(text, max(0, at - self._max_characters), at)
