"""The entries that Inworld's clients join to a text: each word, and what is written after it.

text      Well,  (yes!) 2 + 2
entries   Well|,  |(yes|!) |2| + |2

Pipecat's service appends entries without a letter or digit to the word before them in the same message, and
drops those that begin a message. So symbols go with the word before them, or else with the one after them.

Source: pipecat-ai 1.14.0 (utils/text/word_timestamp_utils.py: merge_punct_tokens).
"""

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from .....tts_engine.chunk import Word

_BLANKS: Final = re.compile(r"\s*")
_LETTER_OR_DIGIT: Final = re.compile(r"[^\W_]")

TextEntry = tuple[str, float, float]  # a part of the text, and the seconds of its beginning and end


class EntryAligner:
    """Cuts the text of one generation into entries, each character in one of them and once."""

    def __init__(self) -> None:
        self._stop = 0  # characters of the text that are in entries
        self._clock_s = 0.0  # end of the last word

    def align(self, words: Sequence[Word], text: str, *, is_last: bool) -> list[TextEntry]:
        """Return the entries of written words; text: of the generation so far."""
        spoken = [word for word in words if _LETTER_OR_DIGIT.search(word.text)]
        entries: list[TextEntry] = []
        for word, following in zip_longest(spoken, spoken[1:]):
            last = _LETTER_OR_DIGIT.search(word.text[::-1])
            core_stop = word.text_stop - (last.start() if last else 0)
            entries.append((text[self._stop : core_stop], word.start_s, word.stop_s))
            self._clock_s = word.stop_s
            end = words[-1].text_stop if following is None else following.text_start
            entries += self._entry(text, core_stop, _after_blanks(text, end))
        return entries + self._entry(text, self._stop, len(text)) if is_last else entries

    def _entry(self, text: str, start: int, stop: int) -> list[TextEntry]:
        self._stop = stop
        return [(text[start:stop], self._clock_s, self._clock_s)] if start < stop else []


def _after_blanks(text: str, place: int) -> int:
    match = _BLANKS.match(text, place)
    return match.end() if match else place
