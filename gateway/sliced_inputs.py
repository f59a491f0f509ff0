"""Runs the sliced work of ``adapters.ssml`` on the event loop, one slice between what else the loop does."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..adapters.ssml.markup import SlicedWork
from ..tts_engine.errors import BadText, VivavoceError

T = TypeVar("T")


async def run_in_slices(work: SlicedWork[T]) -> T:
    """Run work; the first slice without a break. Returns its result, or raises what it raises."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


class SlicedInputs:
    """Inputs that are taken in their order: the first slice at once if none waits, the rest later.

    Belongs to the event loop that makes it.

    Args:
        on_error: gets what an input raises after its first slice; the inputs behind it are taken.
        max_characters: of the texts that wait behind the input that is being taken.

    Attributes:
        waiting_characters: of all inputs that are not taken to their end; one without text counts as 1.
    """

    def __init__(self, on_error: Callable[[VivavoceError], None], max_characters: int) -> None:
        self.waiting_characters = 0
        self._on_error = on_error
        self._max_characters = max_characters
        self._waiting: deque[tuple[SlicedWork[None], int]] = deque()

    def add(self, work: SlicedWork[None], characters: int = 0) -> None:
        """Take an input; raises what its first slice raises if it runs at once.

        characters: of its text. Raises BadText if too many wait.
        """
        characters += 1
        if not self._waiting:
            with suppress(StopIteration):
                next(work)
                self._wait(work, characters)
                self._run_soon()
            return
        behind = self.waiting_characters - self._waiting[0][1]
        if behind + characters > self._max_characters:
            raise BadText(f"more than {self._max_characters} characters wait behind a long document")
        self._wait(work, characters)

    def cancel(self) -> None:
        """Take none of the inputs that wait, and refer to no other object."""
        self._on_error = _ignore
        self._waiting.clear()
        self.waiting_characters = 0

    def _wait(self, work: SlicedWork[None], characters: int) -> None:
        self._waiting.append((work, characters))
        self.waiting_characters += characters

    def _run_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._run_slice)

    def _run_slice(self) -> None:
        if not self._waiting:  # cancelled meanwhile
            return
        work, characters = self._waiting[0]
        try:
            next(work)
        except StopIteration:
            self._forget(work, characters)
        except VivavoceError as error:
            self._forget(work, characters)
            self._on_error(error)
        if self._waiting:
            self._run_soon()

    def _forget(self, work: SlicedWork[None], characters: int) -> None:
        if self._waiting and self._waiting[0][0] is work:  # not cancelled by the slice
            self._waiting.popleft()
            self.waiting_characters -= characters


def _ignore(_error: VivavoceError) -> None:
    return None
