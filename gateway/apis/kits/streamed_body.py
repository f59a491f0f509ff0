"""A streamed HTTP body with back-pressure, and work that ends when its client disconnects.

The headers are sent with the first piece, so an error before it can still be a response of its own. Each
piece waits until the client has read the ones before, and so does the work that makes the next.

A client that reads nothing for a minute is a player that pauses. The work then waits no longer and is soon
done, so that nothing of the engine is taken by it; the pieces wait in memory until the player goes on.

piece  ->  client                                       as fast as it reads
piece  ->  the backlog  --hours later, in order-->  client    while it pauses
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ...background_tasks import cancel_and_wait
from .backpressure import BackpressureSender

T = TypeVar("T")

SEND_TIMEOUT_S: Final = 60.0  # after which a client that takes nothing pauses
MAX_PAUSE_S: Final = 4 * 3_600.0  # a longer one is a player that somebody forgot
MAX_BACKLOG_BYTES: Final = 32 * 2**20  # of a response: 11 minutes of PCM at 24 kHz, an hour of MP3


class StreamedBody:
    """The body of a response with status 200, written in pieces. Close it."""

    def __init__(self, scope: Scope, send: Send, headers: Mapping[str, str]) -> None:
        """Make a body; ``headers`` are read when the first piece is written."""
        self.started = False  # whether the headers have been sent
        self.bytes_per_s = 0  # of the audio; limits what may be unread. Set before the first piece.
        self._sender = BackpressureSender.from_scope(scope)
        self._send = send
        self._headers = headers
        self._written = 0  # bytes that the server took
        self._backlog: deque[bytes] = deque()
        self._pause: asyncio.Task[None] | None = None  # sends the backlog

    async def write(self, data: bytes) -> None:
        """Send a piece, or keep it while the client pauses; raises TimeoutError if too much is kept."""
        if self._pause is not None and self._pause.done():
            self._pause.result()  # raises what ended it
            self._pause = None
        if self._pause is not None:
            self._keep(data)
            return
        before = self._written
        try:
            await self._sender.send(data, self.bytes_per_s, self._write)
        except TimeoutError:
            self._keep(data[self._written - before :])
            self._pause = asyncio.create_task(self._send_backlog())

    async def end(self) -> None:
        """Complete the body, which is empty if nothing was written; raises TimeoutError for a long pause."""
        if self._pause is not None:
            await self._pause
        async with asyncio.timeout(MAX_PAUSE_S):
            await self._start()
            await self._send({"type": "http.response.body", "body": b""})

    async def aclose(self) -> None:
        """Send no more."""
        if self._pause is not None:
            await cancel_and_wait(self._pause)

    def _keep(self, data: bytes) -> None:
        if sum(map(len, self._backlog)) + len(data) > MAX_BACKLOG_BYTES:
            raise TimeoutError("the client pauses, and too much waits for it")
        self._backlog.append(data)

    async def _send_backlog(self) -> None:
        while self._backlog:
            async with asyncio.timeout(MAX_PAUSE_S):
                await self._send_piece(self._backlog[0])
            self._backlog.popleft()

    async def _write(self, data: bytes) -> None:
        # The server waits for the client before it takes a piece: one that timed out has not been sent.
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._send_piece(data)
        self._written += len(data)

    async def _send_piece(self, data: bytes) -> None:
        await self._start()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _start(self) -> None:
        if self.started:
            return
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self.started = True


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
