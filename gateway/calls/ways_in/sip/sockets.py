"""Sockets of SIP: one port for UDP and TCP, one for TLS, and the connections that are made from here.

A message to a peer over TCP or TLS goes over the connection that it came by, or over a new one; what is
written before that is up waits for it.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from .....adapters.sip.message import SipProtocolError, SipStream
from .....adapters.sip.transactions import SipFlow
from ....background_tasks import cancel_and_wait
from ....listening_sockets import address_unavailable, limit_unidentified

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 5.0
_MAX_WAITING_BYTES: Final = 256 * 1024  # for a connection, which is then given up
_IDLE_S: Final = 3600.0  # of a connection; phones keep theirs for calls that come
_KEEP_ALIVE: Final = b"\r\n\r\n"


class SipSockets:
    """Sends and receives the messages of one endpoint.

    Args:
        receive: takes a message and its flow.
        lose: takes the flow of a connection that is lost.
        client_tls: makes what connections from here are encrypted with.
        server_names: by IP address, what the certificate of a server must name.
    """

    def __init__(
        self,
        receive: Callable[[bytes, SipFlow], None],
        lose: Callable[[SipFlow], None],
        client_tls: Callable[[], ssl.SSLContext],
        server_names: dict[str, str],
    ) -> None:
        self._receive = receive
        self._lose = lose
        self._client_tls = client_tls
        self._server_names = server_names
        self._udp: asyncio.DatagramTransport | None = None
        self._servers: list[asyncio.Server] = []
        self._connections: dict[SipFlow, SipConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unidentified = limit_unidentified("SIP")
        self.port = 0  # of UDP and TCP
        self.tls_port = 0

    async def open(self, host: str, port: int, tls: "tuple[int, ssl.SSLContext] | None") -> None:
        """Listen; raises AddressUnavailable."""
        loop = asyncio.get_running_loop()
        udp, tcp = _bind_both(host, port)
        self.port = udp.getsockname()[1]
        self._udp, _ = await loop.create_datagram_endpoint(lambda: SipDatagrams(self._receive), sock=udp)
        self._servers.append(await loop.create_server(lambda: SipConnection(self, "tcp"), sock=tcp))
        if tls is not None:
            try:
                server = await loop.create_server(
                    lambda: SipConnection(self, "tls"), host, tls[0], ssl=tls[1]
                )
            except OSError as error:
                raise address_unavailable((host, tls[0]), error) from None
            self._servers.append(server)
            self.tls_port = server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Close every socket."""
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections.values()):
            connection.close()
        if self._udp is not None:
            self._udp.close()
        await cancel_and_wait(*self._tasks)

    def send(self, message: bytes, flow: SipFlow) -> None:
        """Send a message; one that cannot be sent is lost, as on the network."""
        if flow.transport == "udp":
            if self._udp is not None:
                self._udp.sendto(message, flow.address)
            return
        connection = self._connections.get(flow)
        if connection is None:
            connection = self._connections[flow] = SipConnection(self, flow.transport, flow)
            task = asyncio.create_task(self._connect(connection, flow))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        connection.write(message)

    def keep_alive(self, flow: SipFlow) -> None:
        """Keep the way to a peer open, through routers that forget it."""
        if flow.transport == "udp" or flow in self._connections:
            self.send(_KEEP_ALIVE, flow)

    async def _connect(self, connection: "SipConnection", flow: SipFlow) -> None:
        loop = asyncio.get_running_loop()
        tls = self._client_tls() if flow.transport == "tls" else None
        name = self._server_names.get(flow.host, flow.host) if tls is not None else None
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await loop.create_connection(lambda: connection, *flow.address, ssl=tls, server_hostname=name)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            logger.warning(
                "SIP over %s to %s:%d failed: %s", flow.transport, *flow.address, error or "no answer"
            )
            self.forget(connection)

    def add(self, connection: "SipConnection", flow: SipFlow) -> None:
        """Note a connection that a peer has made, and is a stranger until ``identify``."""
        self._connections[flow] = connection
        self._unidentified.add(connection, flow.host, connection.close)

    def identify(self, flow: SipFlow) -> None:
        """Keep a connection: its peer is no stranger."""
        if (connection := self._connections.get(flow)) is not None:
            self._unidentified.remove(connection)

    def take(self, message: bytes, flow: SipFlow) -> None:
        """Pass a message on."""
        self._receive(message, flow)

    def forget(self, connection: "SipConnection") -> None:
        """Note that a connection is gone."""
        flow = connection.flow
        self._unidentified.remove(connection)
        if flow is not None and self._connections.get(flow) is connection:
            del self._connections[flow]
            self._lose(flow)


class SipDatagrams(asyncio.DatagramProtocol):
    """The port of UDP."""

    def __init__(self, receive: Callable[[bytes, SipFlow], None]) -> None:
        self._receive = receive

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if data.strip(b"\r\n\x00"):  # keep-alives need no answer
            self._receive(data, SipFlow("udp", (addr[0], addr[1])))


class SipConnection(asyncio.Protocol):
    """One connection of TCP or TLS. flow: of one that is made from here; None: a peer makes it."""

    def __init__(self, sockets: SipSockets, transport: str, flow: SipFlow | None = None) -> None:
        self.flow = flow
        self._sockets = sockets
        self._kind = transport
        self._stream = SipStream()
        self._transport: asyncio.Transport | None = None
        self._waiting = bytearray()
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.flow is None:
            host, port, *_ = transport.get_extra_info("peername")
            self.flow = SipFlow(self._kind, (host, port))
            self._sockets.add(self, self.flow)
        if self._waiting:
            transport.write(bytes(self._waiting))
            self._waiting.clear()
        self._restart_idle()

    def data_received(self, data: bytes) -> None:
        assert self.flow is not None
        self._restart_idle()
        try:
            for message in self._stream.receive(data):
                if message:
                    self._sockets.take(message, self.flow)
                else:
                    self.write(b"\r\n")
        except SipProtocolError as error:
            logger.info("SIP connection from %s:%d closed: %s", *self.flow.address, error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._sockets.forget(self)

    def write(self, message: bytes) -> None:
        transport = self._transport
        if transport is None:
            self._waiting += message
        elif not transport.is_closing():
            transport.write(message)
            if transport.get_write_buffer_size() > _MAX_WAITING_BYTES:
                transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _restart_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self.close)


def _bind_both(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return a socket of UDP and one of TCP on the same port; raises AddressUnavailable."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    family, *_, (address, *_) = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    for attempt in range(20):
        udp = socket.socket(family, socket.SOCK_DGRAM)
        tcp = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            udp.bind((address, port))
            tcp.bind((address, udp.getsockname()[1]))
        except OSError as error:
            udp.close()
            tcp.close()
            if port or attempt == 19:
                raise address_unavailable((host, port), error, flag="--sip-port") from None
        else:
            udp.setblocking(False)
            return udp, tcp
    raise AssertionError
