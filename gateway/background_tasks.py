"""Tasks that run as long as the server does."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack


def start_background_task(
    coroutine: Coroutine[None, None, None], name: str, resources: AsyncExitStack
) -> "asyncio.Task[None]":
    """Start a task that ``resources`` cancels and awaits."""
    task = asyncio.create_task(coroutine, name=name)
    resources.push_async_callback(_cancel, task)
    return task


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
