"""Word ends as clients need them that put words together to a text: with the punctuation that follows."""

import re
from typing import Final

from ...tts_engine.chunk import Word

_PUNCTUATION: Final = re.compile(r"[^\w\s<\[({]*")
_BLANKS: Final = re.compile(r"\s*")


def punctuation_stop(text: str, word: Word) -> int:
    """Return the place after the punctuation that ends a word of the text."""
    return _stop_of(_PUNCTUATION, text, word.text_stop)


def blanks_stop(text: str, word: Word) -> int:
    """Return the place after the punctuation that ends a word of the text, and the blanks after it."""
    return _stop_of(_BLANKS, text, punctuation_stop(text, word))


def _stop_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start
