"""Idle HTTP connections: how long the server keeps them, and the header that tells clients.

    response sent            the client may send until here       the server closes here
    |<------- Keep-Alive: timeout=N -------->|<---- margin ------->|

A request sent at the moment in which the server closes is lost, and clients do not repeat a POST. The margin
is for clients that obey the header; for all others, a connection with unread bytes is never closed.

Source: RFC 9112 section 9.3 (persistence) and 9.5; the header: RFC 2068 section 19.7.1, as Node.js reads it.
"""

import asyncio
import fcntl
import struct
import termios
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .connection_limits import LimitedConnection

DEFAULT_KEEP_ALIVE_S: Final = 150  # above the 120 s for which LiveKit's clients keep a connection
CLOSE_MARGIN_S: Final = 5  # a network round trip, and pauses of either side
TRANSPORT_KEY: Final = "transport"  # of the connection, in the state of a scope
_RECHECK_S: Final = 0.1


class UnreadRequestGuard:
    """Mixin of a uvicorn HTTP protocol that keeps an idle connection open whose next request has come."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    timeout_keep_alive_task: asyncio.TimerHandle | None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless it has bytes that the event loop has not read yet."""
        if self.transport.is_closing() or not _unread_bytes(self.transport):
            super().timeout_keep_alive_handler()  # type: ignore[misc]  # of the protocol
            return
        # Reading them cancels this timer.
        self.timeout_keep_alive_task = self.loop.call_later(_RECHECK_S, self.timeout_keep_alive_handler)


class KeepAliveHttpProtocol(LimitedConnection, UnreadRequestGuard, H11Protocol):
    """The HTTP protocol of the server, also below its WebSockets, with the connection in each scope.

    It is the one with h11 also where an extra brings httptools, which loses the body of a request that offers
    another protocol, as Java's HTTP client offers h2c, and takes requests without a host.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Open the connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, TRANSPORT_KEY: transport}

    def _should_upgrade(self) -> bool:
        # websockets waits for ever for the end of a handshake that is not a GET (RFC 6455 section 4.1).
        return bool(self.scope["method"] == "GET") and super()._should_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; a request under way, which it may be the body of, ends unanswered."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # h11 allows one response, and raises in the app that sends another
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
                return
        super().send_400_response(msg)


def _unread_bytes(transport: asyncio.Transport) -> int:
    """Return how many bytes of the peer wait in the kernel."""
    descriptor = transport.get_extra_info("socket").fileno()
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, struct.pack("i", 0)))
    return int(count)


class KeepAliveHeader:
    """ASGI middleware that adds ``Keep-Alive: timeout=N`` to the responses of connections that stay open."""

    def __init__(self, app: ASGIApp, timeout_s: int) -> None:
        self._app = app
        self._value = f"timeout={timeout_s}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        if scope["type"] != "http" or not _stays_open(scope):
            await self._app(scope, receive, send)
            return

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("connection", "").lower() != "close":
                    headers["keep-alive"] = self._value
            await send(message)

        await self._app(scope, receive, send_with_header)


def _stays_open(scope: Scope) -> bool:
    return scope["http_version"] != "1.0" and Headers(scope=scope).get("connection", "").lower() != "close"
