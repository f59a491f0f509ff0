"""TODO."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from .backpressure import BackpressureHttpProtocol

_MAX_WEBSOCKET_MESSAGE_BYTES = 4 << 20  # of one message: 30 s of a recording, 16 bits at 48 kHz, in base64


_MAX_UNSENT_BYTES = 32 * 1024  # Linux doubles it; 1.3 s of 24 kHz speech, and 300 kB/s at 200 ms of delay


_SHUTDOWN_TIMEOUT_S = 2  # that a slow reader of /metrics may hold up the end


class HttpServer(uvicorn.Server):
    """An app on a bound socket, inside the running loop; ``run`` is a task that the gateway owns."""

    def __init__(self, app: FastAPI, sock: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BackpressureHttpProtocol,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
                ws_max_size=_MAX_WEBSOCKET_MESSAGE_BYTES,
                ws_per_message_deflate=False,  # 100 kB a socket, and speech does not compress
            )
        )
        # What a client has not read yet waits here, and the voice with it; unset, the kernel takes 4 MB.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_UNSENT_BYTES)
        self._sock = sock

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signal handlers alone."""
        yield

    async def run_until_closed(self) -> None:
        """Serve until ``close`` is called."""
        await self.serve([self._sock])

    async def wait_started(self, task: "asyncio.Task[None]") -> None:
        """Wait until requests are answered; raises what ``task``, which runs this server, failed with."""
        while not self.started:
            if task.done():
                await task
                raise RuntimeError("the HTTP server ended before it began")
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Answer what is under way, then end."""
        self.should_exit = True
