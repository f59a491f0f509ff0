"""Options of an AudioSocket connection's TCP socket, and what its kernel knows of the peer."""

import socket
import struct
import sys
from typing import Final

LINGER_S: Final = 1.0  # after our 0x00; Asterisk closes within milliseconds of it
# A quarter of a second at 8 kHz; with more, the kernel would hide the backlog from the transport.
NOTSENT_LOWAT_BYTES: Final = 4096
_WINDOW: Final = struct.Struct("=I")
_WINDOW_OFFSET: Final = 228  # of tcpi_snd_wnd in struct tcp_info, include/uapi/linux/tcp.h


def set_socket_options(sock: socket.socket) -> None:
    """Send each message at once, and let the kernel keep little that is not sent."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)


def peer_window(sock: socket.socket) -> int | None:
    """Return the bytes that the peer's kernel last offered to take; None if the system does not tell.

    Linux tells from 5.4 on. Raises OSError if the socket is closed.
    """
    if sys.platform != "linux":
        return None
    size = _WINDOW_OFFSET + _WINDOW.size
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    return _WINDOW.unpack_from(info, _WINDOW_OFFSET)[0] if len(info) == size else None
