"""Start and end tasks, and wait for them."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any


def start_background_task(
    coroutine: Coroutine[None, None, None], name: str, resources: AsyncExitStack
) -> "asyncio.Task[None]":
    """Start a task that ``resources`` cancels and awaits."""
    task = asyncio.create_task(coroutine, name=name)
    resources.push_async_callback(cancel_and_wait, task)
    return task


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended.

    Unlike awaiting a cancelled task, it raises CancelledError only if its caller is cancelled.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, at most ``timeout_s`` seconds."""
    if timeout_s <= 0:
        return
    # Not wait_for: Python 3.11's swallows a cancellation that comes with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
