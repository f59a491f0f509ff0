"""Tracks the utterances of one call from their first audio to the last word heard, and emits their events.

The playout reports positions, the text feed has the text; the tracker joins the two. Utterances are counted
as the playout counts them: each that had any audio, from 0.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ...adapters.playback.heard_words import DiscardResult, HeardWord
from .events import CallEvents, SpeechDiscarded, SpeechFinished, SpeechStarted, WordHeard

_ALL_SPOKEN = "spoken"  # value of UtteranceOutcome.SPOKEN


class HeardWordSource(Protocol):
    """The part of a playout that reports what was heard."""

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        """Return the words heard since the last call."""

    def lead_s(self, now: float) -> float:
        """Return the seconds of speech not yet played at ``now``."""


class GrowingText(Protocol):
    """The text of an utterance that is still being written."""

    @property
    def text(self) -> str:
        """All of it so far."""


@dataclass(slots=True)
class _TrackedUtterance:
    number: int
    source: GrowingText
    outcome: str | None = None  # None while its audio is rendered
    heard_characters: int = 0  # up to the end of the last word heard

    @property
    def heard(self) -> str:
        text = self.source.text
        return text if self.outcome == _ALL_SPOKEN else text[: self.heard_characters]


class UtteranceTracker:
    """The utterances of one call that have audio in the playout."""

    def __init__(self, events: CallEvents, playout: HeardWordSource) -> None:
        self._events = events
        self._playout = playout
        self._begun = 0
        # From the utterance being heard to the one being rendered.
        self._unheard: deque[_TrackedUtterance] = deque()

    def begin(self, source: GrowingText, turn: int, after_text_ms: float) -> None:
        """Track an utterance whose first audio was just pushed into the playout."""
        self._unheard.append(_TrackedUtterance(self._begun, source))
        self._begun += 1
        self._events.emit(SpeechStarted(self._begun - 1, turn, after_text_ms))

    def end(self, outcome: str) -> None:
        """Note that the utterance being rendered has no more audio; ignored if it had none."""
        if self._unheard and self._unheard[-1].outcome is None:
            self._unheard[-1].outcome = outcome

    def tick(self, now: float) -> None:
        """Emit the words heard until ``now`` (monotonic s), and the ends of utterances."""
        if not self._unheard:
            return
        for heard in self._playout.take_heard_words():
            self._finish_before(heard.utterance)
            self._emit_word(heard)
        if self._unheard[-1].outcome is not None and self._playout.lead_s(now) <= 0:
            self._finish_before(self._begun)

    def discard(self, discarded: DiscardResult) -> SpeechDiscarded:
        """Drop every utterance, and emit and return what the barge-in cut."""
        for heard in self._playout.take_heard_words():
            self._emit_word(heard)
        cut = next((tracked for tracked in self._unheard if tracked.number == discarded.utterance), None)
        if cut is None:
            return SpeechDiscarded(None, discarded.cut_ms, "")
        self._finish_before(cut.number)
        self._unheard.clear()
        text = cut.source.text[: discarded.text_stop]
        result = SpeechDiscarded(cut.number, discarded.cut_ms, text, discarded.words)
        self._events.emit(result)
        return result

    def _emit_word(self, heard: HeardWord) -> None:
        for tracked in self._unheard:
            if tracked.number == heard.utterance:
                tracked.heard_characters = heard.word.text_stop
        self._events.emit(WordHeard(heard.utterance, heard.word))

    def _finish_before(self, number: int) -> None:
        while self._unheard and self._unheard[0].number < number:
            finished = self._unheard[0]
            outcome = finished.outcome or _ALL_SPOKEN
            self._events.emit(SpeechFinished(finished.number, outcome, finished.heard))
            self._unheard.popleft()
