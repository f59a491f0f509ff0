"""A voice that lasts only as long as somebody needs it, made in the background meanwhile."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any


class TemporaryVoice:
    """Being made from now on, and lent until ``aclose``. lending: its block is the voice's life."""

    def __init__(self, voice_context: AbstractAsyncContextManager[str]) -> None:
        self._exit_stack = AsyncExitStack()
        self._creation_task = asyncio.create_task(self._exit_stack.enter_async_context(voice_context))

    @property
    def has_failed(self) -> bool:
        """Whether it could not be made."""
        creation_task = self._creation_task
        return creation_task.done() and (creation_task.cancelled() or creation_task.exception() is not None)

    async def id(self, abandoned: "asyncio.Future[None]") -> str | None:
        """The engine's id of it once it is made, None once that is given up; raises why it is not made."""
        awaited: set[asyncio.Future[Any]] = {self._creation_task, abandoned}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        return None if abandoned.done() else self._creation_task.result()

    async def aclose(self) -> None:
        """Drop it, or what there is of it."""
        self._creation_task.cancel()
        await asyncio.gather(self._creation_task, return_exceptions=True)
        await self._exit_stack.aclose()
