"""The sentence events of one DashScope task: begin, synthesis and end of each sentence, with its words.

A voice renders clauses, DashScope reports sentences, so clauses are joined until one ends a sentence. Pure:
text spans and words in, events out.

Source: of what is charged, Alibaba Cloud Model Studio, CosyVoice pricing: a Chinese character counts as two.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...tts_engine.chunk import Word
from .events import SentenceBegin, SentenceEnd, SentenceSynthesis

# Unicode's script Han: radicals, marks, numerals, extension A, unified, compatibility, planes 2 and 3.
_HAN_CHARACTERS: Final = re.compile(
    "[\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd]+"
)


def billed_characters(text: str) -> int:
    """Return the number of charged characters: two for each Han character, in Japanese and Korean too."""
    if text.isascii():
        return len(text)
    return len(text) + sum(len(run) for run in _HAN_CHARACTERS.findall(text))


_SENTENCE_ENDS: Final = tuple(".!?…。！？；;\n")
_CLOSING_CHARACTERS: Final = " \t\r\"')]}»”’」』）"  # may follow the end of a sentence


class SentenceEventBuilder:
    """Builds the sentence events of one task; ``include_words`` puts the words into SentenceEnd."""

    def __init__(self, task_id: str, *, include_words: bool) -> None:
        self._task_id = task_id
        self._include_words = include_words
        self._index = 0
        self._start = self._stop = 0  # of the sentence, in characters of the task's text
        self._is_open = False
        self._words: list[Word] = []
        self._characters = 0  # charged so far

    def events_before_audio(
        self, task_text: str, span: tuple[int, int], words: tuple[Word, ...], *, has_audio: bool
    ) -> Iterator[SentenceBegin | SentenceSynthesis | SentenceEnd]:
        """Yield the events that precede a piece of audio.

        Args:
            task_text: all text of the task so far.
            span: the characters of ``task_text`` whose clause the audio belongs to.
            words: the words that begin in the audio, with places in ``task_text`` and times from the task's
                first sample.
            has_audio: False while the encoder withholds the audio; nothing is announced then.
        """
        start, stop = span
        if self._is_open and start >= self._stop and _ends_sentence(task_text[self._start : self._stop]):
            yield self._end(task_text)
        if not self._is_open and stop > self._stop:
            self._is_open, self._start = True, self._stop  # with a clause before it that cannot be read
            yield SentenceBegin(self._task_id, self._index, task_text[self._start : stop])
        self._stop = max(self._stop, stop, *(word.text_stop for word in words))
        if self._include_words:
            self._words += words
        if has_audio:
            yield SentenceSynthesis(self._task_id, self._index if self._is_open else max(0, self._index - 1))

    def events_at_end(self, task_text: str) -> Iterator[SentenceEnd]:
        """Yield the events that follow the last audio."""
        if self._is_open:
            self._stop = len(task_text)
            yield self._end(task_text)

    def _end(self, task_text: str) -> SentenceEnd:
        text = task_text[self._start : self._stop]
        words = tuple(self._in_sentence(word) for word in self._words)
        self._characters += billed_characters(text)
        ended = SentenceEnd(self._task_id, self._index, text, words, self._characters)
        self._index += 1
        self._is_open, self._words = False, []
        return ended

    def _in_sentence(self, word: Word) -> Word:
        return replace(word, text_start=word.text_start - self._start, text_stop=word.text_stop - self._start)


def _ends_sentence(text: str) -> bool:
    return text.rstrip(_CLOSING_CHARACTERS).endswith(_SENTENCE_ENDS)
