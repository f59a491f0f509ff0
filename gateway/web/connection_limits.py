"""Limits of HTTP connections whose clients are not known: time for a request, and number.

    connected, or the first byte of a later request
        |<-- request_s -->|  closed, unless the headers are complete, and without a valid key also the body
        '- in ``unidentified`` until a request has a valid key, or a WebSocket is accepted

uvicorn has no such limits; h11 limits the bytes of headers. An idle connection between two requests is closed
by ``keep_alive``, or earlier if its client is unknown and others need the place. A client with a key may take
any time for the rest of a body.
"""

import asyncio
import logging
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Self

import h11
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...adapters.unidentified_connections import DEFAULT_MAX_UNIDENTIFIED, UnidentifiedConnections
from ...tts_engine.process_limits import descriptor_limit
from ..access.access_control import AccessControl
from ..access.networks import NO_ADDRESSES, AddressSet
from ..listening_sockets import limit_unidentified

logger = logging.getLogger(__name__)

DEFAULT_REQUEST_S: Final = (
    20.0  # a slow mobile network takes seconds; browsers open connections ahead for more
)
_STATE_KEY: Final = "identify"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one HTTP server."""

    unidentified: UnidentifiedConnections
    max_connections: int  # of all clients
    request_s: float  # from the connection, or the first byte of a request, to the end of its headers

    @classmethod
    def make(
        cls,
        max_unidentified: int = DEFAULT_MAX_UNIDENTIFIED,
        request_s: float = DEFAULT_REQUEST_S,
        proxies: AddressSet = NO_ADDRESSES,
    ) -> Self:
        """Return the limits; half of the descriptors of the process are left to calls."""
        unidentified = limit_unidentified("HTTP", max_unidentified, proxies)
        return cls(unidentified, descriptor_limit() // 2, request_s)


class LimitedConnection:
    """Mixin of uvicorn's HTTP protocol with h11 that applies ``ConnectionLimits``."""

    transport: asyncio.Transport
    conn: h11.Connection
    loop: asyncio.AbstractEventLoop
    connections: set[Any]
    app_state: dict[str, Any]
    client: tuple[str, int] | None
    cycle: Any  # of the latest request whose headers have come; None before the first

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        """Make a protocol of uvicorn; the other arguments are those of its own."""
        super().__init__(*args, **options)
        self._limits = limits
        self._request_timer: asyncio.TimerHandle | None = None
        self.app_state = {**self.app_state, _STATE_KEY: self}

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Open the connection, or close it if there are too many."""
        limits = self._limits
        has_room = len(self.connections) < limits.max_connections or limits.unidentified.close_oldest()
        super().connection_made(transport)  # type: ignore[misc]  # of the protocol
        if not has_room:
            logger.warning("HTTP: refused a connection; %d are open", limits.max_connections)
            transport.abort()
            return
        limits.unidentified.add(self, self.client[0] if self.client else "?", transport.abort)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        super().data_received(data)  # type: ignore[misc]
        if self._awaits_request:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection."""
        self._stop_timer()
        self._limits.unidentified.remove(self)
        super().connection_lost(exc)  # type: ignore[misc]

    # Called by the app, and by the protocol of a WebSocket

    @property
    def is_unidentified(self) -> bool:
        """Whether the client is not known yet."""
        return self in self._limits.unidentified

    def identify(self) -> None:
        """Note that the client is known, or gone."""
        self._limits.unidentified.remove(self)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()

    @property
    def _awaits_request(self) -> bool:
        """Whether more of a request must come in time."""
        protocol: object = self.transport.get_protocol()
        if protocol is not self:  # a WebSocket's, from now on
            return False
        state = self.conn.their_state
        # Idle also after the rest of a body whose request was refused before: uvicorn's own timer has ended.
        return state in (h11.IDLE, h11.ERROR) or (state is h11.SEND_BODY and self.is_unidentified)

    def _start_timer(self) -> None:
        if self._request_timer is None:
            self._request_timer = self.loop.call_later(self._limits.request_s, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None


def limited_connection(state: MutableMapping[str, Any]) -> LimitedConnection | None:
    """Return the connection of a request or WebSocket, whose state this is; None under another server."""
    connection = state.get(_STATE_KEY)
    return connection if isinstance(connection, LimitedConnection) else None


class IdentityMiddleware:
    """ASGI middleware that takes connections of clients with a key out of the unidentified ones."""

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        connection = limited_connection(scope.get("state", {}))
        if connection is not None and connection.is_unidentified:
            if self._access.recognizes(Headers(scope=scope)):
                connection.identify()
            elif scope["type"] == "websocket":
                send = _identified_by_accept(send, connection)
        await self._app(scope, receive, send)


def _identified_by_accept(send: Send, connection: LimitedConnection) -> Send:
    async def send_and_identify(message: Message) -> None:
        if message["type"] == "websocket.accept":
            connection.identify()
        await send(message)

    return send_and_identify
