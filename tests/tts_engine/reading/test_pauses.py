"""Silence after clauses and sentences: it follows the speed, and varies as people's."""

import math
from collections import Counter
from statistics import mean, stdev

import pytest

from vivavoce.tts_engine.reading.clause_boundaries import BoundaryKind
from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.reading.pauses import pause_share, usual_pause_s
from vivavoce.tts_engine.segmenter import Segmenter

SENTENCE = BoundaryKind.SENTENCE


@pytest.mark.parametrize("ending", BoundaryKind)
def test_a_slow_pause_is_longer_as_speech_is(ending: BoundaryKind) -> None:
    assert usual_pause_s(ending, 0.5) == 2 * usual_pause_s(ending, 1.0)


@pytest.mark.parametrize("ending", [BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH])
def test_a_fast_pause_after_a_sentence_is_shorter_as_speech_is(ending: BoundaryKind) -> None:
    assert usual_pause_s(ending, 2.0) == usual_pause_s(ending, 1.0) / 2


@pytest.mark.parametrize("ending", [BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS])
def test_a_fast_pause_inside_a_sentence_is_shorter_by_the_sound_that_dies_away(ending: BoundaryKind) -> None:
    shorter_s = usual_pause_s(ending, 1.0) / 2 - usual_pause_s(ending, 2.0)
    assert shorter_s == pytest.approx(0.0525)


def test_the_pauses_are_longer_the_more_they_part() -> None:
    kinds = (BoundaryKind.FORCED, BoundaryKind.CLAUSE, BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH)
    pauses = [usual_pause_s(kind, 1.0) for kind in kinds]
    assert pauses[0] == 0.0 and pauses == sorted(set(pauses))


def words_of(text: str) -> list[SpokenWord]:
    segmenter = Segmenter()
    return [word for segment in segmenter.push(text) + segmenter.flush() for word in segment.words]


def sentences(count: int) -> list[list[SpokenWord]]:
    return [words_of(f"The parcel with number {number} arrived.") for number in range(count)]


def test_equal_words_and_seeds_have_equal_pauses_and_others_do_not() -> None:
    words = words_of("The parcel arrived this morning.")
    shares = [pause_share(words, BoundaryKind.SENTENCE, seed) for seed in (1, 1, 2)]
    assert shares[0] == shares[1] != shares[2]


def test_few_pauses_are_of_one_length() -> None:
    """Without variation all of them are; people's three fullest steps of 20 ms have about a third."""
    pauses = [usual_pause_s(SENTENCE, 1.0, pause_share(words, SENTENCE, 0)) for words in sentences(500)]
    fullest = Counter(int(pause_s / 0.02) for pause_s in pauses).most_common(3)
    assert sum(count for _, count in fullest) < 200
    assert mean(pauses) == pytest.approx(0.31, abs=0.03) and min(pauses) > 0.18 and max(pauses) < 0.55


def test_a_pause_is_longer_after_more_words() -> None:
    few, many = (
        mean(pause_share(words_of(text), SENTENCE, seed) for seed in range(200))
        for text in ("It is.", "It is in the warehouse that we told you of in the last letter.")
    )
    assert many > 1.15 * few


def test_a_paragraph_breathes_and_a_question_waits() -> None:
    statement, question = words_of("You are there."), words_of("You are there?")
    shares = [
        pause_share(statement, SENTENCE, 0),
        pause_share(question, SENTENCE, 0),
        pause_share(statement, BoundaryKind.PARAGRAPH, 0),
    ]
    assert shares == sorted(set(shares))


def test_the_pauses_of_a_list_are_nearly_equal() -> None:
    def spread(text: str) -> float:
        words = words_of(text)[:-1]  # without the last one: it ends with a comma
        return stdev(math.log(pause_share(words, BoundaryKind.CLAUSE, seed)) for seed in range(300))

    assert spread("warm milk, x.") < 0.07 < 0.15 < spread("we told you of it in the last letter, x.")


@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_pauses_do_not_depend_on_the_split(size: int) -> None:
    text = "When it arrives at your door, call us. We ship milk, eggs, and flour.\n\nIs it there? It is."
    whole, pieces = Segmenter(pause_seed=3), Segmenter(pause_seed=3)
    expected = whole.push(text) + whole.flush()
    found = [segment for at in range(0, len(text), size) for segment in pieces.push(text[at : at + size])]
    assert found + pieces.flush() == expected
    assert len({segment.pause_share for segment in expected}) == len(expected)
    assert {segment.pause_share for segment in Segmenter().push(text)} == {1.0}
