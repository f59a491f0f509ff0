"""Estimates when the words of a sentence are heard, because the model gives no alignment.

A word cannot be spoken before the model is given its text; that time is known. From there on words take their
usual length at the voice's own pace, which is measured at the end of each sentence; and once the sentence's
length is known, the remaining words share the remaining time:

    given       1 2 3          4 5 6
    speech ids  |--- 15 -------|--- 15 ------|------------ the rest ---------|
    words       1      2       3          4           5             6

Positions are speech ids from the start of the sentence, 25 a second with CosyVoice.
Source: the 5:15 interleave of FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:551-661.
"""

import math
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..chunk import SAMPLE_RATE, Word
from ..segmenter import SpokenWord
from .spoken_words import WrittenWord, estimate_seconds, group_written_words

_USUAL_LENGTH_S = 2.0  # of usual speech, that the expected pace counts as in the mean
_MAX_LENGTH_S = 30.0  # of usual speech that the mean looks back, so that it follows a change
_PACE_BOUNDS = (0.4, 2.5)  # of what is taken from one sentence or recording
_MAX_PACES = 1024


class SpeakingPace:
    """How long a voice speaks, in units of the usual length of its words; the mean of its last sentences.

    expected: of the first sentence, such as the pace of the voice's recording.
    """

    def __init__(self, expected: float = 1.0) -> None:
        self._usual_s = _USUAL_LENGTH_S
        self._spoken_s = bounded_pace(expected) * _USUAL_LENGTH_S

    @property
    def ratio(self) -> float:
        """Length of the next words, of their usual length."""
        return self._spoken_s / self._usual_s

    def measure(self, usual_s: float, spoken_s: float) -> None:
        """Take in a sentence that took ``spoken_s`` seconds, and usually takes ``usual_s``."""
        if usual_s <= 0:
            return
        kept = min(1.0, max(0.0, _MAX_LENGTH_S - usual_s) / self._usual_s)
        self._usual_s = kept * self._usual_s + usual_s
        self._spoken_s = kept * self._spoken_s + usual_s * bounded_pace(spoken_s / usual_s)


class VoicePaces:
    """The paces of the voices that spoke last."""

    def __init__(self) -> None:
        self._paces: OrderedDict[Hashable, SpeakingPace] = OrderedDict()

    def pace_of(self, voice: Hashable, expected: float) -> SpeakingPace:
        """The pace of a voice, which all its sentences share. expected: as of ``SpeakingPace``."""
        pace = self._paces.setdefault(voice, SpeakingPace(expected))
        self._paces.move_to_end(voice)
        if len(self._paces) > _MAX_PACES:
            self._paces.popitem(last=False)
        return pace


def bounded_pace(ratio: float) -> float:
    """A measured pace within what speech can be."""
    low, high = _PACE_BOUNDS
    return min(max(ratio, low), high)


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word of the text, and the range of speech ids in which it is heard."""

    word: WrittenWord
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class _PendingWord:
    """A word, its usual length in speech ids, and its first text id, estimated from the lengths."""

    word: WrittenWord | None  # None: a mark of the model, which takes time but is not reported
    length: float
    text_id: float


class WordTimeEstimator:
    """The words of one sentence; each is yielded once.

    ids_per_s: speech ids in a second of audio. pace: of the voice; None for the usual one.
    """

    def __init__(self, ids_per_s: float, pace: SpeakingPace | None = None) -> None:
        self._ids_per_s, self._pace = ids_per_s, pace or SpeakingPace()
        self._usual_length = 0.0  # of all words
        self._is_measured = False
        self._text_ids = 0
        self._pending: deque[_PendingWord] = deque()
        self._remaining_length = 0.0  # of all pending words
        # Parallel lists: how many text ids the model had, and from which speech id on.
        self._text_ids_given = [0]
        self._given_at_speech_id = [0]
        self._position = 0.0

    def add(self, spoken: Sequence[SpokenWord], text_ids: int) -> None:
        """Add the words of the next ``text_ids`` text ids."""
        words: dict[int, WrittenWord | None] = {
            place: None for place, each in enumerate(spoken) if each.is_mark
        }
        words |= {word.spoken_range.start: word for word in group_written_words(spoken)}
        lengths = {
            place: self._ids_per_s
            * estimate_seconds(spoken[each] for each in (word.spoken_range if word else (place,)))
            for place, word in words.items()
        }
        total = sum(lengths.values())
        share = text_ids / total if total else 0.0
        text_id = float(self._text_ids)
        for place in sorted(words):
            self._pending.append(_PendingWord(words[place], lengths[place], text_id))
            text_id += share * lengths[place]
        self._remaining_length += total
        self._usual_length += total
        self._text_ids += text_ids

    def note_text_given(self, text_ids: int, position: int) -> None:
        """Record that the model is given that many more text ids before the speech id at ``position``."""
        self._text_ids_given.append(self._text_ids_given[-1] + text_ids)
        self._given_at_speech_id.append(position)

    def take_words_until(
        self, until: float, total: float | None, generated: float = math.inf
    ) -> Iterator[TimedWord]:
        """Words that begin before ``until``, once each.

        total: the sentence's length, None until known. generated: speech ids so far, at least ``until``. No
        word ends after them, so that its sentence is at least as long as its words.
        """
        if total is None:
            time_scale = self._pace.ratio
        else:
            self._measure_pace(total)
            time_scale = max(0.0, total - self._position) / max(self._remaining_length, 1e-9)
        is_past_end = total is not None and until >= total
        while self._pending:
            waiting = self._pending[0]
            begin = max(self._position, self._earliest_position(waiting))
            if begin >= until and not is_past_end:
                return
            self._pending.popleft()
            self._remaining_length -= waiting.length
            self._position = begin + time_scale * waiting.length
            if total is not None:
                begin, self._position = min(begin, total), min(self._position, total)
            if waiting.word is not None:
                yield TimedWord(waiting.word, begin, max(begin, min(self._position, generated)))

    def _measure_pace(self, total: float) -> None:
        if not self._is_measured:
            self._pace.measure(self._usual_length / self._ids_per_s, total / self._ids_per_s)
            self._is_measured = True

    def _earliest_position(self, waiting: _PendingWord) -> float:
        """The speech id at which the model is given the word's first text id; infinite until then."""
        step = bisect_right(self._text_ids_given, waiting.text_id)
        return self._given_at_speech_id[step] if step < len(self._given_at_speech_id) else math.inf


def words_in_stream(
    timed: Iterable[TimedWord], start_sample: int, ids_per_s: float, latest_s: float = math.inf
) -> Iterator[Word]:
    """Times of words in a stream, in seconds. ``Word.text`` is empty, as ``StepResult`` has it.

    start_sample: of the sentence, in the stream. ids_per_s: speech ids in a second of its audio, at its
    speed. latest_s: end of the audio; no word begins after it.
    """
    for each in timed:
        begin_s, end_s = (start_sample / SAMPLE_RATE + place / ids_per_s for place in (each.start, each.stop))
        begin_s = min(begin_s, latest_s)
        yield Word("", begin_s, max(begin_s, end_s), each.word.start, each.word.stop)
