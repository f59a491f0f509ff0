"""uvicorn serving the app in the gateway's event loop, on a socket that is already bound."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from typing import Final

import uvicorn
from fastapi import FastAPI

from ...tts_engine.process_limits import descriptor_limit
from ..access.networks import NO_ADDRESSES, AddressSet
from .connection_limits import ConnectionLimits
from .direct_websocket import DirectWebSocketProtocol
from .forwarded_headers import ForwardedHeaders
from .keep_alive import CLOSE_MARGIN_S, DEFAULT_KEEP_ALIVE_S, KeepAliveHeader, KeepAliveHttpProtocol

_MAX_WEBSOCKET_MESSAGE_BYTES: Final = 4 << 20  # a 30 s recording, 16 bits at 48 kHz, in base64
_MAX_UNSENT_BYTES: Final = (
    32 * 1024
)  # Linux doubles it: 1.3 s of 24 kHz speech, 300 kB/s at 200 ms round trip
_PING_S: Final = 20  # between pings of a WebSocket; proxies close connections that are quiet for 30 s or more
_MAX_BACKLOG: Final = 2048  # asyncio accepts as many before it runs anything that could close some of them
_SHUTDOWN_TIMEOUT_S: Final = 2  # that a slow reader of /metrics may delay the shutdown
_STARTUP_POLL_S: Final = 0.005


class HttpServer(uvicorn.Server):
    """An app on a bound socket; ``run_until_closed`` is a task that the gateway owns."""

    def __init__(
        self,
        app: FastAPI,
        sock: socket.socket,
        keep_alive_s: int = DEFAULT_KEEP_ALIVE_S,
        *,
        limits: ConnectionLimits | None = None,
        proxies: AddressSet = NO_ADDRESSES,
    ) -> None:
        """Make a server.

        Args:
            keep_alive_s: how long clients may keep an idle connection.
            limits: of connections; None: the default ones.
            proxies: whose headers say for whom they ask.
        """
        super().__init__(
            uvicorn.Config(
                ForwardedHeaders(KeepAliveHeader(app, keep_alive_s), proxies),
                http=partial(KeepAliveHttpProtocol, limits=limits or ConnectionLimits.make()),  # type: ignore[arg-type]
                backlog=min(_MAX_BACKLOG, descriptor_limit() // 8),
                proxy_headers=False,  # uvicorn's take any text for an address
                ws=DirectWebSocketProtocol,
                timeout_keep_alive=keep_alive_s + CLOSE_MARGIN_S,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
                ws_ping_interval=_PING_S,
                ws_ping_timeout=_PING_S,
                ws_max_size=_MAX_WEBSOCKET_MESSAGE_BYTES,
                ws_per_message_deflate=False,  # takes 100 kB a connection, and speech does not compress
            )
        )
        # Unread speech waits in the kernel's send buffer and pauses rendering once that is full. The default
        # buffer is up to 4 MB, or 87 s of 24 kHz PCM.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_UNSENT_BYTES)
        self._sock = sock

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signal handlers to the process."""
        yield

    async def run_until_closed(self) -> None:
        """Serve until ``close`` is called."""
        await self.serve([self._sock])

    async def wait_started(self, task: "asyncio.Task[None]") -> None:
        """Wait until requests are served; raises the error of ``task``, which runs this server."""
        while not self.started:
            if task.done():
                await task
                raise RuntimeError("the HTTP server ended before it began")
            await asyncio.sleep(_STARTUP_POLL_S)

    def close(self) -> None:
        """Finish the requests under way, then end."""
        self.should_exit = True
