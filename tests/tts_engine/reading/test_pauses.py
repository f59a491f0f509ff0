"""Silence after clauses and sentences: it follows the speed."""

import pytest

from vivavoce.tts_engine.reading.clause_boundaries import BoundaryKind
from vivavoce.tts_engine.reading.pauses import usual_pause_s


@pytest.mark.parametrize("ending", BoundaryKind)
def test_a_slow_pause_is_longer_as_speech_is(ending: BoundaryKind) -> None:
    assert usual_pause_s(ending, 0.5) == 2 * usual_pause_s(ending, 1.0)


@pytest.mark.parametrize("ending", [BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH])
def test_a_fast_pause_after_a_sentence_is_shorter_as_speech_is(ending: BoundaryKind) -> None:
    assert usual_pause_s(ending, 2.0) == usual_pause_s(ending, 1.0) / 2


@pytest.mark.parametrize("ending", [BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS])
def test_a_fast_pause_inside_a_sentence_is_shorter_by_the_sound_that_dies_away(ending: BoundaryKind) -> None:
    shorter_s = usual_pause_s(ending, 1.0) / 2 - usual_pause_s(ending, 2.0)
    assert shorter_s == pytest.approx(0.0625)


def test_the_pauses_are_longer_the_more_they_part() -> None:
    kinds = (BoundaryKind.FORCED, BoundaryKind.CLAUSE, BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH)
    pauses = [usual_pause_s(kind, 1.0) for kind in kinds]
    assert pauses[0] == 0.0 and pauses == sorted(set(pauses))
