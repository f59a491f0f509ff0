"""What happens on the host between text and chunks: word times and sentences, with a scripted model."""

from collections.abc import Iterable

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'")

from vivavoce.models.cosyvoice.bistream import Bistream, LengthRule, Prompt, SpeechIds
from vivavoce.models.cosyvoice.geometry import Version
from vivavoce.models.cosyvoice.sampling import SamplingParameters
from vivavoce.models.cosyvoice.silent_ids import SilentFilter
from vivavoce.tts_engine.cosyvoice.render_runner import Timbre
from vivavoce.tts_engine.cosyvoice.utterance import Making, Manner, Utterance
from vivavoce.tts_engine.cosyvoice.word_clock import TimedWord, WordClock
from vivavoce.tts_engine.reading.scripts import seconds
from vivavoce.tts_engine.text import Ending, Segment, SpokenWord, normalize

IDS = SpeechIds(Version.V2)
NOBODY = Timbre("nobody", np.zeros(192, np.float32), np.zeros(0, np.int32), np.zeros((80, 0), np.float32))


def words(*texts: str, start: int = 0) -> tuple[SpokenWord, ...]:
    made = []
    for text in texts:
        made.append(SpokenWord(text, "", start, start + len(text)))
        start += len(text) + 1
    return tuple(made)


def segment(text: str, ending: Ending, start: int = 0) -> Segment:
    return Segment(words(*text.split(), start=start), start, start + len(text), ending)


def places(told: Iterable[TimedWord]) -> list[tuple[int, int]]:
    return [(timed.word.start, timed.word.stop) for timed in told]


class TestWordClock:
    """Estimates that never contradict what is known."""

    def test_a_word_is_not_told_before_the_model_was_given_it(self) -> None:
        clock = WordClock()
        clock.add(words("aa", "bb"), 10)
        clock.give(5, 0)
        assert places(clock.told(40.0, None)) == [(0, 2)]
        clock.give(5, 45)
        (second,) = clock.told(60.0, None)
        assert (second.word.start, second.begin) == (3, 45)

    def test_words_follow_each_other_at_their_usual_pace(self) -> None:
        clock = WordClock()
        clock.add(words("aa", "bb", "cc"), 3)
        clock.give(3, 0)
        first, second = clock.told(6.0, None)
        assert (first.begin, first.end) == (0.0, second.begin)
        assert first.end == pytest.approx(25 * 0.075 * 3)

    def test_what_is_left_shares_the_rest_of_the_sentence(self) -> None:
        clock = WordClock()
        clock.add(words("aa", "bb", "cc"), 3)
        clock.give(3, 0)
        assert places(clock.told(1.0, None)) == [(0, 2)]
        last = list(clock.told(100.0, 100.0))
        assert places(last) == [(3, 5), (6, 8)]
        assert last[-1].end == pytest.approx(100.0)
        assert last[0].end - last[0].begin == pytest.approx(last[1].end - last[1].begin)

    def test_a_sentence_that_ends_early_still_tells_every_word_within_it(self) -> None:
        clock = WordClock()
        clock.add(words(*["longer"] * 9), 30)
        clock.give(30, 0)
        told = [*clock.told(10.0, None), *clock.told(12.0, 12.0)]
        assert len(told) == 9
        assert all(0 <= timed.begin <= timed.end <= 12.0 for timed in told[2:])
        assert list(clock.told(12.0, 12.0)) == []

    def test_a_written_word_that_is_said_in_several_is_told_once_over_their_whole_time(self) -> None:
        text = "the $5 code is 0417 now"
        spoken = normalize(text)
        clock = WordClock()
        clock.add(spoken, 20)
        clock.give(20, 0)
        told = list(clock.told(1000.0, None))
        assert [text[start:stop] for start, stop in places(told)] == text.split()
        lengths = [timed.end - timed.begin for timed in told]
        assert sum(lengths) == pytest.approx(25 * seconds(spoken))
        assert lengths[4] == pytest.approx(25 * seconds(spoken[5:9]))


def utterance(*, most_text_ids: int = 30, fewest: float = 2, filtered: bool = False) -> Utterance:
    making = Making(
        encode=lambda text: list(range(len(text))),
        start=lambda prompt: Bistream(IDS, prompt, LengthRule(fewest, 4)),
        new_filter=SilentFilter if filtered else None,
        ids=IDS,
        first_hop=25,
        longest_hop=50,
        most_text_ids=most_text_ids,
        pause_share=0.5,
    )
    return Utterance(making, Manner(NOBODY, Prompt(), SamplingParameters(), 1.0), 0)


def speak(utterance: Utterance, answer: int = 100) -> list[tuple[int, int]]:
    """Answer and render until it rests; the ranges of speech ids rendered."""
    ranges = []
    while not utterance.rests:
        if utterance.is_due:
            sentence = utterance.sentence
            assert sentence is not None and sentence.due is not None
            new = sentence.due.stop - sentence.due.start
            rendered = utterance.rendered(np.zeros(960 * new, np.float32))
            assert rendered.speech_ids is not None
            ranges.append(rendered.speech_ids)
        else:
            turn = utterance.turn()
            assert turn is not None
            turn.generation.answer(answer)
            utterance.settle()
    return ranges


def test_clauses_are_one_sentence_and_the_model_waits_for_what_follows() -> None:
    one = utterance()
    one.begin(segment("well then,", Ending.CLAUSE), 0.0)
    assert speak(one) == [(0, 25)]
    sentence = one.sentence
    one.begin(segment("who is it?", Ending.SENTENCE, 11), 0.0)
    assert one.sentence is sentence
    ranges = speak(one)
    assert one.sentence is None
    assert ranges[-1][1] == 4 * len("well then, who is it?")


def test_the_next_sentence_begins_anew() -> None:
    one = utterance()
    one.begin(segment("it is me", Ending.SENTENCE), 0.0)
    first = speak(one)
    one.begin(segment("who else", Ending.SENTENCE, 9), 0.0)
    second = speak(one)
    assert first == [(0, 25), (25, 32)]
    assert second == [(32, 57), (57, 64)]


def test_a_piece_that_does_not_fit_begins_a_sentence_of_its_own() -> None:
    one = utterance(most_text_ids=12)
    one.begin(segment("ten letter", Ending.CLAUSE), 0.0)
    speak(one)
    first = one.sentence
    one.begin(segment("five", Ending.SENTENCE, 11), 0.0)
    assert one.sentence is first
    ranges = speak(one)
    assert one.sentence is None
    assert ranges[-1][1] == 4 * (len("ten letter") + len(" five"))


def test_a_long_segment_is_cut_between_words_and_an_endless_word_anywhere() -> None:
    one = utterance(most_text_ids=12)
    one.begin(segment("one two three four five six", Ending.SENTENCE), 0.0)
    assert speak(one)[-1][1] == 4 * len("one two three four five six")
    two = utterance(most_text_ids=12)
    two.begin(segment("x" * 40, Ending.SENTENCE), 0.0)
    assert speak(two)[-1][1] == 4 * 40


def test_an_empty_segment_ends_a_sentence_that_is_open_and_nothing_else() -> None:
    one = utterance()
    one.begin(Segment((), 0, 0, Ending.SENTENCE), 0.0)
    assert one.rests and one.sentence is None
    one.begin(segment("abc", Ending.CLAUSE), 0.0)
    assert one.rests and one.sentence is not None
    one.begin(Segment((), 3, 3, Ending.SENTENCE), 0.0)
    assert speak(one) == [(0, 12)]
    assert one.sentence is None


def test_a_pause_follows_the_sentence_and_is_part_of_its_last_chunk() -> None:
    one = utterance()
    one.begin(segment("hello", Ending.SENTENCE), 0.4)
    while not one.is_due:
        turn = one.turn()
        assert turn is not None
        turn.generation.answer(100)
        one.settle()
    rendered = one.rendered(np.zeros(960 * 20, np.float32))
    assert rendered.segment_done
    assert len(rendered.samples) == 960 * 20 + round(0.4 * 0.5 * 24_000)


def test_a_sentence_of_which_nothing_is_said_is_left() -> None:
    one = utterance(fewest=0)
    one.begin(segment("hey", Ending.SENTENCE), 0.0)
    assert speak(one, answer=IDS.end) == []
    assert one.sentence is None


def test_a_long_silence_is_shortened_where_the_release_has_a_filter() -> None:
    one = utterance(filtered=True)
    one.begin(segment("hello", Ending.SENTENCE), 0.0)
    assert speak(one, answer=1) == [(0, 5)]
