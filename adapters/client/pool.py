"""Pool of connections to one server.

A new connection delays the first audio by a handshake, so the pool opens some in advance. An utterance has a
connection to itself, which returns to the pool once all messages of the utterance are read. A connection that
fails, or that still delivers messages 2 s after a cancel, is closed. Servers close connections that are idle
for a minute, so the pool replaces them earlier.

Source: for comparison, DashScope's SpeechSynthesizerObjectPool (dashscope 1.25,
audio/tts_v2/speech_synthesizer.py) leaks the sockets that it replaces, does not check that a connection is
open and has no upper bound.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Self

from ...tts_engine.errors import BadRequest, Overloaded, VivavoceError
from .connection import ServerConnection, ServerUnavailable, open_connection, socket_url
from .utterance import RemoteUtterance, SpeechOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Size and timeouts of the pool; raises BadRequest unless 0 <= min <= max connections and max >= 1."""

    max_connections: int = 20  # open at once
    min_connections: int = 2  # kept open in advance
    acquire_timeout_s: float = 10.0  # wait for a connection when all are in use
    max_idle_s: float = 30.0  # age at which an idle connection is replaced; servers close them at 60
    connect_timeout_s: float = 10.0  # one handshake

    def __post_init__(self) -> None:
        if not 0 <= self.min_connections <= self.max_connections or self.max_connections < 1:
            raise BadRequest(
                f"got min_connections={self.min_connections} and max_connections={self.max_connections}; "
                "allowed is 0 <= min_connections <= max_connections and max_connections >= 1"
            )


class SpeechClient:
    """Pool of connections to one server, on one event loop. Use it with ``async with``.

    Raises BadRequest for a URL that is not ws, wss, http or https.

    Attributes:
        last_time_to_first_audio_s: seconds from the first text to the first audio, of the last utterance that
            produced audio; None before.
    """

    def __init__(self, url: str, *, api_key: str | None = None, pool: PoolPolicy | None = None) -> None:
        self.policy = pool or PoolPolicy()
        self.last_time_to_first_audio_s: float | None = None
        self._url = socket_url(url)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._idle: deque[ServerConnection] = deque()
        self._free_slots = asyncio.Semaphore(self.policy.max_connections)
        self._in_use: set[ServerConnection] = set()
        self._maintenance_task: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Open the connections kept in advance; raises ServerUnavailable, or the server's error."""
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(self.aclose)
            for _ in range(self.policy.min_connections):
                self._idle.append(await self._open())
            cleanup.pop_all()
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def start(self) -> None:
        """Start to keep connections open; unlike ``__aenter__``, does not wait for them."""
        if self._maintenance_task is None:
            self._maintenance_task = asyncio.create_task(self._maintain_pool())

    @property
    def open_connections(self) -> int:
        """Number of open connections, idle and in use."""
        return len(self._idle) + len(self._in_use)

    async def aclose(self) -> None:
        """Close every connection, also those in use. Further calls have no effect."""
        self._closed = True
        if self._maintenance_task is not None:
            self._maintenance_task.cancel()
            await asyncio.wait({self._maintenance_task})
        idle, self._idle = self._idle, deque()
        await asyncio.gather(*(connection.close() for connection in (*idle, *self._in_use)))

    @asynccontextmanager
    async def utterance(self, options: SpeechOptions | None = None) -> AsyncIterator[RemoteUtterance]:
        """Open one utterance on a connection of its own; leaving the block cancels the rest of it.

        Raises Overloaded if all connections stay in use for ``acquire_timeout_s``, ServerUnavailable, or the
        server's error.
        """
        if self._closed:
            raise ServerUnavailable("the client is closed")
        async with self._reserve_slot():
            connection = await self._acquire_connection()
            self._in_use.add(connection)
            utterance = RemoteUtterance(connection)
            try:
                await utterance.configure(options or SpeechOptions())
                yield utterance
            finally:
                self.last_time_to_first_audio_s = (
                    utterance.time_to_first_audio_s or self.last_time_to_first_audio_s
                )
                await self._release_connection(connection, utterance)

    @asynccontextmanager
    async def _reserve_slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.policy.acquire_timeout_s):
                await self._free_slots.acquire()
        except TimeoutError:
            raise Overloaded(
                f"all {self.policy.max_connections} connections are in use",
                reason="connections",
                retry_after_s=1.0,
            ) from None
        try:
            yield
        finally:
            self._free_slots.release()

    async def _acquire_connection(self) -> ServerConnection:
        # The connection used last is the least likely to have been closed by the server.
        while self._idle:
            connection = self._idle.pop()
            if connection.is_up:
                return connection
            await connection.close()
        return await self._open()

    async def _release_connection(self, connection: ServerConnection, utterance: RemoteUtterance) -> None:
        is_clean = False
        try:
            is_clean = await utterance.cancel_and_drain()
        finally:
            # Also if the caller is cancelled while the connection is drained.
            self._in_use.discard(connection)
            if is_clean and not self._closed:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.abort_connection()

    async def _open(self) -> ServerConnection:
        return await open_connection(self._url, self._headers, self.policy.connect_timeout_s)

    async def _maintain_pool(self) -> None:
        """Replace connections that are idle for too long, and keep ``min_connections`` open."""
        while True:
            old = time.monotonic() - self.policy.max_idle_s
            stale = [each for each in self._idle if each.idle_since < old or not each.is_up]
            for connection in stale:
                with suppress(ValueError):  # taken for an utterance meanwhile
                    self._idle.remove(connection)
                    await connection.close()
            try:
                while self.open_connections < self.policy.min_connections:
                    self._idle.appendleft(await self._open())
            except VivavoceError as error:
                logger.warning("cannot open a connection in advance: %s", error)
            await asyncio.sleep(self.policy.max_idle_s / 4)
