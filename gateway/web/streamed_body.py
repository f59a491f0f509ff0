"""An HTTP answer in pieces that ends when its reader does: what a framework's streaming answer leaves out.

The headers go with the first piece, so what fails before it is an answer of its own. A piece waits until its
reader is near, and so does the work that makes the next; one that leaves, or takes nothing for long, ends it.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from .backpressure import BackpressureSender

T = TypeVar("T")

SEND_TIMEOUT_S = 60.0  # a player may pause for so long; the voice has stopped long before


class StreamedBody:
    """A response's body in pieces; status 200 and ``headers`` go with the first.

    bytes_per_s: of the speech in it, which says how much may lie unread; set it when it is known.
    """

    def __init__(self, scope: Scope, send: Send, headers: Mapping[str, str]) -> None:
        self.started = False
        self.bytes_per_s = 0
        self._sender = BackpressureSender.from_scope(scope)
        self._send = send
        self._headers = headers

    async def write(self, data: bytes) -> None:
        """Send a piece; raises TimeoutError where the client takes nothing."""
        await self._sender.send(data, self.bytes_per_s, self._write)

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            if not self.started:
                self.started = True
                headers = [
                    (name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()
                ]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """Send the end."""
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._send({"type": "http.response.body", "body": b""})


async def cancel_on_disconnect(receive: Receive, work: Coroutine[None, None, T]) -> T:
    """Do the work, or drop it and raise ClientDisconnect as soon as the client is gone."""
    work_task = asyncio.create_task(work)
    disconnect_task = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise ClientDisconnect
        return work_task.result()
    finally:
        work_task.cancel()
        disconnect_task.cancel()
        await asyncio.wait({work_task, disconnect_task})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
