"""A voice that lasts only as long as somebody needs it, made in the background meanwhile."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any


class LentVoice:
    """Being made from now on, and lent until ``aclose``. lending: its block is the voice's life."""

    def __init__(self, lending: AbstractAsyncContextManager[str]) -> None:
        self._life = AsyncExitStack()
        self._making = asyncio.create_task(self._life.enter_async_context(lending))

    @property
    def has_failed(self) -> bool:
        """Whether it could not be made."""
        making = self._making
        return making.done() and (making.cancelled() or making.exception() is not None)

    async def id(self, given_up: "asyncio.Future[None]") -> str | None:
        """The engine's id of it once it is made, None once that is given up; raises why it is not made."""
        either: set[asyncio.Future[Any]] = {self._making, given_up}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return None if given_up.done() else self._making.result()

    async def aclose(self) -> None:
        """Drop it, or what there is of it."""
        self._making.cancel()
        await asyncio.gather(self._making, return_exceptions=True)
        await self._life.aclose()
