"""Time limits for what another process does, which a stop of this machine does not use up."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from ..background_tasks import cancel_and_wait

T = TypeVar("T")

_MAX_TIMER_DELAY_S: Final = 0.02  # of a loop that does not stand still


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
