"""The words of a text as it was written, for clients that put them together to the text again.

    text      Well, (yes!) it is 2 + 2 😀
    engine    Well   yes   it is 2 + 2         only what is spoken, without punctuation
    written   Well, |(yes!)|it|is|2|+|2|😀     only blanks are between two of them

A written word is a run of characters between blanks. Ideographs have no blanks between them: there it is what
belongs to one word of the engine. What the engine has no word for takes no time.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ..tts_engine.chunk import Word

_RUN: Final = re.compile(r"\S+")
# With the punctuation of Chinese and Japanese, after which no blank follows.
_IDEOGRAPH: Final = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_OPENING: Final = ("Ps", "Pi")  # Unicode categories: brackets and quotes that begin a word


class WrittenWords:
    """The written words of one utterance, each character of the text in one of them and once."""

    def __init__(self) -> None:
        self._stop = 0  # characters of the text that are in words
        self._clock_s = 0.0  # end of the last word

    def push(self, words: Sequence[Word], text: str, stop: int) -> tuple[Word, ...]:
        """Return the written words up to the last of the engine's.

        words: in the order of the text. text: of the utterance, as far as it has come. stop: where the clause
        of the words ends in it; symbols without a word of the engine that follow the last one come with it.
        """
        written: list[Word] = []
        for word in words:
            if word.text_stop > self._stop:
                written += self._unspoken(text, self._start_of(word, text))
                written.append(self._spoken(word, text))
            elif written and word.text_start >= written[-1].text_start:
                written[-1] = _with_times_of(word, written[-1])
            self._clock_s = max(self._clock_s, word.stop_s)
            written += self._following_symbols(text, stop)
        return tuple(written)

    def finish(self, text: str) -> tuple[Word, ...]:
        """Return the words after the last one of the engine."""
        return tuple(self._unspoken(text, len(text)))

    def _start_of(self, word: Word, text: str) -> int:
        start = max(word.text_start, self._stop)
        while start > self._stop and not text[start - 1].isspace() and not _may_part(text, start):
            start -= 1
        return start

    def _spoken(self, word: Word, text: str) -> Word:
        """Return the written word from here on that a word of the engine is in."""
        start, stop = self._start_of(word, text), word.text_stop
        while stop < len(text) and not text[stop].isspace() and not _may_part(text, stop):
            stop += 1
        self._stop = stop
        return replace(word, text=text[start:stop], text_start=start, text_stop=stop)

    def _unspoken(self, text: str, stop: int) -> Iterator[Word]:
        for run in _RUN.finditer(text, self._stop, stop):
            self._stop = run.end()
            yield Word(run.group(), self._clock_s, self._clock_s, *run.span())

    def _following_symbols(self, text: str, stop: int) -> Iterator[Word]:
        for run in _RUN.finditer(text, self._stop, stop):
            if any(character.isalnum() for character in run.group()):
                return
            yield from self._unspoken(text, run.end())


def _may_part(text: str, place: int) -> bool:
    """Whether a word may end and another begin without a blank."""
    before, after = text[place - 1], text[place]
    if not (_IDEOGRAPH.match(before) or _IDEOGRAPH.match(after)) or _is_opening(before):
        return False
    return after.isalnum() or _is_opening(after)


def _is_opening(character: str) -> bool:
    return unicodedata.category(character) in _OPENING


def _with_times_of(word: Word, written: Word) -> Word:
    """Return a written word that lasts to the end of another word of the engine in it."""
    is_unspoken = written.start_s == written.stop_s
    return replace(written, start_s=word.start_s if is_unspoken else written.start_s, stop_s=word.stop_s)
