"""The two kinds of WebSockets that carry a call, and the messages on their way to one.

Either the peer connects to the gateway's HTTP server, or the gateway connects to Asterisk's.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol

from fastapi import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ...web.websocket import CLOSE_NORMAL, close_socket

Message = str | bytes
_CLOSE_TIMEOUT_S: Final = 1.0


class MessageSocket(Protocol):
    """An open WebSocket."""

    async def receive(self) -> Message | None:
        """Return the next message, None once the socket is closed."""

    async def send(self, message: Message) -> None:
        """Send a message; waits while the peer reads slowly, drops the message if the socket is closed."""

    async def close(self) -> None:
        """Close the socket, and wait at most a second for the peer. Twice is no error."""


class ServerMessageSocket:
    """A WebSocket of the gateway's HTTP server."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> Message | None:
        """Return the next message, None once the socket is closed."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes") or b""

    async def send(self, message: Message) -> None:
        """Send a message."""
        try:
            if isinstance(message, str):
                await self._socket.send_text(message)
            else:
                await self._socket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError):
            pass  # the socket is closed; ``receive`` says so too

    async def close(self) -> None:
        """Close the socket."""
        await close_socket(self._socket, CLOSE_NORMAL)


class ClientMessageSocket:
    """A WebSocket that the gateway has opened."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> Message | None:
        """Return the next message, None once the socket is closed."""
        try:
            return await self._connection.recv()
        except ConnectionClosed:
            return None

    async def send(self, message: Message) -> None:
        """Send a message."""
        with suppress(ConnectionClosed):  # ``receive`` says so too
            await self._connection.send(message)

    async def close(self) -> None:
        """Close the socket."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._connection.close()
        except TimeoutError:
            self._connection.transport.abort()


class StreamOutbox:
    """Messages on their way to a WebSocket; iterates over them until ``close``.

    Its users bound it: speech by what a peer may hold, and by the time for which it may read nothing.
    """

    def __init__(self) -> None:
        self._items: deque[tuple[Message, bool]] = deque()  # and whether each is part of the speech
        self._closed = False
        self._changed = asyncio.Event()

    def put(self, messages: Iterable[Message], *, is_speech: bool = False) -> None:
        """Queue messages; after ``close`` they are dropped."""
        if not self._closed:
            self._items.extend((message, is_speech) for message in messages)
            self._changed.set()

    def drop_speech(self) -> None:
        """Drop the queued messages that are part of the speech."""
        self._items = deque(item for item in self._items if not item[1])

    def close(self) -> None:
        """End the iteration after what is queued."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> "StreamOutbox":
        return self

    async def __anext__(self) -> Message:
        while not self._items:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._items.popleft()[0]
