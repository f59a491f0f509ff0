"""A streamed HTTP body with back-pressure, and work that ends when its client disconnects.

The headers are sent with the first piece, so an error before it can still be a response of its own. Each
piece waits until the client has read the ones before, and so does the work that makes the next.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ..background_tasks import cancel_and_wait
from .backpressure import BackpressureSender

T = TypeVar("T")

SEND_TIMEOUT_S: Final = 60.0  # a player may pause that long; the engine has stopped rendering long before


class StreamedBody:
    """The body of a response with status 200, written in pieces."""

    def __init__(self, scope: Scope, send: Send, headers: Mapping[str, str]) -> None:
        """Make a body; ``headers`` are read when the first piece is written."""
        self.started = False  # whether the headers have been sent
        self.bytes_per_s = 0  # of the audio; limits what may be unread. Set before the first piece.
        self._sender = BackpressureSender.from_scope(scope)
        self._send = send
        self._headers = headers

    async def write(self, data: bytes) -> None:
        """Send a piece; raises TimeoutError if the client takes nothing."""
        await self._sender.send(data, self.bytes_per_s, self._write)

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._start()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _start(self) -> None:
        if self.started:
            return
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def end(self) -> None:
        """Complete the body, which is empty if nothing was written."""
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._start()
            await self._send({"type": "http.response.body", "body": b""})


async def cancel_on_disconnect(receive: Receive, work: Coroutine[None, None, T]) -> T:
    """Return the result of ``work``; if the client disconnects before, cancel it, raise ClientDisconnect."""
    work_task = asyncio.create_task(work)
    disconnect_task = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise ClientDisconnect
        return work_task.result()
    finally:
        await cancel_and_wait(work_task, disconnect_task)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
