"""Tests of the estimated word times."""

from collections.abc import Iterable

import pytest

from vivavoce.tts_engine.reading.languages.en.rules import normalize
from vivavoce.tts_engine.segmenter import SpokenWord
from vivavoce.tts_engine.voice_kit.spoken_words import estimate_seconds
from vivavoce.tts_engine.voice_kit.word_timing import SpeakingPace, TimedWord, VoicePaces, WordTimeEstimator


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


def test_words_take_their_length_at_the_pace_of_the_sentence_before() -> None:
    paces = VoicePaces()
    first = WordTimeEstimator(25, paces.pace_of("anna", expected=1.0))
    first.add(words(*["longer"] * 8), 8)
    first.note_text_given(8, 0)
    usual = 25 * estimate_seconds(words(*["longer"] * 8))
    list(first.take_words_until(usual / 2, usual / 2))  # twice as fast as usual
    second = WordTimeEstimator(25, paces.pace_of("anna", expected=1.0))
    second.add(words("longer", "longer"), 2)
    second.note_text_given(2, 0)
    fast, *_ = second.take_words_until(usual, None)
    # The expectation counts as two seconds of usual speech, the sentence as its own length.
    ratio = (2.0 + estimate_seconds(words(*["longer"] * 8)) / 2) / (2.0 + usual / 25)
    assert fast.stop == pytest.approx(ratio * usual / 8)
    assert paces.pace_of("otto", expected=0.8).ratio == pytest.approx(0.8)


def test_no_word_ends_after_the_ids_that_are_generated() -> None:
    """Else the engine lengthened the audio with silence, by a pace that others have measured."""
    estimator = WordTimeEstimator(25, SpeakingPace(2.5))
    estimator.add(words("unforgettable", "days"), 8)
    estimator.note_text_given(8, 0)
    (first,) = estimator.take_words_until(1.0, None, 10.0)
    assert (first.start, first.stop) == (0.0, 10.0)


def test_a_pace_follows_a_change_and_no_single_odd_sentence() -> None:
    pace = SpeakingPace()
    for _ in range(20):
        pace.measure(usual_s=5.0, spoken_s=3.0)
    assert pace.ratio == pytest.approx(0.6, abs=0.02)
    pace.measure(usual_s=1.0, spoken_s=90.0)
    assert pace.ratio < 0.67
    for _ in range(20):
        pace.measure(usual_s=5.0, spoken_s=6.0)
    assert pace.ratio == pytest.approx(1.2, abs=0.02)
    pace.measure(usual_s=0.0, spoken_s=4.0)  # a sentence without letters says nothing of it
    assert pace.ratio == pytest.approx(1.2, abs=0.02)


def test_the_paces_of_the_voices_that_spoke_last_are_kept() -> None:
    paces = VoicePaces()
    paces.pace_of("first", expected=0.5)
    for voice in range(1_100):
        paces.pace_of("last", expected=0.7)
        paces.pace_of(voice, expected=1.0)
    assert paces.pace_of("first", expected=0.9).ratio == pytest.approx(0.9)
    assert paces.pace_of("last", expected=0.9).ratio == pytest.approx(0.7)


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
