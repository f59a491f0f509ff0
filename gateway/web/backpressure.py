"""Back-pressure from clients that read slowly, measured by their TCP receive windows.

Data that a client's program has not read waits in its kernel, which advertises a window smaller by as much:

    |<------------------- widest window seen ------------------->|
    |<-- acknowledged, but not read -->|<---- window now -------->|

Audio is sent only while little of it is unread. Without this limit a client that stops reading has 8 s of 24
kHz PCM rendered for it before its connection is full. A kernel advertises its window only when data arrives,
so a delayed piece goes on in slices of a few bytes. Where the system does not report the window (any but
Linux), everything is sent at once.

Source: RFC 9293 section 3.8.6; linux/tcp.h (struct tcp_info; tcpi_snd_wnd is there since Linux 5.4);
net/ipv4/tcp.c of Linux (tcp_cleanup_rbuf: when a window is advertised).
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Self

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# Seconds of audio that may be unread. Window updates take about 0.1 s and a network round trip.
MAX_UNREAD_S: Final = 0.5
MIN_UNREAD_ALLOWANCE: Final = 16 * 1024  # bytes; small packets occupy more of a window than they hold
# After this long the current window counts as the widest: a kernel short of memory shrinks it.
RECEIVE_STALL_S: Final = 10.0
MAX_STALLS: Final = 6  # consecutive, without anything being read: a minute
_POLL_S: Final = 0.01
_SLICE_S: Final = 0.05
_SLICE_BYTES: Final = 8  # whole samples of every format; negligible beside a second of audio
_INFO_BYTES: Final = 256
_WINDOW_OFFSET: Final = 228  # of tcpi_snd_wnd in struct tcp_info
_STATE_KEY: Final = "backpressure_sender"


def peer_window(info: bytes) -> int | None:
    """Return the peer's window from Linux's ``struct tcp_info``, None if the kernel does not report it."""
    window = info[_WINDOW_OFFSET : _WINDOW_OFFSET + 4]
    return int.from_bytes(window, sys.byteorder) if len(window) == 4 else None


class UnreadBytes:
    """Estimates how much a peer has received and not read, from the windows that it advertises."""

    def __init__(self) -> None:
        self.resets = 0  # since the peer last read
        self._max_window = self._last_window = 0

    def bytes_at(self, window: int) -> int:
        """Return the unread bytes when the window is that wide."""
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
    """Delays what is sent to one client until the client has read what was sent before."""

    def __init__(self, transport: asyncio.Transport | None = None) -> None:
        """Make a sender for a connection; without a transport nothing is delayed."""
        self._transport = transport
        self._unread_bytes = UnreadBytes()

    @classmethod
    def from_scope(cls, scope: MutableMapping[str, Any]) -> Self:
        """Return the sender of a request's or a WebSocket's connection."""
        sender = scope.get("state", {}).get(_STATE_KEY)
        return sender if isinstance(sender, cls) else cls()

    async def send(self, data: bytes, bytes_per_s: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write a piece of a stream of that rate as soon as the client has read enough.

        Raises TimeoutError if the client reads nothing for a minute.
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
        """Return the unread bytes, 0 if they are not known."""
        if self._transport is None or sys.platform != "linux" or self._transport.is_closing():
            return 0
        sock: socket.socket = self._transport.get_extra_info("socket")
        window = peer_window(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES))
        return 0 if window is None else self._unread_bytes.bytes_at(window)


class BackpressureHttpProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # its base varies
    """uvicorn's HTTP protocol, also below its WebSockets, with a ``BackpressureSender`` in each scope."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Open the connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, _STATE_KEY: BackpressureSender(transport)}
