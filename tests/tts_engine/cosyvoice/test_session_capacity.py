"""Sessions that fit into memory, reckoned by hand."""

import pytest

from vivavoce.tts_engine.cosyvoice.session_capacity import max_sessions_in_memory


@pytest.mark.parametrize(
    ("memory_ids", "kept", "held", "newcomer", "fit"),
    [
        (1000, 0, (), 250, 4),
        (1000, 100, (), 250, 3),
        (1000, 100, (300, 250), 250, 3),
        (1000, 100, (300, 400), 250, 2),
        (1000, 100, (300, 400, 250), 250, 2),  # who is there stays; nobody comes before two are there
        (100, 0, (), 250, 1),
        (1000, 0, (5000,), 250, 1),
    ],
)
def test_each_is_reckoned_with_what_it_holds_and_one_may_always_be(
    memory_ids: int, kept: int, held: tuple[int, ...], newcomer: int, fit: int
) -> None:
    assert max_sessions_in_memory(memory_ids, kept, held, newcomer) == fit
