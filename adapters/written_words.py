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
_LETTER_OR_DIGIT: Final = re.compile(r"[^\W_]")
# With the punctuation of Chinese and Japanese, after which no blank follows.
_IDEOGRAPH: Final = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_BLANK_OR_IDEOGRAPH: Final = re.compile(rf"\s|{_IDEOGRAPH.pattern}")
_WINDOW: Final = 256  # characters searched at a time
_MAX_UNSPOKEN: Final = 500  # runs that nothing is spoken of; the rest of them is one word
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
        """The last place before a word, or at its start, at which a written word may begin."""
        stop = max(word.text_start, self._stop)
        while stop > self._stop:
            start = max(stop - _WINDOW, self._stop)
            begins = [place for place in _candidates(text, start + 1, stop) if _may_begin(text, place)]
            if begins:
                return begins[-1]
            stop = start
        return stop

    def _spoken(self, word: Word, text: str) -> Word:
        """Return the written word from here on that a word of the engine is in."""
        start = self._start_of(word, text)
        ends = (place for place in _candidates(text, word.text_stop, len(text)) if _may_end(text, place))
        self._stop = next(ends, len(text))
        return replace(word, text=text[start : self._stop], text_start=start, text_stop=self._stop)

    def _unspoken(self, text: str, stop: int) -> Iterator[Word]:
        for count, run in enumerate(_RUN.finditer(text, self._stop, stop)):
            if count == _MAX_UNSPOKEN:
                written = text[run.start() : stop].rstrip()
                self._stop = run.start() + len(written)
                yield Word(written, self._clock_s, self._clock_s, run.start(), self._stop)
                return
            self._stop = run.end()
            yield Word(run.group(), self._clock_s, self._clock_s, *run.span())

    def _following_symbols(self, text: str, stop: int) -> Iterator[Word]:
        """Return the runs before the next one with a letter or digit."""
        letter = _LETTER_OR_DIGIT.search(text, self._stop, stop)
        symbols = text[self._stop : letter.start() if letter else stop]
        if letter and symbols and not symbols[-1].isspace():
            symbols = symbols.removesuffix(symbols.rsplit(None, 1)[-1])  # begins the run of the letter
        return self._unspoken(text, self._stop + len(symbols))


def _candidates(text: str, start: int, stop: int) -> Iterator[int]:
    """The places from start to stop, in order, that have a blank or an ideograph on one side.

    Long runs have none: they are searched at the speed of a pattern, not character by character.
    """
    last = start - 1
    for match in _BLANK_OR_IDEOGRAPH.finditer(text, max(start - 1, 0), stop + 1):
        for place in (match.start(), match.end()):
            if last < place <= stop:
                last = place
                yield place


def _may_begin(text: str, place: int) -> bool:
    return text[place - 1].isspace() or _may_part(text, place)


def _may_end(text: str, place: int) -> bool:
    return place == len(text) or text[place].isspace() or _may_part(text, place)


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
    start_s = word.start_s if is_unspoken else written.start_s
    phonemes = (*written.phonemes, *word.phonemes)
    return replace(written, start_s=start_s, stop_s=word.stop_s, phonemes=phonemes)
