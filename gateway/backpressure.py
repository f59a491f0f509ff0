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

AHEAD_S: Final = 0.5  # of the stream's own rate that may lie unread; news of reading take 0.1 s and the way
LEAST_AHEAD: Final = 16 * 1024  # bytes; small packets take more of a window than they hold
HELD_S: Final = 10.0  # then the window of now counts as the widest: a kernel short of memory narrows it
MOST_HELD: Final = 6  # times in a row, without anything being read: a minute
_LOOK_S: Final = 0.01
_SLICE_S: Final = 0.05
_SLICE: Final = 8  # bytes; whole samples of every format, and next to nothing beside what a second of it has
_INFO_BYTES: Final = 256
_WINDOW_AT: Final = 228  # of tcpi_snd_wnd in struct tcp_info
_STATE: Final = "reader"


def window_in(info: bytes) -> int | None:
    """The peer's window, of Linux's ``struct tcp_info``; None where the kernel is too old to tell it."""
    window = info[_WINDOW_AT : _WINDOW_AT + 4]
    return int.from_bytes(window, sys.byteorder) if len(window) == 4 else None


class Backlog:
    """What a peer has taken and not read, by its window."""

    def __init__(self) -> None:
        self.forgotten = 0  # times since it last read
        self._widest = self._last = 0

    def bytes_at(self, window: int) -> int:
        """How much is unread when the window is so wide."""
        if window > self._last:
            self.forgotten = 0
        self._last = window
        self._widest = max(self._widest, window)
        return self._widest - window

    def forget(self) -> None:
        """Take the next window for the widest."""
        self.forgotten += 1
        self._widest = 0


class Reader:
    """The client at the other end of a connection, None for one that nothing is known of."""

    def __init__(self, transport: asyncio.Transport | None = None) -> None:
        self._transport = transport
        self._backlog = Backlog()

    @classmethod
    def of(cls, scope: MutableMapping[str, Any]) -> Self:
        """The one that a request or a WebSocket is from."""
        reader = scope.get("state", {}).get(_STATE)
        return reader if isinstance(reader, cls) else cls()

    async def send(self, data: bytes, bytes_per_s: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write ``data`` of a stream of that rate: at once to one that reads, else once it has read.

        Raises TimeoutError if it reads nothing for a minute.
        """
        allowed = max(LEAST_AHEAD, round(AHEAD_S * bytes_per_s))
        clock = asyncio.get_running_loop().time
        held_at, slice_at = clock(), 0.0
        while len(data) > _SLICE and self._unread() > allowed:
            if clock() >= slice_at:
                slice_at = clock() + _SLICE_S
                await write(data[:_SLICE])
                data = data[_SLICE:]
            if clock() - held_at > HELD_S:
                self._give_way()
            await asyncio.sleep(_LOOK_S)
        await write(data)

    def _give_way(self) -> None:
        self._backlog.forget()
        if self._backlog.forgotten > MOST_HELD:
            raise TimeoutError("the client reads nothing")

    def _unread(self) -> int:
        """Bytes, as far as its kernel has told; 0 where nothing is known."""
        if self._transport is None or sys.platform != "linux" or self._transport.is_closing():
            return 0
        sock: socket.socket = self._transport.get_extra_info("socket")
        window = window_in(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES))
        return 0 if window is None else self._backlog.bytes_at(window)


class ReaderAware(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # which class it is depends on what is installed
    """uvicorn's HTTP, which its WebSockets come from, with the ``Reader`` in each scope's state."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin a connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, _STATE: Reader(transport)}
