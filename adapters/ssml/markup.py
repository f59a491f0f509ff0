"""The records of markups of text: of whole documents, and of tags in plain text.

``input.py`` lists them. Tags of one service are in the folder of its dialect.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..sliced_work import SlicedWork
from .document import SsmlDocument


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
