"""The state of one utterance: text read while it is cancelled, and pauses at its speed."""

from dataclasses import replace

import pytest

from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment
from vivavoce.tts_engine.session import Session


def test_a_cancelled_session_takes_no_more_segments() -> None:
    session = Session(slot=1, opened_at=10.0)
    segment = Segment((SpokenWord("one", "", 0, 3),), 0, 3, BoundaryKind.SENTENCE)
    session.add(segment, now=11.0)
    session.cancelled_at = 12.0
    session.add(segment, now=13.0)
    session.add_last([segment], now=13.0)
    assert len(session.pending) == 1


def test_the_usual_pause_follows_the_speed_and_one_that_is_asked_for_does_not() -> None:
    segment = Segment((SpokenWord("one", ",", 0, 4),), 0, 4, BoundaryKind.CLAUSE)
    usual = Session(slot=1, opened_at=10.0)
    usual.add(segment, now=11.0)
    for speed, rate, factor in ((1.25, 1.0, 1.25), (1.5, 1.2, 1.8), (2.0, 1.5, 2.0), (0.5, 0.5, 0.5)):
        session = Session(slot=1, opened_at=10.0, speed=speed)
        session.add(replace(segment, rate=rate), now=11.0)
        assert session.pending[0].pause_s == pytest.approx(usual.pending[0].pause_s / factor)
        session.pause(1.5)
        assert session.pending[0].pause_s == 1.5
        session.begin_next()
        session.pause(1.0)
        assert session.silence_s == 1.0
