"""Tests of the session capacity, against sums done by hand."""

import pytest

from vivavoce.tts_engine.cosyvoice.rendering.render_stage import max_sessions_in_memory


@pytest.mark.parametrize(
    ("memory_ids", "prepared_voice_ids", "ids_by_session", "new_session_ids", "expected"),
    [
        (1000, 0, (), 250, 4),
        (1000, 100, (), 250, 3),
        (1000, 100, (300, 250), 250, 3),
        (1000, 100, (300, 400), 250, 2),
        (1000, 100, (300, 400, 250), 250, 2),  # open sessions stay; none is added
        (100, 0, (), 250, 1),
        (1000, 0, (5000,), 250, 1),
    ],
)
def test_open_sessions_count_with_their_size_and_one_session_always_fits(
    memory_ids: int,
    prepared_voice_ids: int,
    ids_by_session: tuple[int, ...],
    new_session_ids: int,
    expected: int,
) -> None:
    assert max_sessions_in_memory(memory_ids, prepared_voice_ids, ids_by_session, new_session_ids) == expected
