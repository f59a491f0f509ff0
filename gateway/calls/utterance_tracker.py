"""What one listener has heard, told as events: which utterance began, each word, the end or the cut.

The playout knows positions, the feed knows the text; here they meet. Utterances are counted as the playout
counts them: each that had any audio, from 0.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ...adapters.playback.heard_words import DiscardResult, HeardWord
from .events import CallEvents, SpeechDiscarded, SpeechFinished, SpeechStarted, WordHeard


class HeardWordSource(Protocol):
    """What a playout tells of what was heard."""

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        """Words heard since last asked."""

    def lead_s(self, now: float) -> float:
        """Seconds not yet played."""


class GrowingText(Protocol):
    """An utterance's text, as it grows."""

    @property
    def text(self) -> str:
        """All of it so far."""


@dataclass(slots=True)
class _TrackedUtterance:
    number: int
    source: GrowingText
    outcome: str | None = None  # None while audio still comes


class UtteranceTracker:
    """Follows the utterances of one call from their first audio to the last that was heard."""

    def __init__(self, events: CallEvents, playout: HeardWordSource) -> None:
        self._events = events
        self._playout = playout
        self._begun = 0
        self._unheard: deque[_TrackedUtterance] = (
            deque()
        )  # from the one being heard to the one being rendered

    def begin(self, source: GrowingText) -> None:
        """The first audio of an utterance is in the playout."""
        self._unheard.append(_TrackedUtterance(self._begun, source))
        self._begun += 1
        self._events.emit(SpeechStarted(self._begun - 1))

    def utterance_text(self, number: int) -> str:
        """The text so far of an utterance that is not over; "" of any other."""
        return next((tracked.source.text for tracked in self._unheard if tracked.number == number), "")

    def end(self, outcome: str) -> None:
        """The utterance being rendered has no more audio; one that had none is not told of."""
        if self._unheard and self._unheard[-1].outcome is None:
            self._unheard[-1].outcome = outcome

    def tick(self, now: float) -> None:
        """Tell the words that have been heard, and the utterances that are over."""
        if not self._unheard:
            return
        for heard in self._playout.take_heard_words():
            self._finish_before(heard.utterance)
            self._events.emit(WordHeard(heard.utterance, heard.word))
        if self._unheard[-1].outcome is not None and self._playout.lead_s(now) <= 0:
            self._finish_before(self._begun)

    def discard(self, discarded: DiscardResult) -> str | None:
        """Tell of a barge-in; answers the text heard of the utterance that it cut, None if it cut none."""
        for heard in self._playout.take_heard_words():
            self._events.emit(WordHeard(heard.utterance, heard.word))
        cut = next((tracked for tracked in self._unheard if tracked.number == discarded.utterance), None)
        if cut is None:
            return None
        self._finish_before(cut.number)
        self._unheard.clear()
        text = cut.source.text[: discarded.text_stop]
        self._events.emit(SpeechDiscarded(cut.number, discarded.cut_ms, text))
        return text

    def _finish_before(self, number: int) -> None:
        while self._unheard and self._unheard[0].number < number:
            finished = self._unheard[0]
            self._events.emit(SpeechFinished(finished.number, finished.outcome or "spoken"))
            self._unheard.popleft()
