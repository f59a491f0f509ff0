"""Tracks the utterances of one call from their first audio to the last word heard, and emits their events.

The media report positions, the text feed has the text; the tracker joins the two. Utterances are counted from
0: each that had any audio.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ...adapters.playback.heard_words import DiscardResult, HeardMark, HeardWord
from .events import CallEvents, MarkHeard, SpeechDiscarded, SpeechFinished, SpeechStarted, WordHeard


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One utterance while it is written, from ``CallSpeech.begin_turn`` on."""

    number: int  # in the call, from 0
    discarded: asyncio.Event  # set by the first barge-in after it began, and by the end of the call


class UtteranceOutcome(Enum):
    """How the rendering of an utterance ended."""

    SPOKEN = "spoken"  # all of it is in the playout or was heard
    DISCARDED = "discarded"  # by barge-in
    CUT_SHORT = "cut short"  # after a sentence, because the call is ending
    UNREADABLE = "unreadable"  # the voice can read no word of it
    FAILED = "failed"  # the error is in the log


class GrowingText(Protocol):
    """The text of an utterance that is still being written."""

    @property
    def text(self) -> str:
        """All of it so far."""


@dataclass(slots=True)
class _TrackedUtterance:
    number: int
    source: GrowingText
    outcome: UtteranceOutcome | None = None  # None while its audio is rendered
    heard_characters: int = 0  # up to the end of the last word heard

    @property
    def heard(self) -> str:
        text = self.source.text
        return text if self.outcome is UtteranceOutcome.SPOKEN else text[: self.heard_characters]


class UtteranceTracker:
    """The utterances of one call that have audio in the playout."""

    def __init__(self, events: CallEvents) -> None:
        self._events = events
        self._begun = 0
        # From the utterance being heard to the one being rendered.
        self._unheard: deque[_TrackedUtterance] = deque()

    @property
    def begun(self) -> int:
        """Number of utterances begun so far."""
        return self._begun

    def begin(self, source: GrowingText, turn: int, after_text_ms: float) -> int:
        """Track an utterance whose first audio is about to be pushed; return its number."""
        number = self._begun
        self._unheard.append(_TrackedUtterance(number, source))
        self._begun += 1
        self._events.emit(SpeechStarted(number, turn, after_text_ms))
        return number

    def end(self, outcome: UtteranceOutcome) -> None:
        """Note that the utterance being rendered has no more audio; ignored if it had none."""
        if self._unheard and self._unheard[-1].outcome is None:
            self._unheard[-1].outcome = outcome

    def add_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        """Emit words and marks that were heard, and the ends of the utterances before them."""
        for heard in words:
            self._finish_before(heard.utterance)
            if isinstance(heard, HeardMark):
                self._events.emit(MarkHeard(heard.utterance, heard.mark))
            else:
                self._emit_word(heard)

    def finish(self) -> None:
        """Emit the ends of all utterances that have no more audio: it has been heard."""
        while self._unheard and self._unheard[0].outcome is not None:
            self._finish_first()

    def discard(self, discarded: DiscardResult, begun: int) -> SpeechDiscarded:
        """Drop the first ``begun`` utterances of the call, and emit and return what the barge-in cut."""
        cut = next((tracked for tracked in self._unheard if tracked.number == discarded.utterance), None)
        if cut is not None:
            self._finish_before(cut.number)
        while self._unheard and self._unheard[0].number < begun:
            self._unheard.popleft()
        if cut is None:
            return SpeechDiscarded(None, discarded.cut_ms, "")
        text = cut.source.text[: discarded.text_stop]
        result = SpeechDiscarded(
            cut.number, discarded.cut_ms, text, discarded.words, discarded.marks, discarded.heard_s
        )
        self._events.emit(result)
        return result

    def _emit_word(self, heard: HeardWord) -> None:
        for tracked in self._unheard:
            if tracked.number == heard.utterance:
                tracked.heard_characters = heard.word.text_stop
        self._events.emit(WordHeard(heard.utterance, heard.word))

    def _finish_before(self, number: int) -> None:
        while self._unheard and self._unheard[0].number < number:
            self._finish_first()

    def _finish_first(self) -> None:
        finished = self._unheard.popleft()
        outcome = finished.outcome or UtteranceOutcome.SPOKEN
        self._events.emit(SpeechFinished(finished.number, outcome.value, finished.heard))
