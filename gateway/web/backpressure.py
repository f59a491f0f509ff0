"""How far a client is behind in reading what it is sent, as its TCP tells, and sending no further ahead.

What the client's program has not read waits in its kernel, whose window is smaller by as much:

    |<--------------- the widest that the window was --------------->|
    |<-- acknowledged, but not read -->|<----- the window now ------->|

A kernel tells of its window only when something arrives, and so a piece that is held back goes on in slices
of a few bytes. Without this, a client that stops reading has eight seconds of 24 kHz PCM rendered for it
before its connection is full. Where the system does not tell the window, everything is sent at once.

Source: RFC 9293 section 3.8.6; linux/tcp.h (struct tcp_info; tcpi_snd_wnd is there since Linux 5.4);
net/ipv4/tcp.c of Linux (tcp_cleanup_rbuf: when a window is told).
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Self

from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_UNREAD_S: Final = (
    0.5  # of the stream's own rate that may lie unread; news of reading take 0.1 s and the way
)
MIN_UNREAD_ALLOWANCE: Final = 16 * 1024  # bytes; small packets take more of a window than they hold
RECEIVE_STALL_S: Final = (
    10.0  # then the window of now counts as the widest: a kernel short of memory narrows it
)
MAX_STALLS: Final = 6  # times in a row, without anything being read: a minute
_POLL_S: Final = 0.01
_SLICE_S: Final = 0.05
_SLICE_BYTES: Final = (
    8  # bytes; whole samples of every format, and next to nothing beside what a second of it has
)
_INFO_BYTES: Final = 256
_WINDOW_OFFSET: Final = 228  # of tcpi_snd_wnd in struct tcp_info
_STATE_KEY: Final = "reader"


def peer_window(info: bytes) -> int | None:
    """The peer's window, of Linux's ``struct tcp_info``; None where the kernel is too old to tell it."""
    window = info[_WINDOW_OFFSET : _WINDOW_OFFSET + 4]
    return int.from_bytes(window, sys.byteorder) if len(window) == 4 else None


class UnreadBytes:
    """What a peer has taken and not read, by its window."""

    def __init__(self) -> None:
        self.resets = 0  # times since it last read
        self._max_window = self._last_window = 0

    def bytes_at(self, window: int) -> int:
        """How much is unread when the window is so wide."""
        if window > self._last_window:
            self.resets = 0
        self._last_window = window
        self._max_window = max(self._max_window, window)
        return self._max_window - window

    def reset(self) -> None:
        """Take the next window for the widest."""
        self.resets += 1
        self._max_window = 0


class BackpressureSender:
    """The client at the other end of a connection, None for one that nothing is known of."""

    def __init__(self, transport: asyncio.Transport | None = None) -> None:
        self._transport = transport
        self._unread_bytes = UnreadBytes()

    @classmethod
    def from_scope(cls, scope: MutableMapping[str, Any]) -> Self:
        """The one that a request or a WebSocket is from."""
        sender = scope.get("state", {}).get(_STATE_KEY)
        return sender if isinstance(sender, cls) else cls()

    async def send(self, data: bytes, bytes_per_s: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write ``data`` of a stream of that rate: at once to one that reads, else once it has read.

        Raises TimeoutError if it reads nothing for a minute.
        """
        max_unread = max(MIN_UNREAD_ALLOWANCE, round(MAX_UNREAD_S * bytes_per_s))
        clock = asyncio.get_running_loop().time
        stalled_since, next_slice_at = clock(), 0.0
        while len(data) > _SLICE_BYTES and self._unread() > max_unread:
            if clock() >= next_slice_at:
                next_slice_at = clock() + _SLICE_S
                await write(data[:_SLICE_BYTES])
                data = data[_SLICE_BYTES:]
            if clock() - stalled_since > RECEIVE_STALL_S:
                self._count_stall()
            await asyncio.sleep(_POLL_S)
        await write(data)

    def _count_stall(self) -> None:
        self._unread_bytes.reset()
        if self._unread_bytes.resets > MAX_STALLS:
            raise TimeoutError("the client reads nothing")

    def _unread(self) -> int:
        """Bytes, as far as its kernel has told; 0 where nothing is known."""
        if self._transport is None or sys.platform != "linux" or self._transport.is_closing():
            return 0
        sock: socket.socket = self._transport.get_extra_info("socket")
        window = peer_window(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES))
        return 0 if window is None else self._unread_bytes.bytes_at(window)


class BackpressureHttpProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # which class it is depends on what is installed
    """uvicorn's HTTP, which its WebSockets come from, with the ``BackpressureSender`` in each scope's state."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin a connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, _STATE_KEY: BackpressureSender(transport)}
