"""Plans of block-wise attention: ring slots, and blocks that share one attention."""

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from vivavoce.models.cosyvoice.flow.attention_plan import make_plan  # noqa: E402

BLOCK = 4


def test_a_plan_states_the_frame_in_every_slot_of_a_ring() -> None:
    (third,) = make_plan([8], 4, block=BLOCK, capacity=8).blocks[0].groups
    (last,) = make_plan([12], 4, block=BLOCK, capacity=8).blocks[0].groups
    assert third.positions.tolist() == [8, 9, 10, 11, 4, 5, 6, 7]
    assert last.positions.tolist() == [8, 9, 10, 11, 12, 13, 14, 15]
    assert (third.first_slot, last.first_slot) == (0, 4)


@pytest.mark.parametrize(("begin", "lengths"), [(0, [16, 4]), (4, [16, 4]), (8, [4, 4, 4, 4, 4])])
def test_blocks_share_an_attention_until_the_ring_wraps(begin: int, lengths: list[int]) -> None:
    plan = make_plan([begin], 20, block=BLOCK, capacity=24)
    assert [block.stop - block.start for block in plan.blocks] == lengths
    masks = [group.mask for block in plan.blocks for group in block.groups]
    assert [mask is not None for mask in masks] == [length > BLOCK for length in lengths]
