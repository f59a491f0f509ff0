"""For tests on an event loop: a coroutine as a test, and waiting until something is so."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a coroutine as a test."""

    def run() -> None:
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def until(met: Callable[[], object], within_s: float = 30.0) -> None:
    """Look again and again; TimeoutError where it is not so in time."""
    async with asyncio.timeout(within_s):
        while not met():
            await asyncio.sleep(0.005)
