"""The words and marks that a listener has heard: their positions compared with the playback position.

``Playout`` or ``PeerPlayout`` advances the position; ``HeardWords`` turns it into words and into the length
of the text that has been heard. Positions are samples of speech at the listener's rate since the playout
began, dropped speech included. **A word counts as heard when its middle has been played**, a mark of SSML
when its place has. There is no audio and no clock here.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from ...tts_engine.chunk import SAMPLE_RATE, AudioChunk, Mark, Word

MAX_UNREPORTED_WORDS: Final = 2_000  # words and marks kept for a caller that does not take them


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word whose middle has been played."""

    utterance: int  # number of its utterance in the playout, from 0
    word: Word


@dataclass(frozen=True, slots=True)
class HeardMark:
    """A mark whose place has been played."""

    utterance: int  # as of a HeardWord
    mark: Mark


@dataclass(frozen=True, slots=True)
class DiscardResult:
    """Speech that a barge-in dropped, and the part of the current utterance that was heard."""

    utterance: int  # number from 0; -1 if nothing was pushed since the start or the last discard
    cut_ms: float  # speech dropped from all queued utterances; the faded edge counts as dropped
    words: tuple[Word, ...]  # all heard words of the utterance, also those that were taken before
    text_stop: int  # characters of its text up to the last heard word; all of them if nothing was cut
    silent_at: float  # monotonic seconds from which none of the dropped speech is audible
    marks: tuple[str, ...] = ()  # names of the marks of the utterance that were heard
    heard_s: float = 0.0  # seconds of the audio of the utterance that were heard


@dataclass(slots=True)
class PlayedUtterance:
    """Position of one utterance in the speech, and its heard words and marks."""

    number: int  # from 0 in its playout
    begin: int  # position of its first sample
    end: int | None = None  # position behind its last sample; None until ``finish``
    pushed_samples: int = 0  # at 24 kHz
    text_stop: int = 0  # characters of its text that were pushed
    heard: list[Word] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)  # names of those heard

    def heard_text_stop(self, position: int) -> int:
        """Return the number of characters of its text that were heard by ``position``."""
        if self.end is not None and position >= self.end:
            return self.text_stop
        return self.heard[-1].text_stop if self.heard else 0

    def heard_samples(self, position: int) -> int:
        """Return the number of its samples that were heard by ``position``."""
        return max(0, (position if self.end is None else min(position, self.end)) - self.begin)

    def end_of_speech(self, sample_rate: int) -> int:
        """Return the position at which the pushed speech will end, withheld samples included."""
        return self.begin - (-self.pushed_samples * sample_rate // SAMPLE_RATE)


class HeardWords:
    """Tracks the words and marks of one listener from the chunk that carries them until they are heard."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._open: PlayedUtterance | None = None  # being pushed
        self._queue: deque[PlayedUtterance] = deque()  # from the one being heard to the one being pushed
        # Positions of marks, and of the middles of words, not yet heard, in order.
        self._unheard: deque[tuple[int, PlayedUtterance, Word | Mark]] = deque()
        self._unreported: deque[HeardWord | HeardMark] = deque(maxlen=MAX_UNREPORTED_WORDS)
        self._next_number = 0

    @property
    def open(self) -> PlayedUtterance | None:
        """The utterance that is being pushed, if any."""
        return self._open

    def push(
        self, chunk: AudioChunk, *, position: int, end: int, number: int | None = None
    ) -> PlayedUtterance:
        """Add a chunk's words and marks; ``end`` is the position behind the speech before this chunk.

        number: of the utterance, if the chunk begins one; None: the next.
        """
        utterance = self._open or self._begin(chunk, position, end, number)
        utterance.pushed_samples += chunk.samples[1] - chunk.samples[0]
        utterance.text_stop = max(utterance.text_stop, chunk.text[1])
        places = self._places(chunk, utterance)
        # A mark comes before the word whose beginning it names.
        self._unheard.extend(sorted(places, key=itemgetter(0)) if chunk.marks else places)
        return utterance

    def finish(self, *, position: int, end: int) -> None:
        """End the open utterance at ``end``; words and marks that would come later are moved there."""
        if self._open is None:
            return
        self._open.end = end
        self._unheard = deque((min(at, end), utterance, place) for at, utterance, place in self._unheard)
        self._open = None
        self.advance(position)

    def advance(self, position: int) -> None:
        """Take the words and marks up to ``position`` for heard."""
        while self._unheard and self._unheard[0][0] <= position:
            _, utterance, place = self._unheard.popleft()
            if isinstance(place, Mark):
                utterance.marks.append(place.name)
                self._unreported.append(HeardMark(utterance.number, place))
            else:
                utterance.heard.append(place)
                self._unreported.append(HeardWord(utterance.number, place))

    def utterance_at(self, position: int) -> PlayedUtterance | None:
        """Return the utterance at ``position``, or the last one before it."""
        while len(self._queue) > 1 and self._queue[1].begin < position:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def word_edge(self, position: int) -> int:
        """Return where speech that stopped at ``position`` goes on.

        That is the beginning of the word there if it was not heard, or else its end.
        """
        unheard = next((entry for entry in self._unheard if isinstance(entry[2], Word)), None)
        if unheard is not None:
            _, utterance, word = unheard
            assert isinstance(word, Word)
            if (begin := self._position_of(utterance, word.start_s)) < position:
                return begin
        current = self.utterance_at(position)
        if current is None or not current.heard:
            return position
        return max(position, self._position_of(current, current.heard[-1].stop_s))

    def take_heard_words(self) -> tuple[HeardWord | HeardMark, ...]:
        """Return the words and marks heard since the last call, in order, at most the newest 2,000."""
        if not self._unreported:
            return ()
        words = tuple(self._unreported)
        self._unreported.clear()
        return words

    def discard(self, *, position: int, cut: int, silent_at: float) -> DiscardResult:
        """Drop all words and marks not heard by ``position``; ``cut`` is the number of samples dropped."""
        utterance = self.utterance_at(position)
        self._open = None
        self._queue.clear()
        self._unheard.clear()
        return DiscardResult(
            utterance=utterance.number if utterance else -1,
            cut_ms=1000 * cut / self._sample_rate,
            words=tuple(utterance.heard) if utterance else (),
            text_stop=utterance.heard_text_stop(position) if utterance else 0,
            silent_at=silent_at,
            marks=tuple(utterance.marks) if utterance else (),
            heard_s=utterance.heard_samples(position) / self._sample_rate if utterance else 0.0,
        )

    def _places(
        self, chunk: AudioChunk, utterance: PlayedUtterance
    ) -> Iterator[tuple[int, PlayedUtterance, Word | Mark]]:
        """Yield the marks and words of a chunk with their positions."""
        for mark in chunk.marks:
            # One at the beginning is heard with the first sample.
            yield utterance.begin + max(1, round(mark.at_s * self._sample_rate)), utterance, mark
        for word in chunk.words:
            yield self._position_of(utterance, (word.start_s + word.stop_s) / 2), utterance, word

    def _position_of(self, utterance: PlayedUtterance, at_s: float) -> int:
        return utterance.begin + round(at_s * self._sample_rate)

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
