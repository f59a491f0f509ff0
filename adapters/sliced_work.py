"""Work in slices of about a millisecond, between which others may use the thread.

The work is a generator that yields after each slice and returns the result. It does not know who runs it.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
SlicedWork = Generator[None, None, T]


def run_whole(work: SlicedWork[T]) -> T:
    """Run work without a break; return its result, or raise what it raises."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
