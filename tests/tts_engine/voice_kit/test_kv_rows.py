"""Rows of a memory: prefixes, views of the rows of a step, and lengths that a step may change."""

from dataclasses import dataclass

import numpy as np

from vivavoce.tts_engine.voice_kit.kv_rows import KvRows


@dataclass(frozen=True)
class ArrayState:
    kv: np.ndarray
    lengths: np.ndarray

    def clear_row(self, row: int) -> None:
        self.lengths[row] = 0


def state(rows: int, positions: int, value: float = 0.0) -> ArrayState:
    return ArrayState(np.full((rows, 1, 2, 1, positions, 1), value), np.zeros(rows, np.int64))


def prefix(value: float) -> ArrayState:
    made = state(1, 3, value)
    made.lengths[0] = 2
    return made


def columns(rows: KvRows, row: int) -> list[float]:
    kv: list[float] = rows.state.kv[row, 0, 0, 0, :, 0].tolist()
    return kv


def test_a_prefix_is_copied_once_for_the_sentences_of_a_row() -> None:
    rows, one = KvRows(state(2, 4)), prefix(7)
    assert rows.begin(1, one) == 2
    assert columns(rows, 1) == [7, 7, 0, 0]
    rows.state.lengths[1] = 4
    one.kv[:] = 8  # a state does not change; only a copy would show it
    assert rows.begin(1, one) == rows.state.lengths[1] == 2
    assert columns(rows, 1) == [7, 7, 0, 0]
    rows.begin(1, prefix(9))
    assert columns(rows, 1) == [9, 9, 0, 0]
    assert columns(rows, 0) == [0, 0, 0, 0]


def test_a_cleared_row_has_no_prefix() -> None:
    rows, one = KvRows(state(1, 4)), prefix(7)
    rows.begin(0, one)
    rows.clear_row(0)
    assert rows.state.lengths[0] == 0
    rows.state.kv[:] = 0  # a step of other rows may write into an empty row
    rows.begin(0, one)
    assert columns(rows, 0) == [7, 7, 0, 0]


def test_a_step_changes_the_lengths_of_its_rows_only() -> None:
    rows = KvRows(state(5, 4))
    rows.state.lengths[:] = [1, 2, 3, 4, 5]
    span = rows.span({1, 3})
    assert span.lengths.tolist() == [2, 3, 4]
    after = ArrayState(span.kv, span.lengths + 10)
    rows.clear_row(2)  # by another thread, during the step
    rows.commit({1, 3}, after)
    assert rows.state.lengths.tolist() == [1, 12, 0, 14, 5]
    span.kv[0] = 6
    assert columns(rows, 1) == [6, 6, 6, 6]  # a view
