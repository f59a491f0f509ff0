"""The two kinds of WebSockets that carry a call, and the messages on their way to one.

Either the peer connects to the gateway's HTTP server, or the gateway connects to Asterisk's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from fastapi import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ....adapters.media_streams.events import MediaStreamProtocolError
from ...web.direct_websocket import DirectWebSocketProtocol
from ...web.websocket import CLOSE_NORMAL, close_socket

Message = str | bytes
_CLOSE_TIMEOUT_S: Final = 1.0
_FAULTS: Final = frozenset({1002, 1003, 1007, 1009})  # close codes of RFC 6455 section 7.4.1


class MessageSocket(Protocol):
    """An open WebSocket."""

    async def receive(self) -> Message | None:
        """Return the next message, None once the socket is closed.

        Raises MediaStreamProtocolError if it was closed for a fault, such as a message that is too long.
        """

    def deliver_to(self, take: Callable[[Message], None]) -> None:
        """Call ``take`` with each later message as it arrives, where possible; else ``receive`` has it."""

    async def send(self, *messages: Message) -> None:
        """Send messages; waits while the peer reads slowly, drops them if the socket is closed."""

    async def close(self) -> None:
        """Close the socket, and wait at most a second for the peer. Twice is no error."""


class ServerMessageSocket:
    """A WebSocket of the gateway's HTTP server."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._protocol = DirectWebSocketProtocol.from_scope(socket.scope)

    async def receive(self) -> Message | None:
        """Return the next message, None once the socket is closed; raises as ``MessageSocket.receive``."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            _check_close_code(message.get("code"), message.get("reason", ""))
            return None
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes") or b""

    def deliver_to(self, take: Callable[[Message], None]) -> None:
        """Call ``take`` with later messages, if the server is the gateway's own."""
        if self._protocol is not None:
            self._protocol.deliver_to(take)

    async def send(self, *messages: Message) -> None:
        """Send messages."""
        if self._protocol is not None:
            await self._protocol.send_messages(messages)
            return
        try:
            for message in messages:
                if isinstance(message, str):
                    await self._socket.send_text(message)
                else:
                    await self._socket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError):
            pass  # the socket is closed; ``receive`` says so too

    async def close(self) -> None:
        """Close the socket."""
        await close_socket(self._socket, CLOSE_NORMAL)


def accept_later(socket: WebSocket, subprotocols: Sequence[str]) -> Callable[[], Awaitable[MessageSocket]]:
    """Return what accepts a WebSocket, with the first subprotocol that the peer offers too."""

    async def accept() -> MessageSocket:
        offered = socket.scope.get("subprotocols", ())
        await socket.accept(next((one for one in subprotocols if one in offered), None))
        return ServerMessageSocket(socket)

    return accept


def peer_of(socket: WebSocket) -> str:
    """Return the network address of a WebSocket's peer."""
    return "unknown" if socket.client is None else f"{socket.client.host}:{socket.client.port}"


class ClientMessageSocket:
    """A WebSocket that the gateway has opened."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> Message | None:
        """Return the next message, None once the socket is closed; raises as ``MessageSocket.receive``."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as closed:
            if closed.sent is not None:
                _check_close_code(closed.sent.code, closed.sent.reason)
            return None

    def deliver_to(self, take: Callable[[Message], None]) -> None:
        """Do nothing: ``receive`` returns every message."""

    async def send(self, *messages: Message) -> None:
        """Send messages."""
        with suppress(ConnectionClosed):  # ``receive`` says so too
            for message in messages:
                await self._connection.send(message)

    async def close(self) -> None:
        """Close the socket."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._connection.close()
        except TimeoutError:
            self._connection.transport.abort()


def _check_close_code(code: int | None, reason: str) -> None:
    if code in _FAULTS:
        raise MediaStreamProtocolError(f"the WebSocket was closed with {code} {reason[:80]}".rstrip())


class StreamOutbox:
    """Messages on their way to a WebSocket; yields all that are queued, until ``close``.

    Its users bound it: speech by what a peer may hold, and by the time for which it may read nothing.
    """

    def __init__(self) -> None:
        self._items: list[tuple[Message, bool]] = []  # and whether each is part of the speech
        self._closed = False
        self._changed = asyncio.Event()

    def put(self, messages: Iterable[Message], *, is_speech: bool = False) -> None:
        """Queue messages; after ``close`` they are dropped."""
        if not self._closed:
            self._items.extend((message, is_speech) for message in messages)
            self._changed.set()

    def drop_speech(self) -> None:
        """Drop the queued messages that are part of the speech."""
        self._items = [item for item in self._items if not item[1]]

    def close(self) -> None:
        """End the iteration after what is queued."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> "StreamOutbox":
        return self

    async def __anext__(self) -> list[Message]:
        while not self._items:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        messages = [message for message, _ in self._items]
        self._items.clear()
        return messages
