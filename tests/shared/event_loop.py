"""Helpers of asynchronous tests: a coroutine as a test, and waiting for a condition."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Decorator that runs a coroutine function as a test."""

    def run() -> None:
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def until(condition: Callable[[], object], within_s: float = 30.0, every_s: float = 0.005) -> None:
    """Wait until a condition is true. Raises TimeoutError after ``within_s`` seconds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(every_s)
