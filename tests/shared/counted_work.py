"""Work counted in functions that are called, which is the same on every machine."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the functions that this thread calls, built-in ones too; the one number is that so far."""
    calls = [0]

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        calls[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@contextmanager
def counted_callbacks() -> Iterator[list[int]]:
    """Count the functions that each callback of an event loop calls."""
    calls: list[int] = []
    run = asyncio.Handle._run

    def run_counted(handle: asyncio.Handle) -> None:
        with counted_calls() as called:
            run(handle)
        calls.append(called[0])

    asyncio.Handle._run = run_counted  # type: ignore[method-assign, assignment]
    try:
        yield calls
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
