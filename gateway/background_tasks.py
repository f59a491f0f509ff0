"""Start and end tasks."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
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
