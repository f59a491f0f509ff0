"""The sentences of one DashScope task, told while it is spoken: begun, spoken, ended, with their words.

A voice renders clauses; DashScope's events speak of sentences. So clauses are joined until one of them ends a
sentence. Pure: spans of text and words in, events out.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...tts_engine.chunk import Word
from .events import SentenceBegin, SentenceEnd, SentenceSynthesis
from .parameters import billed_characters

_SENTENCE_ENDS: Final = tuple(".!?…。！？；;\n")
_CLOSING_CHARACTERS: Final = " \t\r\"')]}»”’」』）"


class SentenceEventBuilder:
    """Tells the sentences of one task; ``include_words``: whether their words are wanted."""

    def __init__(self, task_id: str, *, include_words: bool) -> None:
        self._task_id = task_id
        self._with_words = include_words
        self._index = 0
        self._start = self._stop = 0
        self._is_open = False
        self._words: list[Word] = []
        self._characters = 0

    def events_before_audio(
        self, task_text: str, span: tuple[int, int], words: tuple[Word, ...], *, has_audio: bool
    ) -> Iterator[SentenceBegin | SentenceSynthesis | SentenceEnd]:
        """What to say before audio of the characters ``span`` of ``pushed`` is sent, if there is any yet.

        ``words``: those that begin in it, with places in ``pushed`` and times from the task's first sample.
        """
        start, stop = span
        if self._is_open and start >= self._stop and _ends_sentence(task_text[self._start : self._stop]):
            yield self._end(task_text)
        if not self._is_open and stop > self._stop:
            self._is_open, self._start = True, start
            yield SentenceBegin(self._task_id, self._index, task_text[start:stop])
        self._stop = max(self._stop, stop)
        if self._with_words:
            self._words += words
        if has_audio:
            yield SentenceSynthesis(self._task_id, self._index if self._is_open else max(0, self._index - 1))

    def events_at_end(self, task_text: str) -> Iterator[SentenceEnd]:
        """What to say when all audio has been sent."""
        if self._is_open:
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
