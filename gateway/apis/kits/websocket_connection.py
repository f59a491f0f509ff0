"""WebSocket connections of the speech APIs: receiving, sending, speaking, idleness and the end.

    receive_messages  ->  on_message(data), on_idle()          one coroutine, notices a vanished client
    start_speaking    ->  send_text, send_bytes, sender.send   tasks while there is something to say

A dialect derives its connection from ``WebSocketConnection`` and keeps its open connections in a
``WebSocketConnections``. Protocols, keys and voices are not in this module.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from fastapi import WebSocket, WebSocketDisconnect

from ....tts_engine.errors import VivavoceError
from ...access.dependencies import CLOSE_REFUSED
from ...access.errors import GrantEnded
from ...access.grant_ends import LAST_MESSAGE_S, ending_with_grants
from ...web.websocket import close_socket, is_open
from .backpressure import BackpressureSender

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S: Final = 30.0  # a player may pause that long; the engine has stopped rendering long before
# RFC 6455, 7.4.1; 1008 is "policy violation".
CLOSE_GOING_AWAY: Final = 1001
CLOSE_TOO_SLOW: Final = 1008
_CLOSED_WITHOUT_A_FRAME: Final = 1006


class WebSocketConnection(ABC):
    """One accepted WebSocket.

    A derived class implements ``on_message`` and may override ``idle_deadline``, ``on_idle`` and
    ``on_closed``. Writers may be concurrent: every message is written under a lock and within send_timeout_s,
    and a client that takes nothing for that long is closed with 1008.
    """

    def __init__(self, socket: WebSocket, send_timeout_s: float = SEND_TIMEOUT_S) -> None:
        self.socket = socket
        self.sender = BackpressureSender.from_scope(socket.scope)
        self._send_timeout_s = send_timeout_s
        self._write_lock = asyncio.Lock()
        self._receive_timeout: asyncio.Timeout | None = None  # of the receive under way
        self._speaking_tasks: set[asyncio.Task[None]] = set()

    # Overridden by a dialect

    @abstractmethod
    async def on_message(self, data: str | bytes) -> None:
        """Handle one message of the client."""

    def idle_deadline(self) -> float | None:
        """Loop time at which ``on_idle`` is called unless a message has come before; None for never."""
        return None

    async def on_idle(self) -> None:
        """Handle the idle deadline."""
        return

    async def on_closed(self) -> None:
        """Release what the connection holds; the speaking task has ended."""
        return

    async def on_grant_ended(self, error: GrantEnded) -> None:
        """Report that the key is not valid any more; the socket is closed with 1008 after that."""
        return

    # Called by the owner

    async def run(self) -> None:
        """Serve until the client is gone or the socket is closed."""
        try:
            with ending_with_grants():
                await self.receive_messages()
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            await self.close(CLOSE_TOO_SLOW)
        except GrantEnded as error:
            await self._refuse(error)
        finally:
            await self.stop_speaking()
            await self.on_closed()

    async def drain_and_close(self, within_s: float) -> None:
        """Wait at most within_s for the speech under way to end, then close with 1001."""
        if self._speaking_tasks:
            await asyncio.wait(self._speaking_tasks, timeout=within_s)
        await self.close(CLOSE_GOING_AWAY)
        await self.stop_speaking()

    # Called by a dialect

    async def receive_messages(self) -> None:
        """Handle messages until the socket closes; raises WebSocketDisconnect, and a send's TimeoutError."""
        while is_open(self.socket):
            data = await self._receive()
            if data is None:
                await self.on_idle()
            else:
                await self.on_message(data)
                # Many messages may wait already, and receiving these does not let other tasks run.
                await asyncio.sleep(0)

    def reschedule_idle(self) -> None:
        """Apply a deadline that has changed while a message is awaited."""
        if self._receive_timeout is not None and not self._receive_timeout.expired():
            self._receive_timeout.reschedule(self.idle_deadline())

    async def send_text(self, text: str, audio: bytes | None = None) -> None:
        """Write a text message and the audio that it announces, with nothing between them.

        Raises TimeoutError if the client does not take them, WebSocketDisconnect if the socket is closed.
        """
        async with self._writing():
            await self.socket.send_text(text)
            if audio is not None:
                await self.socket.send_bytes(audio)

    async def send_bytes(self, data: bytes) -> None:
        """Write a binary message; raises as ``send_text``."""
        async with self._writing():
            await self.socket.send_bytes(data)

    async def close(self, code: int) -> None:
        """Close the socket unless it is closed."""
        await close_socket(self.socket, code)

    @property
    def is_speaking(self) -> bool:
        """Whether any speaking task runs."""
        return any(not task.done() for task in self._speaking_tasks)

    def start_speaking(self, speak: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run ``speak`` beside the receiving coroutine; a client that takes nothing is closed."""
        task = asyncio.create_task(self._run_speaking(speak))
        self._speaking_tasks.add(task)
        task.add_done_callback(self._speaking_tasks.discard)
        return task

    async def wait_spoken(self) -> None:
        """Wait until the speaking tasks have ended."""
        if self._speaking_tasks:
            await asyncio.wait(self._speaking_tasks)

    async def stop_speaking(self) -> None:
        """Drop what has not been sent; the engine is free when this returns."""
        for task in self._speaking_tasks:
            task.cancel()
        await self.wait_spoken()

    async def error_of(self, work: Awaitable[None], name: str) -> Exception | None:
        """Await ``work`` and return its error, None if there is none.

        Boundary: any error ends this work and no more; one that is not of this package is logged under
        ``name``. Raises WebSocketDisconnect and TimeoutError, which end the connection.
        """
        try:
            await work
        except (WebSocketDisconnect, TimeoutError):
            raise
        except VivavoceError as error:
            return error
        except Exception as error:
            logger.exception("%s failed", name)
            return error
        return None

    async def _refuse(self, error: GrantEnded) -> None:
        await self.stop_speaking()
        with contextlib.suppress(TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(LAST_MESSAGE_S):
                await self.on_grant_ended(error)
                await close_socket(self.socket, CLOSE_REFUSED, str(error))

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        # The timeout includes the wait for the lock, which another message holds while the client is slow.
        async with asyncio.timeout(self._send_timeout_s), self._write_lock:
            try:
                yield
            except RuntimeError:
                if is_open(self.socket):
                    raise
                # Another speaking task found the client gone, or closed the socket.
                raise WebSocketDisconnect(_CLOSED_WITHOUT_A_FRAME) from None

    async def _receive(self) -> str | bytes | None:
        """Return the next message, None at the idle deadline; raises WebSocketDisconnect."""
        try:
            # Nothing else times out inside, so a TimeoutError here is the deadline.
            async with asyncio.timeout_at(self.idle_deadline()) as self._receive_timeout:
                message = await self.socket.receive()
        except TimeoutError:
            return None
        finally:
            self._receive_timeout = None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))  # 1005: without a code (RFC 6455, 7.4.1)
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes") or b""

    async def _run_speaking(self, speak: Callable[[], Awaitable[None]]) -> None:
        try:
            await speak()
        except (WebSocketDisconnect, TimeoutError):
            await self.close(CLOSE_TOO_SLOW)


class WebSocketConnections:
    """The open connections of one API; belongs to an event loop."""

    def __init__(self) -> None:
        self._connections: set[WebSocketConnection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    async def serve(self, connection: WebSocketConnection) -> None:
        """Run a connection to its end."""
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def drain_and_close(self, within_s: float) -> None:
        """Wait at most within_s for speech under way to end; close every connection with 1001."""
        await asyncio.gather(
            *(connection.drain_and_close(within_s) for connection in tuple(self._connections))
        )
