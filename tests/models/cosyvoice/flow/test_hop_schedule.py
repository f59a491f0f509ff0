"""Chunks of an utterance: hops that double, and every id rendered once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.models.cosyvoice.config import BLOCK_IDS, LOOKAHEAD_IDS, CosyVoiceVersion
from vivavoce.models.cosyvoice.flow.hop_schedule import HopSchedule, SpeechIdChunk, prompt_tail_ids


@pytest.mark.parametrize(("version", "needed"), [(CosyVoiceVersion.V2, 17), (CosyVoiceVersion.V3, 8)])
def test_the_tail_leaves_as_many_ids_as_the_first_sound_needs(version: CosyVoiceVersion, needed: int) -> None:
    assert BLOCK_IDS - prompt_tail_ids(version, 1.0) + LOOKAHEAD_IDS == needed
    assert prompt_tail_ids(version, 0.5) == prompt_tail_ids(version, 1.0)
    assert prompt_tail_ids(version, 1.1) == LOOKAHEAD_IDS  # what the recording's last block needs


def test_hops_double_after_the_second_up_to_the_maximum() -> None:
    schedule = HopSchedule()
    hops = [chunk.stop - chunk.start for _ in range(5) if (chunk := schedule.next(1000, ended=False))]
    assert hops == [25, 25, 50, 100, 100]


def test_a_chunk_waits_for_its_lookahead() -> None:
    schedule = HopSchedule()
    assert schedule.next(27, ended=False) is None
    assert schedule.next(28, ended=False) == SpeechIdChunk(0, 25, 28, final=False)


def test_the_first_chunk_also_fills_the_last_block_of_the_prompt() -> None:
    assert HopSchedule(prompt_ids=37).next(1000, ended=False) == SpeechIdChunk(0, 38, 41, final=False)
    assert HopSchedule(prompt_ids=50).next(1000, ended=False) == SpeechIdChunk(0, 25, 28, final=False)


def test_the_last_chunk_has_all_remaining_ids_even_none() -> None:
    schedule = HopSchedule()
    assert schedule.next(7, ended=True) == SpeechIdChunk(0, 7, 7, final=True)
    assert schedule.next(7, ended=True) is None
    assert HopSchedule().next(0, ended=True) == SpeechIdChunk(0, 0, 0, final=True)


@given(st.integers(0, 700), st.integers(0, 100), st.lists(st.integers(0, 90), max_size=20))
def test_every_id_is_rendered_once_for_any_order_of_arrival(
    total: int, prompt: int, arrivals: list[int]
) -> None:
    schedule = HopSchedule(prompt)
    chunks: list[SpeechIdChunk] = []
    available = 0
    for more in [*arrivals, total]:
        available = min(total, available + more)
        while (chunk := schedule.next(available, ended=False)) is not None:
            chunks.append(chunk)
    while (chunk := schedule.next(total, ended=True)) is not None:
        chunks.append(chunk)
    assert [chunk.start for chunk in chunks[1:]] == [chunk.stop for chunk in chunks[:-1]]
    assert (chunks[0].start, chunks[-1].stop) == (0, total)
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    at_once = HopSchedule(prompt)
    assert chunks == [at_once.next(total, ended=True) for _ in chunks]
