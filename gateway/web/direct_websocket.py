"""uvicorn's WebSocket protocol for streams of many small messages, such as a phone call's packets.

ASGI hands over a message through a queue, and the socket is not read until a task has taken it: a turn of the
event loop and two changes of its selector for 20 ms of audio. ``DirectWebSocketProtocol`` calls a function
instead, as soon as a message has arrived, and writes messages that are due together at once. A message that
arrives alone and in one frame is unmasked here; ``websockets`` parses everything else.

Pings keep proxies from closing a quiet connection. Their pongs say whether a program reads: one that keeps a
connection for its next turn may not, such as aiohttp's clients. So a connection ends for want of a pong only
if the peer's kernel does not acknowledge the ping either, which means that the network has lost it.

Source: RFC 6455 section 5.2 (frames) and 5.5.2 (pings); uvicorn 0.54, websockets_sansio_impl.py; linux/tcp.h
(struct tcp_info).
"""

import asyncio
import socket
import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final, Self

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined]  # compiled, where that is possible
from websockets.protocol import State

from .connection_limits import limited_connection

Message = str | bytes
_STATE_KEY: Final = "websocket"
_TEXT: Final = 0x81  # a whole message, without extensions
_BINARY: Final = 0x82
_MASKED: Final = 0x80
_LENGTH_FOLLOWS: Final = 126  # in two bytes
_HEADER_BYTES: Final = 6  # two, and the mask
_INFO_BYTES: Final = 60
_UNACKED_OFFSET: Final = 24  # of tcpi_unacked in struct tcp_info, packets
_LAST_ACK_OFFSET: Final = 56  # of tcpi_last_ack_recv, ms ago


class DirectWebSocketProtocol(WebSocketsSansIOProtocol):
    """The WebSocket protocol of the server. It behaves as uvicorn's until ``deliver_to`` is called."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Make a protocol of uvicorn; the arguments are those of its own."""
        super().__init__(*args, **options)
        self._take: Callable[[Message], None] | None = None
        self._late_pong = b""  # of the latest ping of a peer that reads slowly
        self.app_state = {**self.app_state, _STATE_KEY: self}

    @classmethod
    def from_scope(cls, scope: MutableMapping[str, Any]) -> Self | None:
        """Return the protocol of a WebSocket, None under a server with another one."""
        protocol = scope.get("state", {}).get(_STATE_KEY)
        return protocol if isinstance(protocol, cls) else None

    def deliver_to(self, take: Callable[[Message], None]) -> None:
        """Call ``take`` with each message from now on; ``receive`` returns those before, and the end.

        uvicorn does not read while messages wait for ``receive``, so ``take`` gets none before them. It must
        not block, and must not raise.
        """
        self._take = take

    async def send_messages(self, messages: Sequence[Message]) -> None:
        """Write messages at once; wait while the peer reads slowly, drop them if the socket is closed."""
        await self.writable.wait()
        if self.conn.state is not State.OPEN or self.transport.is_closing():
            return
        for message in messages:
            if isinstance(message, str):
                self.conn.send_text(message.encode())
            else:
                self.conn.send_binary(message)
        self.transport.write(b"".join(self.conn.data_to_send()))

    # Called by asyncio and uvicorn

    def data_received(self, data: bytes) -> None:
        """Take received bytes."""
        if self._take is not None and self._is_between_messages():
            message = whole_message(data)
            if message is not None:
                self._take(message)
                return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection."""
        if (connection := limited_connection(self.app_state)) is not None:
            connection.identify()
        super().connection_lost(exc)

    def send_receive_event_to_app(self) -> None:
        """Hand over a message that ``websockets`` has parsed."""
        if self._take is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        data = b"".join(self.frames)
        message = _decoded(data) if self.curr_msg_data_type == "text" else data
        if message is None:
            super().send_receive_event_to_app()  # which ends the connection
            return
        self.frames = []
        self._take(message)

    def handle_ping(self) -> None:
        """Answer a ping; while the peer reads slowly only the latest, once it has read what was sent before.

        So a peer that sends pings and reads nothing does not fill the memory. Source: RFC 6455 section 5.5.3.
        """
        if self.writable.is_set():
            super().handle_ping()
        elif pongs := self.conn.data_to_send():
            self._late_pong = pongs[-1]

    def keepalive_timeout(self) -> None:
        """Send the next ping after one without a pong, unless the network has lost the peer."""
        assert self.ping_timeout is not None
        if self.transport.is_closing() or is_lost(_tcp_info(self.transport), self.ping_timeout):
            super().keepalive_timeout()
        else:
            self.pong_timer = None
            self.send_keepalive_ping()

    def resume_writing(self) -> None:
        """Go on with a peer that reads slowly."""
        super().resume_writing()
        if self._late_pong:
            self.transport.write(self._late_pong)
            self._late_pong = b""

    def _is_between_messages(self) -> bool:
        conn = self.conn
        if self.frames or self.close_sent or conn.state is not State.OPEN:
            return False
        waiting: Any = conn.parser
        while waiting.gi_yieldfrom is not None:
            waiting = waiting.gi_yieldfrom
        return bool(waiting.__name__ == "at_eof")  # where the parser waits for a frame to begin


def whole_message(data: bytes) -> Message | None:
    """Return the message of a client's frame that is all of ``data``; None if it is anything else.

    It is also None for 64 KiB and more, and for text that is not UTF-8.
    """
    if len(data) < _HEADER_BYTES:
        return None
    kind, length, start = data[0], data[1] ^ _MASKED, _HEADER_BYTES
    if length == _LENGTH_FOLLOWS:
        length, start = int.from_bytes(data[2:4], "big"), _HEADER_BYTES + 2
    elif length > _LENGTH_FOLLOWS:  # in eight bytes, or not masked
        return None
    if len(data) != start + length or kind not in (_TEXT, _BINARY):
        return None
    payload: bytes = apply_mask(data[start:], data[start - 4 : start])
    return _decoded(payload) if kind == _TEXT else payload


def is_lost(info: bytes, timeout_s: float) -> bool:
    """Whether a peer has acknowledged nothing for that long, by Linux's ``struct tcp_info``."""
    unacked, silent_ms = (
        int.from_bytes(info[offset : offset + 4], sys.byteorder)
        for offset in (_UNACKED_OFFSET, _LAST_ACK_OFFSET)
    )
    return unacked > 0 and silent_ms >= 1_000 * timeout_s


def _tcp_info(transport: asyncio.Transport) -> bytes:
    """Return the kernel's account of a connection, b"" where it has none."""
    if sys.platform != "linux":
        return b""
    sock: socket.socket = transport.get_extra_info("socket")
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)


def _decoded(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None
