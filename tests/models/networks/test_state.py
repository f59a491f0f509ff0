"""States as trees: gather, scatter and join keep rows apart, and gathered rows are copies."""

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from shared.engine.session_states import scatter, size_bytes  # noqa: E402
from vivavoce.models.networks.state import gather, join_states, map_state, tensors  # noqa: E402


@dataclass(frozen=True, slots=True)
class Inner:
    kept: torch.Tensor


@dataclass(frozen=True, slots=True)
class Outer:
    frames: torch.Tensor
    parts: tuple[Inner, ...]


def state(*rows: float) -> Outer:
    values = torch.tensor(rows, dtype=torch.float32)
    return Outer(values, (Inner(values[:, None] * 10), Inner(values[:, None, None] * 100)))


def test_gather_copies_rows_in_the_given_order() -> None:
    taken = gather(state(1, 2, 3), [2, 0, 0])
    assert taken.frames.tolist() == [3, 1, 1]
    assert taken.parts[1].kept.flatten().tolist() == [300, 100, 100]


def test_a_gathered_row_is_a_copy() -> None:
    pool = state(1, 2)
    gather(pool, [0]).parts[0].kept.zero_()
    assert pool.parts[0].kept[0].item() == 10


def test_scatter_writes_the_given_rows_only() -> None:
    pool = state(1, 2, 3)
    scatter(pool, [2, 0], state(8, 9))
    assert pool.frames.tolist() == [9, 2, 8]
    assert pool.parts[0].kept.flatten().tolist() == [90, 20, 80]


def test_scatter_undoes_gather() -> None:
    pool, expected = state(1, 2, 3), state(1, 2, 3)
    scatter(pool, [1, 2], gather(pool, [1, 2]))
    assert all(torch.equal(a, b) for a, b in zip(tensors(pool), tensors(expected), strict=True))


def test_a_pool_made_in_inference_mode_can_be_written_to() -> None:
    with torch.inference_mode():
        pool = gather(state(1, 2), [0, 1])
    scatter(pool, [1], state(5))
    assert pool.frames.tolist() == [1, 5]


def test_join_concatenates_rows_in_order() -> None:
    assert join_states([state(1), state(2, 3)]).parts[0].kept.flatten().tolist() == [10, 20, 30]


def test_tensors_come_in_the_order_of_the_fields() -> None:
    assert [tensor.dim() for tensor in tensors(state(1))] == [1, 2, 3]


def test_the_size_counts_all_tensors() -> None:
    assert size_bytes(state(1, 2)) == 3 * 2 * 4


def test_a_tree_with_another_type_raises() -> None:
    with pytest.raises(TypeError, match="not dict"):
        map_state(torch.clone, {"kept": torch.zeros(1)})
    with pytest.raises(TypeError, match="not list"):
        size_bytes([torch.zeros(1)])
