"""What happens on the host between text and chunks: word times and sentences, with a scripted model."""

from collections.abc import Iterable

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'")

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.lm.generation import BistreamGeneration, LmPrompt, SpecialIds, SpeechLengthRule
from vivavoce.models.cosyvoice.lm.sampling import SamplingParameters
from vivavoce.models.cosyvoice.lm.silence_filter import SilenceFilter
from vivavoce.tts_engine.cosyvoice.conditioning import FlowPrompt, VoiceConditioning
from vivavoce.tts_engine.cosyvoice.sentence import SentenceConfig
from vivavoce.tts_engine.cosyvoice.session import CosyVoiceSession
from vivavoce.tts_engine.cosyvoice.word_timing import TimedWord, WordTimeEstimator
from vivavoce.tts_engine.reading.unicode_scripts import estimate_seconds
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment, SpokenWord, normalize

IDS = SpecialIds(CosyVoiceVersion.V2)
NOBODY = FlowPrompt("nobody", np.zeros(192, np.float32), np.zeros(0, np.int32), np.zeros((80, 0), np.float32))


def words(*texts: str, start: int = 0) -> tuple[SpokenWord, ...]:
    made = []
    for text in texts:
        made.append(SpokenWord(text, "", start, start + len(text)))
        start += len(text) + 1
    return tuple(made)


def segment(text: str, ending: BoundaryKind, start: int = 0) -> Segment:
    return Segment(words(*text.split(), start=start), start, start + len(text), ending)


def places(told: Iterable[TimedWord]) -> list[tuple[int, int]]:
    return [(timed.word.start, timed.word.stop) for timed in told]


class TestWordClock:
    """Estimates that never contradict what is known."""

    def test_a_word_is_not_told_before_the_model_was_given_it(self) -> None:
        clock = WordTimeEstimator()
        clock.add(words("aa", "bb"), 10)
        clock.note_text_given(5, 0)
        assert places(clock.take_words_until(40.0, None)) == [(0, 2)]
        clock.note_text_given(5, 45)
        (second,) = clock.take_words_until(60.0, None)
        assert (second.word.start, second.start) == (3, 45)

    def test_words_follow_each_other_at_their_usual_pace(self) -> None:
        clock = WordTimeEstimator()
        clock.add(words("aa", "bb", "cc"), 3)
        clock.note_text_given(3, 0)
        first, second = clock.take_words_until(6.0, None)
        assert (first.start, first.stop) == (0.0, second.start)
        assert first.stop == pytest.approx(25 * 0.075 * 3)

    def test_what_is_left_shares_the_rest_of_the_sentence(self) -> None:
        clock = WordTimeEstimator()
        clock.add(words("aa", "bb", "cc"), 3)
        clock.note_text_given(3, 0)
        assert places(clock.take_words_until(1.0, None)) == [(0, 2)]
        last = list(clock.take_words_until(100.0, 100.0))
        assert places(last) == [(3, 5), (6, 8)]
        assert last[-1].stop == pytest.approx(100.0)
        assert last[0].stop - last[0].start == pytest.approx(last[1].stop - last[1].start)

    def test_a_sentence_that_ends_early_still_tells_every_word_within_it(self) -> None:
        clock = WordTimeEstimator()
        clock.add(words(*["longer"] * 9), 30)
        clock.note_text_given(30, 0)
        told = [*clock.take_words_until(10.0, None), *clock.take_words_until(12.0, 12.0)]
        assert len(told) == 9
        assert all(0 <= timed.start <= timed.stop <= 12.0 for timed in told[2:])
        assert list(clock.take_words_until(12.0, 12.0)) == []

    def test_a_written_word_that_is_said_in_several_is_told_once_over_their_whole_time(self) -> None:
        text = "the $5 code is 0417 now"
        spoken = normalize(text)
        clock = WordTimeEstimator()
        clock.add(spoken, 20)
        clock.note_text_given(20, 0)
        told = list(clock.take_words_until(1000.0, None))
        assert [text[start:stop] for start, stop in places(told)] == text.split()
        lengths = [timed.stop - timed.start for timed in told]
        assert sum(lengths) == pytest.approx(25 * estimate_seconds(spoken))
        assert lengths[4] == pytest.approx(25 * estimate_seconds(spoken[5:9]))


def utterance(*, max_text_ids: int = 30, fewest: float = 2, filtered: bool = False) -> CosyVoiceSession:
    making = SentenceConfig(
        encode_text=lambda text: list(range(len(text))),
        new_generation=lambda prompt: BistreamGeneration(IDS, prompt, SpeechLengthRule(fewest, 4)),
        new_filter=SilenceFilter if filtered else None,
        ids=IDS,
        first_hop=25,
        max_hop=50,
        max_text_ids=max_text_ids,
        pause_share=0.5,
    )
    return CosyVoiceSession(making, VoiceConditioning(NOBODY, LmPrompt(), SamplingParameters(), 1.0), 0)


def speak(utterance: CosyVoiceSession, answer: int = 100) -> list[tuple[int, int]]:
    """Answer and render until it rests; the ranges of speech ids rendered."""
    ranges = []
    while not utterance.is_drained:
        if utterance.is_chunk_ready:
            sentence = utterance.sentence
            assert sentence is not None and sentence.next_chunk is not None
            new = sentence.next_chunk.stop - sentence.next_chunk.start
            rendered = utterance.render_result(np.zeros(960 * new, np.float32))
            assert rendered.speech_ids is not None
            ranges.append(rendered.speech_ids)
        else:
            turn = utterance.decoding_turn()
            assert turn is not None
            turn.generation.answer(answer)
            utterance.collect_and_feed()
    return ranges


def test_clauses_are_one_sentence_and_the_model_waits_for_what_follows() -> None:
    one = utterance()
    one.begin(segment("well then,", BoundaryKind.CLAUSE), 0.0)
    assert speak(one) == [(0, 25)]
    sentence = one.sentence
    one.begin(segment("who is it?", BoundaryKind.SENTENCE, 11), 0.0)
    assert one.sentence is sentence
    ranges = speak(one)
    assert one.sentence is None
    assert ranges[-1][1] == 4 * len("well then, who is it?")


def test_the_next_sentence_begins_anew() -> None:
    one = utterance()
    one.begin(segment("it is me", BoundaryKind.SENTENCE), 0.0)
    first = speak(one)
    one.begin(segment("who else", BoundaryKind.SENTENCE, 9), 0.0)
    second = speak(one)
    assert first == [(0, 25), (25, 32)]
    assert second == [(32, 57), (57, 64)]


def test_a_piece_that_does_not_fit_begins_a_sentence_of_its_own() -> None:
    one = utterance(max_text_ids=12)
    one.begin(segment("ten letter", BoundaryKind.CLAUSE), 0.0)
    speak(one)
    first = one.sentence
    one.begin(segment("five", BoundaryKind.SENTENCE, 11), 0.0)
    assert one.sentence is first
    ranges = speak(one)
    assert one.sentence is None
    assert ranges[-1][1] == 4 * (len("ten letter") + len(" five"))


def test_a_long_segment_is_cut_between_words_and_an_endless_word_anywhere() -> None:
    one = utterance(max_text_ids=12)
    one.begin(segment("one two three four five six", BoundaryKind.SENTENCE), 0.0)
    assert speak(one)[-1][1] == 4 * len("one two three four five six")
    two = utterance(max_text_ids=12)
    two.begin(segment("x" * 40, BoundaryKind.SENTENCE), 0.0)
    assert speak(two)[-1][1] == 4 * 40


def test_an_empty_segment_ends_a_sentence_that_is_open_and_nothing_else() -> None:
    one = utterance()
    one.begin(Segment((), 0, 0, BoundaryKind.SENTENCE), 0.0)
    assert one.is_drained and one.sentence is None
    one.begin(segment("abc", BoundaryKind.CLAUSE), 0.0)
    assert one.is_drained and one.sentence is not None
    one.begin(Segment((), 3, 3, BoundaryKind.SENTENCE), 0.0)
    assert speak(one) == [(0, 12)]
    assert one.sentence is None


def test_a_pause_follows_the_sentence_and_is_part_of_its_last_chunk() -> None:
    one = utterance()
    one.begin(segment("hello", BoundaryKind.SENTENCE), 0.4)
    while not one.is_chunk_ready:
        turn = one.decoding_turn()
        assert turn is not None
        turn.generation.answer(100)
        one.collect_and_feed()
    rendered = one.render_result(np.zeros(960 * 20, np.float32))
    assert rendered.segment_done
    assert len(rendered.samples) == 960 * 20 + round(0.4 * 0.5 * 24_000)


def test_a_sentence_of_which_nothing_is_said_is_left() -> None:
    one = utterance(fewest=0)
    one.begin(segment("hey", BoundaryKind.SENTENCE), 0.0)
    assert speak(one, answer=IDS.end) == []
    assert one.sentence is None


def test_a_long_silence_is_shortened_where_the_release_has_a_filter() -> None:
    one = utterance(filtered=True)
    one.begin(segment("hello", BoundaryKind.SENTENCE), 0.0)
    assert speak(one, answer=1) == [(0, 5)]
