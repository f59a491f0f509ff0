"""Regular expressions that are compiled when they are first used.

The reader has some 250 patterns, and a text needs few of them; compiling all takes a quarter of a second.
"""

import re
from collections.abc import Callable
from functools import cached_property


class LazyPattern:
    """A regular expression, compiled when ``compiled`` is first read."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern; raises ``re.error`` if it is invalid."""
        return re.compile(self.pattern)

    @cached_property
    def match(self) -> Callable[[str, int], re.Match[str] | None]:
        """The compiled pattern's method ``match``; looking it up once shortens the loop over the rules."""
        return self.compiled.match
