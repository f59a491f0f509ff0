"""A voice made of a client's recording in the background, for as long as a connection needs it."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any


class TemporaryVoice:
    """A voice whose creation starts with the object and which is removed by ``aclose``."""

    def __init__(self, voice_context: AbstractAsyncContextManager[str]) -> None:
        """Start to enter voice_context: its value is the engine's voice id, its exit removes the voice."""
        self._exit_stack = AsyncExitStack()
        self._creation_task = asyncio.create_task(self._exit_stack.enter_async_context(voice_context))

    @property
    def has_failed(self) -> bool:
        """Whether the voice could not be made."""
        creation_task = self._creation_task
        return creation_task.done() and (creation_task.cancelled() or creation_task.exception() is not None)

    async def id(self, abandoned: "asyncio.Future[None]") -> str | None:
        """Wait for the engine's voice id; None if ``abandoned`` is done first.

        Raises the error of the voice's creation.
        """
        awaited: set[asyncio.Future[Any]] = {self._creation_task, abandoned}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        return None if abandoned.done() else self._creation_task.result()

    async def aclose(self) -> None:
        """Remove the voice, or stop making it."""
        self._creation_task.cancel()
        await asyncio.gather(self._creation_task, return_exceptions=True)
        await self._exit_stack.aclose()
