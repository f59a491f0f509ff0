"""The records of markups of text, of whole documents and of tags in plain text; and reading them in slices.

``input.py`` lists them. Tags of one service are in the folder of its dialect. A slice is work of about a
millisecond, between which others may use the thread.
"""

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from .document import SsmlDocument

T = TypeVar("T")
# Work that yields after each slice and returns the result. It does not know who runs it.
SlicedWork = Generator[None, None, T]


@dataclass(frozen=True, slots=True)
class DocumentMarkup:
    """A markup of documents, which may come in the text of an utterance."""

    opening: re.Pattern[str]  # of a document, in group 1, or all of a text that may become one
    end: re.Pattern[str]
    max_end_characters: int  # that ``end`` matches
    empty: re.Pattern[str]  # a document without an end of its own
    parse: Callable[[str], SlicedWork[SsmlDocument]]  # raises BadSsml


@dataclass(frozen=True, slots=True)
class VoicedText:
    """A stretch of text in one voice."""

    text: str
    voice: str | None  # None: that of the utterance


def run_whole(work: SlicedWork[T]) -> T:
    """Run work without a break; return its result, or raise what it raises."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
