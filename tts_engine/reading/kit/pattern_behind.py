"""Regular expressions of what stands before a place of a text."""

import re
from re import _parser  # type: ignore[attr-defined]  # the parser of ``re``


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
