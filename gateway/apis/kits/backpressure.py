"""Back-pressure from clients that read slowly, measured by their TCP receive windows.

Data that a client's program has not read waits in its kernel, which advertises a window smaller by as much:

    |<------------------- widest window seen ------------------->|
    |<-- acknowledged, but not read -->|<---- window now -------->|

Audio is sent at once while little of it seems unread, and otherwise held back for at most a second. Without
this limit a client that stops reading has 8 s of 24 kHz PCM rendered for it before its connection is full.

Windows are no proof: a kernel also shrinks its window by itself, and keeps it small. So a hold does not
outlast the audio that the client has in advance, and after a hold the current window counts as the widest.
A client has stopped reading if the end of its window stands still for two seconds while data arrives; then
every hold lasts a second. A kernel advertises its window only when data arrives, so a delayed piece goes on
in slices of a few bytes. Where the system does not report the window (any but Linux), everything is sent at
once.

Source: RFC 9293 section 3.8.6; linux/tcp.h (struct tcp_info; tcpi_snd_wnd is there since Linux 5.4, and
tcpi_bytes_acked since 4.1);
net/ipv4/tcp.c of Linux (tcp_cleanup_rbuf: when a window is advertised).
"""

import asyncio
import math
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ...web.keep_alive import TRANSPORT_KEY

# Seconds of audio that may be unread. Window updates take about 0.1 s and a network round trip.
MAX_UNREAD_S: Final = 0.5
MIN_UNREAD_ALLOWANCE: Final = 32 * 1024  # bytes; twice the step by which Linux was seen to shrink a window
MAX_HOLD_S: Final = 1.0  # of one piece
MIN_LEAD_S: Final = 0.3  # of audio that the client has in advance when a hold ends
MAX_HOLDS: Final = 60  # consecutive, without anything being read: a minute
STOPPED_AFTER_S: Final = 2.0  # without reading, while data arrives
STOPPED_AFTER_BYTES: Final = 2 * MIN_UNREAD_ALLOWANCE  # that arrive meanwhile
READ_SHARE: Final = 0.1  # of what arrives; a client that reads less has stopped
_MAX_GAP_S: Final = 1.0  # between two looks at the window of a connection that is sent audio
_POLL_S: Final = 0.01
_SLICE_S: Final = 0.05
_SLICE_BYTES: Final = 8  # whole samples of every format; negligible beside a second of audio
_INFO_BYTES: Final = 256
_ACKED_OFFSET: Final = 120  # of tcpi_bytes_acked in struct tcp_info
_WINDOW_OFFSET: Final = 228  # of tcpi_snd_wnd


@dataclass(frozen=True, slots=True)
class PeerWindow:
    """What a peer has advertised last, in bytes."""

    acked: int  # received by its kernel since the connection was made
    window: int  # that it takes now

    @classmethod
    def of(cls, info: bytes) -> Self | None:
        """Read Linux's ``struct tcp_info``; None if the kernel does not report the window."""
        window = info[_WINDOW_OFFSET : _WINDOW_OFFSET + 4]
        if len(window) < 4:
            return None
        acked = info[_ACKED_OFFSET : _ACKED_OFFSET + 8]
        return cls(int.from_bytes(acked, sys.byteorder), int.from_bytes(window, sys.byteorder))

    @property
    def end(self) -> int:
        """The byte of the connection before which the peer takes data; it moves when the peer reads."""
        return self.acked + self.window


class UnreadBytes:
    """Estimates how much a peer has received and not read, from the windows that it advertises."""

    def __init__(self) -> None:
        self._max_window = 0

    def bytes_at(self, window: int) -> int:
        """Return the unread bytes when the window is that wide."""
        self._max_window = max(self._max_window, window)
        return self._max_window - window

    def reset(self) -> None:
        """Take the next window for the widest."""
        self._max_window = 0


class ReadingWatch:
    """Tells whether a peer has stopped reading, from the ends of its windows."""

    def __init__(self) -> None:
        self._since = self._last_at = -math.inf  # loop times: the peer was seen to read; the last call
        self._seen = PeerWindow(0, 0)  # at ``_since``

    def has_stopped(self, window: PeerWindow, now: float) -> bool:
        """Take the window of loop time ``now``; return whether the peer has read nothing for long."""
        arrived = window.acked - self._seen.acked
        was_idle = now - self._last_at > _MAX_GAP_S  # nothing was to be sent
        self._last_at = now
        if was_idle or window.end - self._seen.end > READ_SHARE * arrived:
            self._since, self._seen = now, window
            return False
        return now - self._since >= STOPPED_AFTER_S and arrived >= STOPPED_AFTER_BYTES


class BackpressureSender:
    """Delays the audio of one response or WebSocket until the client has read what was sent before."""

    def __init__(self, transport: asyncio.Transport | None = None) -> None:
        """Make a sender for a connection; without a transport nothing is delayed."""
        self._transport = transport
        self._unread_bytes = UnreadBytes()
        self._reading = ReadingWatch()
        self._has_stopped = False  # the client does not read
        self._holds = 0  # of it
        self._played_at = 0.0  # loop time at which a client that plays the audio has played what it has

    @classmethod
    def from_scope(cls, scope: MutableMapping[str, Any]) -> Self:
        """Return a new sender for a request or a WebSocket."""
        return cls(scope.get("state", {}).get(TRANSPORT_KEY))

    async def send(self, data: bytes, bytes_per_s: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write a piece of a stream of that rate as soon as the client has read enough.

        Raises TimeoutError if the client reads nothing for a minute.
        """
        max_unread = max(MIN_UNREAD_ALLOWANCE, round(MAX_UNREAD_S * bytes_per_s))
        rest = data
        if self._unread() > max_unread:
            rest = await self._hold(data, max_unread, write)
        await write(rest)
        if bytes_per_s:
            now = asyncio.get_running_loop().time()
            self._played_at = max(self._played_at, now) + len(data) / bytes_per_s

    async def _hold(self, data: bytes, max_unread: int, write: Callable[[bytes], Awaitable[None]]) -> bytes:
        """Hold a piece back, except for small slices of it; return the rest of it."""
        clock = asyncio.get_running_loop().time
        start, next_slice_at = clock(), 0.0
        while len(data) > _SLICE_BYTES and self._unread() > max_unread:
            if clock() >= start + (MAX_HOLD_S if self._has_stopped else self._max_hold_s(start)):
                self._end_hold()
                break
            if clock() >= next_slice_at:
                next_slice_at = clock() + _SLICE_S
                await write(data[:_SLICE_BYTES])
                data = data[_SLICE_BYTES:]
            await asyncio.sleep(_POLL_S)
        return data

    def _max_hold_s(self, now: float) -> float:
        """Return for how long a client that reads can wait."""
        return min(MAX_HOLD_S, max(0.0, self._played_at - MIN_LEAD_S - now))

    def _end_hold(self) -> None:
        self._unread_bytes.reset()
        self._holds = self._holds + 1 if self._has_stopped else 0
        if self._holds > MAX_HOLDS:
            raise TimeoutError("the client reads nothing")

    def _unread(self) -> int:
        """Return the unread bytes, 0 if they are not known."""
        if self._transport is None or sys.platform != "linux" or self._transport.is_closing():
            return 0
        sock: socket.socket = self._transport.get_extra_info("socket")
        window = PeerWindow.of(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES))
        if window is None:
            return 0
        self._has_stopped = self._reading.has_stopped(window, asyncio.get_running_loop().time())
        return self._unread_bytes.bytes_at(window.window)
