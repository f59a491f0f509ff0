"""The state of one utterance: text that was read while its stream was cancelled is dropped."""

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
