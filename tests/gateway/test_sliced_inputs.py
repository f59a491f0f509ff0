"""Inputs of which the first slice is taken at once: their order, faults, bounds and end."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from vivavoce.adapters.ssml.markup import SlicedWork
from vivavoce.gateway.sliced_inputs import SlicedInputs, run_in_slices
from vivavoce.tts_engine.errors import BadText, VivavoceError


class Taken:
    """Takes inputs and notes their slices and faults."""

    def __init__(self, max_characters: int = 100) -> None:
        self.slices: list[str] = []
        self.faults: list[VivavoceError] = []
        self.inputs = SlicedInputs(self.faults.append, max_characters)

    def add(self, name: str, slices: int, *, fault: VivavoceError | None = None, characters: int = 0) -> None:
        def work() -> SlicedWork[None]:
            for number in range(slices):
                if number:
                    yield
                self.slices.append(f"{name}{number}")
            if fault is not None:
                raise fault

        self.inputs.add(work(), characters)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_short_input_is_taken_at_once_and_raises_its_fault() -> None:
    async def test() -> None:
        taken = Taken()
        taken.add("a", 1)
        with pytest.raises(BadText):
            taken.add("b", 1, fault=BadText("no"))
        assert (taken.slices, taken.inputs.waiting_characters) == (["a0", "b0"], 0)

    run(test())


def test_inputs_behind_a_long_one_keep_their_order() -> None:
    async def test() -> None:
        taken = Taken()
        taken.add("a", 3)
        taken.add("b", 1)
        taken.add("c", 2)
        assert taken.slices == ["a0"]
        await settle()
        assert taken.slices == ["a0", "a1", "a2", "b0", "c0", "c1"]
        taken.add("d", 1)
        assert taken.slices[-1] == "d0"

    run(test())


def test_other_callbacks_of_the_loop_run_between_two_slices() -> None:
    async def test() -> None:
        taken = Taken()
        taken.add("a", 4)
        for _ in range(3):
            await asyncio.sleep(0)
            taken.slices.append("other")
        assert taken.slices == ["a0", "a1", "other", "a2", "other", "a3", "other"]

    run(test())


def test_a_later_fault_is_reported_and_what_is_behind_it_is_taken() -> None:
    async def test() -> None:
        taken, fault = Taken(), BadText("no")
        taken.add("a", 2, fault=fault)
        taken.add("b", 1)
        await settle()
        assert (taken.faults, taken.slices) == ([fault], ["a0", "a1", "b0"])

    run(test())


def test_more_characters_than_may_wait_are_refused() -> None:
    async def test() -> None:
        taken = Taken(max_characters=10)
        taken.add("a", 2, characters=5_000)  # the first may be of any length
        taken.add("b", 1, characters=4)
        taken.add("c", 2, characters=4)
        with pytest.raises(BadText, match="more than 10 characters wait"):
            taken.add("d", 1)  # which counts as one
        await settle()
        taken.add("e", 1)
        assert taken.slices == ["a0", "a1", "b0", "c0", "c1", "e0"]

    run(test())


def test_cancelled_inputs_are_not_taken() -> None:
    async def test() -> None:
        taken = Taken()
        taken.add("a", 3)
        taken.add("b", 1)
        taken.inputs.cancel()
        await settle()
        assert (taken.slices, taken.inputs.waiting_characters) == (["a0"], 0)

    run(test())


def test_work_that_is_awaited_returns_its_result_and_begins_at_once() -> None:
    slices = []

    def work() -> SlicedWork[str]:
        slices.append(0)
        yield
        slices.append(1)
        return "done"

    async def test() -> None:
        assert await run_in_slices(work()) == "done"
        assert slices == [0, 1]

    run(test())
