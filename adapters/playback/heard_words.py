"""The words that a listener has heard: word positions compared with the playback position.

``Playout`` or ``PeerPlayout`` advances the position; ``HeardWords`` turns it into words and into the length
of the text that has been heard. Positions are samples of speech at the listener's rate since the playout
began, dropped speech included. **A word counts as heard when its middle has been played.** There is no audio
and no clock here.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ...tts_engine.chunk import SAMPLE_RATE, AudioChunk, Word

MAX_UNREPORTED_WORDS: Final = 2_000  # words kept for a caller that does not take them


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word whose middle has been played."""

    utterance: int  # number of its utterance in the playout, from 0
    word: Word


@dataclass(frozen=True, slots=True)
class DiscardResult:
    """Speech that a barge-in dropped, and the part of the current utterance that was heard."""

    utterance: int  # number from 0; -1 if nothing was pushed since the start or the last discard
    cut_ms: float  # speech dropped from all queued utterances; the faded edge counts as dropped
    words: tuple[Word, ...]  # all heard words of the utterance, also those that were taken before
    text_stop: int  # characters of its text up to the last heard word; all of them if nothing was cut
    silent_at: float  # monotonic seconds from which none of the dropped speech is audible


@dataclass(slots=True)
class PlayedUtterance:
    """Position of one utterance in the speech, and its heard words."""

    number: int  # from 0 in its playout
    begin: int  # position of its first sample
    end: int | None = None  # position behind its last sample; None until ``finish``
    pushed_samples: int = 0  # at 24 kHz
    text_stop: int = 0  # characters of its text that were pushed
    heard: list[Word] = field(default_factory=list)

    def heard_text_stop(self, position: int) -> int:
        """Return the number of characters of its text that were heard by ``position``."""
        if self.end is not None and position >= self.end:
            return self.text_stop
        return self.heard[-1].text_stop if self.heard else 0

    def end_of_speech(self, sample_rate: int) -> int:
        """Return the position at which the pushed speech will end, withheld samples included."""
        return self.begin - (-self.pushed_samples * sample_rate // SAMPLE_RATE)


class HeardWords:
    """Tracks the words of one listener from the chunk that carries them until they are heard."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._open: PlayedUtterance | None = None  # being pushed
        self._queue: deque[PlayedUtterance] = deque()  # from the one being heard to the one being pushed
        # Positions of the middles of words not yet heard, in order.
        self._word_middles: deque[tuple[int, PlayedUtterance, Word]] = deque()
        self._unreported: deque[HeardWord] = deque(maxlen=MAX_UNREPORTED_WORDS)
        self._next_number = 0

    @property
    def open(self) -> PlayedUtterance | None:
        """The utterance that is being pushed, if any."""
        return self._open

    def push(
        self, chunk: AudioChunk, *, position: int, end: int, number: int | None = None
    ) -> PlayedUtterance:
        """Add a chunk's words; ``end`` is the position behind the speech before this chunk.

        number: of the utterance, if the chunk begins one; None: the next.
        """
        utterance = self._open or self._begin(chunk, position, end, number)
        utterance.pushed_samples += len(chunk.pcm) // 2
        utterance.text_stop = max(utterance.text_stop, chunk.text[1])
        for word in chunk.words:
            middle = round((word.start_s + word.stop_s) / 2 * self._sample_rate)
            self._word_middles.append((utterance.begin + middle, utterance, word))
        return utterance

    def finish(self, *, position: int, end: int) -> None:
        """End the open utterance at ``end``; words that would end later are moved there."""
        if self._open is None:
            return
        self._open.end = end
        self._word_middles = deque(
            (min(middle, end), utterance, word) for middle, utterance, word in self._word_middles
        )
        self._open = None
        self.advance(position)

    def advance(self, position: int) -> None:
        """Mark the words up to ``position`` as heard."""
        while self._word_middles and self._word_middles[0][0] <= position:
            _, utterance, word = self._word_middles.popleft()
            utterance.heard.append(word)
            self._unreported.append(HeardWord(utterance.number, word))

    def utterance_at(self, position: int) -> PlayedUtterance | None:
        """Return the utterance at ``position``, or the last one before it."""
        while len(self._queue) > 1 and self._queue[1].begin < position:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        """Return the words heard since the last call, at most the newest 2,000."""
        if not self._unreported:
            return ()
        words = tuple(self._unreported)
        self._unreported.clear()
        return words

    def discard(self, *, position: int, cut: int, silent_at: float) -> DiscardResult:
        """Drop all words not heard by ``position``; ``cut`` is the number of samples dropped."""
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

    def _begin(self, chunk: AudioChunk, position: int, end: int, number: int | None) -> PlayedUtterance:
        self.utterance_at(position)
        if number is None:
            number = self._next_number
        # Of an utterance that another playout began, the start lies before the first chunk here.
        played_before = chunk.samples[0]
        begin = end - played_before * self._sample_rate // SAMPLE_RATE
        self._open = PlayedUtterance(number=number, begin=begin, pushed_samples=played_before)
        self._next_number = number + 1
        self._queue.append(self._open)
        return self._open
