"""Which words a listener has heard: the places of words in the speech against how far it has been played.

Whoever owns the playout, we or the peer, moves the position; here it becomes words and the text they end.
Places are samples of speech at the listener's rate since the playout began, cut speech included. **A word
counts as heard when its middle has been.** No audio, no clock.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ...tts_engine.chunk import SAMPLE_RATE, AudioChunk, Word

MAX_UNREPORTED_WORDS: Final = 2_000  # words that report() keeps for who does not ask


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word whose middle has been heard, and the utterance (counted from 0 in its playout) it is of."""

    utterance: int
    word: Word


@dataclass(frozen=True, slots=True)
class DiscardResult:
    """What a barge-in cut, and what the listener knows of the utterance that was being heard.

    ``utterance``: its number, counted from 0; -1 when nothing was pushed since the start or the last discard.
    ``cut_ms``: speech dropped, all queued utterances together; the fading edge counts as dropped.
    ``words``: all words of ``utterance`` whose middle was heard, those that were reported before included.
    ``text_stop``: characters of its text up to the end of the last word heard; all if nothing was cut.
    ``silent_at``: monotonic seconds from which nothing of the old speech is played any more.
    """

    utterance: int
    cut_ms: float
    words: tuple[Word, ...]
    text_stop: int
    silent_at: float


@dataclass(slots=True)
class PlayedUtterance:
    """One utterance's place in the speech and what of it was heard. ``end``: None while more of it comes."""

    number: int
    begin: int
    end: int | None = None
    pushed_samples: int = 0  # at 24 kHz
    text_stop: int = 0
    heard: list[Word] = field(default_factory=list)

    def heard_text_stop(self, position: int) -> int:
        """Characters of its text heard when the speech has been played up to ``position``."""
        if self.end is not None and position >= self.end:
            return self.text_stop
        return self.heard[-1].text_stop if self.heard else 0

    def end_of_speech(self, sample_rate: int) -> int:
        """Where the speech taken so far will end, what a resampler still holds included."""
        return self.begin - (-self.pushed_samples * sample_rate // SAMPLE_RATE)


class HeardWords:
    """The words of one listener, from the chunk they came in to the moment they were heard."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._open: PlayedUtterance | None = None  # being pushed
        self._queue: deque[PlayedUtterance] = deque()  # from the one being heard to the one being pushed
        self._word_middles: deque[tuple[int, PlayedUtterance, Word]] = (
            deque()
        )  # middles of words not yet heard
        self._unreported: deque[HeardWord] = deque(maxlen=MAX_UNREPORTED_WORDS)
        self._utterance_count = 0

    @property
    def open(self) -> PlayedUtterance | None:
        """The utterance that is being pushed."""
        return self._open

    def push(self, chunk: AudioChunk, *, position: int, end: int) -> PlayedUtterance:
        """Take a chunk's words. Speech was played to ``position`` and ends at ``end`` before this chunk."""
        utterance = self._open or self._begin(position, end)
        utterance.pushed_samples += len(chunk.pcm) // 2
        utterance.text_stop = max(utterance.text_stop, chunk.text[1])
        for word in chunk.words:
            middle = round((word.start_s + word.stop_s) / 2 * self._sample_rate)
            self._word_middles.append((utterance.begin + middle, utterance, word))
        return utterance

    def finish(self, *, position: int, end: int) -> None:
        """The utterance being pushed ends at ``end``; a word that no audio was left for ends there too."""
        if self._open is None:
            return
        self._open.end = end
        self._word_middles = deque(
            (min(middle, end), said, word) for middle, said, word in self._word_middles
        )
        self._open = None
        self.advance(position)

    def advance(self, position: int) -> None:
        """Speech has been played up to ``position``."""
        while self._word_middles and self._word_middles[0][0] <= position:
            _, utterance, word = self._word_middles.popleft()
            utterance.heard.append(word)
            self._unreported.append(HeardWord(utterance.number, word))

    def utterance_at(self, position: int) -> PlayedUtterance | None:
        """The utterance that is played at ``position``, or the last one that was."""
        while len(self._queue) > 1 and self._queue[1].begin < position:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        """The words heard since this was last asked, each once; of 2,000 not asked for, the newest."""
        words = tuple(self._unreported)
        self._unreported.clear()
        return words

    def discard(self, *, position: int, cut: int, silent_at: float) -> DiscardResult:
        """Forget all that was not heard at ``position``, ``cut`` samples; what is to be told of it."""
        utterance = self.utterance_at(position)
        self._open = None
        self._queue.clear()
        self._word_middles.clear()
        return DiscardResult(
            utterance=utterance.number if utterance else -1,
            cut_ms=1000 * cut / self._sample_rate,
            words=tuple(utterance.heard) if utterance else (),
            text_stop=utterance.heard_text_stop(position) if utterance else 0,
            silent_at=silent_at,
        )

    def _begin(self, position: int, end: int) -> PlayedUtterance:
        self.utterance_at(position)
        self._open = PlayedUtterance(number=self._utterance_count, begin=end)
        self._utterance_count += 1
        self._queue.append(self._open)
        return self._open
