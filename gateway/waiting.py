"""Waiting for events."""

import asyncio
from contextlib import suppress


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until ``event`` is set, at most ``timeout_s``."""
    if timeout_s <= 0:
        return
    # Not wait_for: Python 3.11's swallows a cancellation that comes with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


async def wait_any(*events: asyncio.Event) -> None:
    """Wait until one of ``events`` is set."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
