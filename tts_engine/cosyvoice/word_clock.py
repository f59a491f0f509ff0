"""When the words of a sentence are heard: an estimate, because the model does not say.

What is known for certain is when the model was given a word; it cannot have said it before. From there on
words take as long as they usually do, and once the sentence's length is known, the words that are left share
what is left of it:

    given       1 2 3          4 5 6
    speech ids  |--- 15 -------|--- 15 ------|------------ the rest ---------|
    words       1      2       3          4           5             6

Positions are speech ids, 25 a second, from the sentence's beginning. Source: the 5:15 interleave of
FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:551-661.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..reading.scripts import WrittenWord, seconds, written
from ..text import SpokenWord

IDS_PER_S = 25


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word of the text, and the speech ids in which it is heard."""

    word: WrittenWord
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A word, its usual length in speech ids, and which text id it begins with, as far as lengths tell."""

    word: WrittenWord
    length: float
    text_id: float


class WordClock:
    """The words of one sentence, each told once."""

    def __init__(self) -> None:
        self._text_ids = 0
        self._waiting: deque[_Waiting] = deque()
        self._left = 0.0  # of all waiting words
        self._given = [0]  # text ids, and from which speech id on
        self._given_at = [0]
        self._place = 0.0

    def add(self, spoken: Sequence[SpokenWord], text_ids: int) -> None:
        """Words of the next so many text ids, as they are spoken."""
        words = written(spoken)
        lengths = [IDS_PER_S * seconds(spoken[place] for place in word.said) for word in words]
        share = text_ids / sum(lengths) if lengths else 0.0
        text_id = float(self._text_ids)
        for word, length in zip(words, lengths, strict=True):
            self._waiting.append(_Waiting(word, length, text_id))
            text_id += share * length
        self._left += sum(lengths)
        self._text_ids += text_ids

    def give(self, text_ids: int, position: int) -> None:
        """The model is given so many more text ids, before it says the speech id at ``position``."""
        self._given.append(self._given[-1] + text_ids)
        self._given_at.append(position)

    def told(self, until: float, total: float | None) -> Iterator[TimedWord]:
        """Words that begin before ``until`` and were not told yet. total: of the sentence, once known."""
        stretch = 1.0 if total is None else max(0.0, total - self._place) / max(self._left, 1e-9)
        over = total is not None and until >= total
        while self._waiting:
            waiting = self._waiting[0]
            begin = max(self._place, self._earliest(waiting))
            if begin >= until and not over:
                return
            self._waiting.popleft()
            self._left -= waiting.length
            self._place = begin + stretch * waiting.length
            if total is not None:
                begin, self._place = min(begin, total), min(self._place, total)
            yield TimedWord(waiting.word, begin, self._place)

    def _earliest(self, waiting: _Waiting) -> float:
        """Where the model was given the text id that the word begins with; infinite before that."""
        step = bisect_right(self._given, waiting.text_id)
        return self._given_at[step] if step < len(self._given_at) else math.inf
