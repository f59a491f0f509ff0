"""Tests of fault isolation: failing calls are repeated for fewer rows, and work on one session never is."""

import weakref
from collections.abc import Collection, Mapping

from vivavoce.tts_engine.voice_kit.fault_isolation import FaultIsolation

OPENED_ORDER = {0: 10, 1: 11, 2: 12}
INPUTS = {0: "a", 1: "b", 2: "c"}


class Calls:
    """A device call that records its rows, and raises for a row in ``bad`` or more than ``max_rows`` rows."""

    def __init__(self, bad: Collection[int] = (), max_rows: int = 3) -> None:
        self.bad, self.max_rows = set(bad), max_rows
        self.rows: list[list[int]] = []

    def __call__(self, inputs: Mapping[int, str]) -> dict[int, str]:
        self.rows.append([*inputs])
        if len(inputs) > self.max_rows:
            raise RuntimeError("CUDA out of memory")
        if self.bad & set(inputs):
            raise ValueError("bad input")
        return {row: value.upper() for row, value in inputs.items()}


def test_a_call_that_succeeds_is_made_once() -> None:
    isolation, call = FaultIsolation(OPENED_ORDER, free_memory=lambda row: None), Calls()
    assert isolation.run_batch(INPUTS, call) == {0: "A", 1: "B", 2: "C"}
    assert call.rows == [[0, 1, 2]]
    assert (isolation.failed, isolation.out_of_memory) == ({}, False)


def test_after_an_error_every_row_runs_alone_and_the_bad_one_fails() -> None:
    freed: list[int] = []
    isolation, call = FaultIsolation(OPENED_ORDER, freed.append), Calls(bad={1})
    assert isolation.run_batch(INPUTS, call) == {0: "A", 2: "C"}
    assert call.rows == [[0, 1, 2], [0], [1], [2]]
    assert [str(error) for error in isolation.failed.values()] == ["bad input"]
    assert (freed, isolation.out_of_memory) == ([], False)


def test_out_of_memory_ends_the_newest_row_and_the_others_run_together() -> None:
    freed: list[int] = []
    isolation, call = FaultIsolation({0: 12, 1: 11, 2: 10}, freed.append), Calls(max_rows=2)
    assert isolation.run_batch(INPUTS, call) == {1: "B", 2: "C"}
    assert call.rows == [[0, 1, 2], [1, 2]]
    assert (freed, [*isolation.failed], isolation.out_of_memory) == ([0], [0], True)


def test_rows_that_failed_take_no_part_in_later_calls() -> None:
    isolation = FaultIsolation(OPENED_ORDER, free_memory=lambda row: None)
    isolation.run_batch(INPUTS, Calls(bad={1}))
    call = Calls()
    assert isolation.run_batch(INPUTS, call) == {0: "A", 2: "C"}
    assert isolation.run_each(INPUTS, lambda row, value: value) == {0: "a", 2: "c"}
    assert isolation.run_batch({1: "b"}, call) == {}
    assert call.rows == [[0, 2]]


def test_work_on_one_session_is_done_once_and_its_failure_ends_that_session_only() -> None:
    isolation, done = FaultIsolation(OPENED_ORDER, free_memory=lambda row: None), []

    def work(row: int, value: str) -> str:
        done.append(row)
        if row == 1:
            raise ValueError("bad session")
        return value

    assert isolation.run_each(INPUTS, work) == {0: "a", 2: "c"}
    assert done == [0, 1, 2]
    assert [*isolation.failed] == [1]


def test_out_of_memory_in_one_session_frees_its_memory() -> None:
    freed: list[int] = []
    isolation = FaultIsolation(OPENED_ORDER, freed.append)

    def work(row: int, value: str) -> None:
        raise MemoryError(f"out of memory: row {row}")

    assert isolation.run_each({0: "a"}, work) == {}
    assert (freed, isolation.out_of_memory) == ([0], True)


def test_rows_are_batched_by_key() -> None:
    isolation, call = FaultIsolation(OPENED_ORDER, free_memory=lambda row: None), Calls()
    assert isolation.run_batches({0: "a", 1: "bb", 2: "c"}, len, call) == {0: "A", 1: "BB", 2: "C"}
    assert call.rows == [[0, 2], [1]]


def test_a_kept_error_does_not_keep_the_tensors_of_its_frames() -> None:
    class Memory:
        pass

    freed: list[str] = []

    def call(inputs: object) -> dict[int, None]:
        memory = Memory()
        weakref.finalize(memory, freed.append, "memory")
        raise ValueError("bad input")

    isolation = FaultIsolation({1: 1}, free_memory=lambda row: None)
    assert isolation.run_batch({1: None}, call) == {}
    assert str(isolation.failed[1]) == "bad input"
    assert freed == ["memory"]
