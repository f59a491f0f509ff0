"""Start and end tasks, and wait for them."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")
_MAX_TIMER_DELAY_S: Final = 0.02  # of a loop that does not stand still


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


async def finish_within(waiting: Coroutine[Any, Any, T], limit_s: float) -> T:
    """Await what a peer does, for at most ``limit_s`` in which this loop does not stand still.

    When the machine or a long callback stops the loop, the peer may have answered long ago: then the loop
    gets as long again to receive it. Raises TimeoutError.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(waiting)
    try:
        remaining_s = limit_s
        while remaining_s > _MAX_TIMER_DELAY_S:
            deadline = loop.time() + remaining_s
            await asyncio.wait({task}, timeout=remaining_s)
            if task.done():
                return task.result()
            remaining_s = loop.time() - deadline
        raise TimeoutError
    finally:
        if not task.done():
            await cancel_and_wait(task)
