"""Barge-ins against peers in their own process; the bench itself takes a hundred."""

import asyncio

import pytest

from benches.peer_discards import measure

# At a clear, marks are forgotten, come back, come back from another queue too; the last peer has none.
WIRES = ("websocket", "twilio", "jambonz", "mod_audio_stream")


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
def test_what_is_reported_as_heard_is_what_the_peer_played_to_within_a_word(wire: str) -> None:
    discards = asyncio.run(measure(wire, calls=2, discards=2))
    assert len(discards) == 4
    assert all(abs(discard.heard_words - discard.played_words) <= 1 for discard in discards), discards
    assert min(discard.flushed_ms for discard in discards) < 100  # 1 ms where nothing else runs
