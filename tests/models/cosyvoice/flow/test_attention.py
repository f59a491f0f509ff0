"""Block-wise attention over a memory equals attention over everything under a mask."""

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from vivavoce.models.cosyvoice.flow.attention import attend, read_history, write_chunk  # noqa: E402
from vivavoce.models.cosyvoice.flow.attention_plan import make_plan  # noqa: E402
from vivavoce.models.cosyvoice.flow.policy import CacheForm  # noqa: E402

BLOCK, HEADS, WIDTH = 4, 2, 6


def attend_under_mask(q: torch.Tensor, kv: torch.Tensor, window: int | None = None) -> torch.Tensor:
    """Attention over all frames at once, under a mask built frame by frame."""
    length = q.shape[1]
    frame = torch.arange(length)
    end = (frame // BLOCK + 1) * BLOCK
    seen = frame[None] < end[:, None]
    if window is not None:
        # The last block may be short; its window counts back from its actual end.
        seen &= frame[None] >= torch.minimum(end, torch.tensor(length))[:, None] - window
    split = [x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, kv[:, 0], kv[:, 1])]
    out = torch.nn.functional.scaled_dot_product_attention(*split, attn_mask=seen)
    return out.transpose(1, 2).flatten(2)


def attend_in_chunks(
    q: torch.Tensor, kv: torch.Tensor, edges: tuple[int, ...], capacity: int
) -> torch.Tensor:
    cache = torch.full((len(q), 2, capacity, WIDTH), float("nan"))
    out, begin = [], 0
    for end in (*edges, q.shape[1]):
        plan = make_plan([begin] * len(q), end - begin, block=BLOCK, capacity=capacity)
        out.append(attend(q[:, begin:end], kv[:, :, begin:end], cache, plan, HEADS))
        begin = end
    return torch.cat(out, 1)


def random_inputs(rows: int, length: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, length, WIDTH, generator=generator),
        torch.randn(rows, 2, length, WIDTH, generator=generator),
    )


@pytest.mark.parametrize("edges", [(), (4,), (8,), (4, 8, 12), (12, 16)])
@pytest.mark.parametrize("window", [None, 4, 8, 12])
def test_any_split_equals_attention_under_the_mask(edges: tuple[int, ...], window: int | None) -> None:
    q, kv = random_inputs(2, 18)
    assert torch.allclose(
        attend_in_chunks(q, kv, edges, window or 18), attend_under_mask(q, kv, window), atol=1e-6
    )


def test_rows_at_different_frames_equal_rows_alone() -> None:
    cache = torch.full((2, 2, 20, WIDTH), float("nan"))
    q, kv = random_inputs(2, 16)
    earlier = make_plan([0], 8, block=BLOCK, capacity=20)
    attend(q[1:, :8], kv[1:, :, :8], cache[1:], earlier, HEADS)
    plan = make_plan([0, 8], 8, block=BLOCK, capacity=20)
    new_q = torch.cat([q[:1, :8], q[1:, 8:]])
    new_kv = torch.cat([kv[:1, :, :8], kv[1:, :, 8:]])
    both = attend(new_q, new_kv, cache, plan, HEADS)
    assert torch.allclose(both[:1], attend_under_mask(q[:1, :8], kv[:1, :, :8]), atol=1e-6)
    assert torch.allclose(both[1:], attend_under_mask(q[1:], kv[1:])[:, 8:], atol=1e-6)


def test_frames_after_the_end_of_a_row_are_not_visible() -> None:
    q, kv = random_inputs(2, 7)
    plan = make_plan([0, 0], 7, block=BLOCK, capacity=8, valid=(7, 5))
    both = attend(q, kv, torch.full((2, 2, 8, WIDTH), float("nan")), plan, HEADS)
    assert torch.allclose(both[1:, :5], attend_under_mask(q[1:, :5], kv[1:, :, :5]), atol=1e-6)
    assert plan.frame_mask is not None
    assert plan.frame_mask[..., 0].sum(1).tolist() == [7, 5]


def test_cache_inputs_are_projected_again() -> None:
    matrix = torch.randn(2 * WIDTH, 3, generator=torch.Generator().manual_seed(1))
    inputs = torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(2))

    def project(x: torch.Tensor, _positions: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, matrix).unflatten(-1, (2, -1)).transpose(1, 2)

    q, _ = random_inputs(1, 12)
    kv = project(inputs, torch.empty(0))
    cache, out = torch.zeros(1, 1, 12, 3), []
    for begin in (0, 4, 8):
        plan = make_plan([begin], 4, block=BLOCK, capacity=12)
        working = read_history(cache, plan, CacheForm.INPUTS, project, 4)
        out.append(attend(q[:, begin : begin + 4], kv[:, :, begin : begin + 4], working, plan, HEADS))
        write_chunk(cache, inputs[:, None, begin : begin + 4], plan)
    assert torch.allclose(torch.cat(out, 1), attend_under_mask(q, kv), atol=1e-6)
