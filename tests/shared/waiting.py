"""For tests of what happens by itself: waiting until it has."""

import asyncio
from collections.abc import Callable


async def until(met: Callable[[], object], within_s: float = 30.0) -> None:
    """Look again and again; TimeoutError where it is not so in time."""
    async with asyncio.timeout(within_s):
        while not met():
            await asyncio.sleep(0.005)
