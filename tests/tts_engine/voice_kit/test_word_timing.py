"""Tests of the estimated word times."""

from collections.abc import Iterable

import pytest

from vivavoce.tts_engine.reading.languages.en.rules import normalize
from vivavoce.tts_engine.reading.unicode_scripts import estimate_seconds
from vivavoce.tts_engine.segmenter import SpokenWord
from vivavoce.tts_engine.voice_kit.word_timing import TimedWord, WordTimeEstimator


def words(*texts: str, start: int = 0) -> tuple[SpokenWord, ...]:
    spoken_words = []
    for text in texts:
        spoken_words.append(SpokenWord(text, "", start, start + len(text)))
        start += len(text) + 1
    return tuple(spoken_words)


def ranges(timed_words: Iterable[TimedWord]) -> list[tuple[int, int]]:
    """The characters of each word."""
    return [(timed.word.start, timed.word.stop) for timed in timed_words]


def test_a_word_does_not_begin_before_the_model_is_given_its_text() -> None:
    estimator = WordTimeEstimator(ids_per_s=25)
    estimator.add(words("aa", "bb"), 10)
    estimator.note_text_given(5, 0)
    assert ranges(estimator.take_words_until(40.0, None)) == [(0, 2)]
    estimator.note_text_given(5, 45)
    (second,) = estimator.take_words_until(60.0, None)
    assert (second.word.start, second.start) == (3, 45)


def test_words_take_their_estimated_duration() -> None:
    estimator = WordTimeEstimator(ids_per_s=25)
    estimator.add(words("aa", "bb", "cc"), 3)
    estimator.note_text_given(3, 0)
    first, second = estimator.take_words_until(6.0, None)
    assert (first.start, first.stop) == (0.0, second.start)
    assert first.stop == pytest.approx(25 * 0.075 * 3)


def test_remaining_words_share_the_rest_of_the_sentence() -> None:
    estimator = WordTimeEstimator(ids_per_s=25)
    estimator.add(words("aa", "bb", "cc"), 3)
    estimator.note_text_given(3, 0)
    assert ranges(estimator.take_words_until(1.0, None)) == [(0, 2)]
    last = list(estimator.take_words_until(100.0, 100.0))
    assert ranges(last) == [(3, 5), (6, 8)]
    assert last[-1].stop == pytest.approx(100.0)
    assert last[0].stop - last[0].start == pytest.approx(last[1].stop - last[1].start)


def test_every_word_of_a_short_sentence_lies_within_it() -> None:
    estimator = WordTimeEstimator(ids_per_s=25)
    estimator.add(words(*["longer"] * 9), 30)
    estimator.note_text_given(30, 0)
    timed_words = [*estimator.take_words_until(10.0, None), *estimator.take_words_until(12.0, 12.0)]
    assert len(timed_words) == 9
    assert all(0 <= timed.start <= timed.stop <= 12.0 for timed in timed_words[2:])
    assert list(estimator.take_words_until(12.0, 12.0)) == []


def test_a_written_word_read_as_several_words_spans_all_of_them() -> None:
    text = "the $5 code is 0417 now"
    spoken = normalize(text)
    estimator = WordTimeEstimator(ids_per_s=25)
    estimator.add(spoken, 20)
    estimator.note_text_given(20, 0)
    timed_words = list(estimator.take_words_until(1000.0, None))
    assert [text[start:stop] for start, stop in ranges(timed_words)] == text.split()
    lengths = [timed.stop - timed.start for timed in timed_words]
    assert sum(lengths) == pytest.approx(25 * estimate_seconds(spoken))
    assert lengths[4] == pytest.approx(25 * estimate_seconds(spoken[5:9]))
