"""The time of every character, from the times of words.

text       One, two
word       |--|         |--|        their characters share the word's time evenly
", "           (0 ms)               what ends a word comes with it and takes no time
other                               characters between words share the time between them
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .....tts_engine.chunk import Word

_WORD_END: Final = re.compile(r"[^\w\s<\[({]*\s*")  # punctuation that ends a word, and blanks


@dataclass(frozen=True, slots=True)
class TimedCharacter:
    """A character of the text, and when it is heard."""

    character: str
    start_s: float  # seconds from the first sample of the utterance
    stop_s: float


class CharacterAligner:
    """Aligns the text of one utterance, in its order and each character once."""

    def __init__(self) -> None:
        self._position = 0  # in the text
        self._clock_s = 0.0  # end of the last character

    def align(self, words: Sequence[Word], text: str) -> list[TimedCharacter]:
        """Return the characters up to the last of the words, which come in the order of the text."""
        characters: list[TimedCharacter] = []
        for word in words:
            characters += self._spread(text, word.text_start, word.start_s)
            characters += self._spread(text, word.text_stop, word.stop_s)
            characters += self._spread(text, _end_of(text, word), word.stop_s)
        return characters

    def finish(self, text: str, end_s: float) -> list[TimedCharacter]:
        """Return the rest of the characters."""
        return self._spread(text, len(text), end_s)

    def _spread(self, text: str, stop: int, stop_s: float) -> list[TimedCharacter]:
        """Return the characters before ``stop``, evenly from the end of the last one to ``stop_s``."""
        start, start_s = self._position, self._clock_s
        count = stop - start
        if count <= 0:
            self._clock_s = max(start_s, stop_s) if stop == start else start_s
            return []
        self._position, self._clock_s = stop, max(start_s, stop_s)
        step_s = (self._clock_s - start_s) / count
        return [
            TimedCharacter(text[start + index], start_s + index * step_s, start_s + (index + 1) * step_s)
            for index in range(count)
        ]


def _end_of(text: str, word: Word) -> int:
    match = _WORD_END.match(text, word.text_stop)
    return match.end() if match else word.text_stop
