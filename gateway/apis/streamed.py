"""An HTTP answer in pieces that ends when its reader does: what a framework's streaming answer leaves out.

The headers go with the first piece, so what fails before it is an answer of its own. A piece waits until its
reader is near, and so does the work that makes the next; one that leaves, or takes nothing for long, ends it.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ..backpressure import Reader

T = TypeVar("T")

SEND_WITHIN_S = 60.0  # a player may pause for so long; the voice has stopped long before


class StreamedBody:
    """A response's body in pieces; status 200 and ``headers`` go with the first.

    bytes_per_s: of the speech in it, which says how much may lie unread; set it when it is known.
    """

    def __init__(self, scope: Scope, send: Send, headers: Mapping[str, str]) -> None:
        self.begun = False
        self.bytes_per_s = 0
        self._reader = Reader.of(scope)
        self._send = send
        self._headers = headers

    async def write(self, data: bytes) -> None:
        """Send a piece; raises TimeoutError where the client takes nothing."""
        await self._reader.send(data, self.bytes_per_s, self._write)

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(SEND_WITHIN_S):
            if not self.begun:
                self.begun = True
                headers = [
                    (name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()
                ]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """Send the end."""
        async with asyncio.timeout(SEND_WITHIN_S):
            await self._send({"type": "http.response.body", "body": b""})


async def while_connected(receive: Receive, work: Coroutine[None, None, T]) -> T:
    """Do the work, or drop it and raise ClientDisconnect as soon as the client is gone."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_until_gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait({working, leaving})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
