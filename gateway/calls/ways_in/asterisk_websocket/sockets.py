"""The WebSockets of chan_websocket: opened by Asterisk for a call that waits, or opened here."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from .....adapters.media_streams.asterisk import SUBPROTOCOL
from .....adapters.media_streams.connection import MAX_MESSAGE_BYTES
from ...kits.external_media import ExternalMediaFailed
from ...kits.message_socket import ClientMessageSocket, Message, MessageSocket

ASTERISK: Final = "asterisk"  # kind of the calls
_CONNECT_TIMEOUT_S: Final = 5.0


class AsteriskUnreachable(ExternalMediaFailed):
    """Asterisk did not accept the WebSocket."""


async def connect_to_asterisk(url: str) -> MessageSocket:
    """Connect to a channel that waits for us (``WebSocket/INCOMING``); raises AsteriskUnreachable.

    url: ``ws://host:8088/media/ID``, with the channel's variable ``MEDIA_WEBSOCKET_CONNECTION_ID``.
    """
    try:
        socket = await connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=MAX_MESSAGE_BYTES,
            compression=None,
            proxy=None,
            open_timeout=_CONNECT_TIMEOUT_S,
        )
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
        raise AsteriskUnreachable(f"cannot connect to {url}: {error}") from None
    return ClientMessageSocket(socket)


class AwaitedSockets:
    """WebSockets that calls wait for, by the ``call`` in their URLs."""

    def __init__(self) -> None:
        self._awaited: dict[str, asyncio.Future[MessageSocket]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._awaited and not self._awaited[key].done()

    @asynccontextmanager
    async def awaiting(self, key: str) -> AsyncIterator["asyncio.Future[MessageSocket]"]:
        """Let the first WebSocket with that key be the result, which is closed if the context raises."""
        awaited = self._awaited[key] = asyncio.get_running_loop().create_future()
        is_taken = False
        try:
            yield awaited
            is_taken = True
        finally:
            del self._awaited[key]
            if not awaited.cancel() and not awaited.cancelled() and not is_taken:
                await awaited.result().close()

    async def deliver(self, key: str, socket: MessageSocket) -> None:
        """Hand over a WebSocket, and wait until it is closed, as the task of its request must."""
        awaited = self._awaited.get(key)
        if awaited is None or awaited.done():
            await socket.close()
            return
        delivered = _DeliveredSocket(socket)
        awaited.set_result(delivered)
        await delivered.closed.wait()


class _DeliveredSocket:
    """A WebSocket that says when it is closed."""

    def __init__(self, socket: MessageSocket) -> None:
        self.closed = asyncio.Event()
        self._socket = socket

    async def receive(self) -> Message | None:
        return await self._socket.receive()

    def deliver_to(self, take: Callable[[Message], None]) -> None:
        self._socket.deliver_to(take)

    async def send(self, *messages: Message) -> None:
        await self._socket.send(*messages)

    async def close(self) -> None:
        try:
            await self._socket.close()
        finally:
            self.closed.set()
