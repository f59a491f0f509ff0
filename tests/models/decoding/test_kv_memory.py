"""Memory of a language model: places of a step's columns, and pages that are given back."""

import sys

import pytest

pytest.importorskip("torch", reason="the networks need torch: make test EXTRAS=dev,stt,cosyvoice")

import torch

from vivavoce.models.decoding.kv_memory import (
    SpeechLmState,
    empty_state,
    lazy_zeros,
    place_columns,
    plan_kv_step,
)

LAYERS, HEADS, WIDTH = 2, 3, 64


def test_columns_are_placed_behind_the_lengths_and_padding_in_the_scratch_position() -> None:
    state = empty_state(3, 10, (LAYERS, HEADS, WIDTH), torch.zeros(0))
    state.lengths[:] = torch.tensor([4, 0, 9])
    placed = place_columns(state, torch.zeros(3, 2, 8), torch.tensor([2, 0, 1]))
    assert placed.positions.tolist() == [[4, 5], [0, 1], [9, 10]]
    assert placed.write_positions.tolist() == [[4, 5], [10, 10], [9, 10]]
    assert placed.lengths.tolist() == [6, 0, 10]
    assert placed.plan().attended_positions == 10
    with pytest.raises(ValueError, match="would hold 11 ids; its memory was made for 10"):
        place_columns(state, torch.zeros(3, 2, 8), None)


def test_a_step_writes_its_columns_and_sees_them_and_the_earlier_ones() -> None:
    state = empty_state(1, 6, (1, HEADS, WIDTH), torch.zeros(0))
    new = torch.randn(1, 2, 2, HEADS, WIDTH)
    plan = plan_kv_step(torch.tensor([[2, 3]]), torch.tensor([[2, 3]]), 5, queries_per_key=2)
    keys, values = plan.update(state.kv[:, 0], new)
    assert torch.equal(keys[0, :, 2:4], new[0, :, 0].transpose(0, 1))
    assert torch.equal(values[0, :, 2:4], new[0, :, 1].transpose(0, 1))
    assert plan.visible is not None
    rows = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
    assert plan.visible[0, 0].int().tolist() == rows * 2


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back under Linux")
@pytest.mark.parametrize("rows_are_adjacent", [True, False])
def test_a_cleared_row_gives_back_the_pages_of_a_long_sequence_only(rows_are_adjacent: bool) -> None:
    if rows_are_adjacent:
        kv = empty_state(3, 999, (LAYERS, HEADS, WIDTH), torch.zeros(0)).kv
    else:
        kv = lazy_zeros((LAYERS, 2, 3, HEADS, 1000, WIDTH), torch.zeros(0)).permute(2, 0, 1, 3, 4, 5)
    state = SpeechLmState(kv, torch.tensor([100, 900, 900]))
    state.kv.fill_(1)
    for row in (0, 1):
        state.clear_row(row)
    assert state.lengths.tolist() == [0, 0, 900]
    assert bool((state.kv[[0, 2]] == 1).all())
    # A page has 16 positions of a head.
    assert bool((state.kv[1, :, :, :, :256] == 1).all())
    assert bool((state.kv[1, :, :, :, 272:980] == 0).all())
