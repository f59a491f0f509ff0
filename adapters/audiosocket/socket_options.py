"""Options of an AudioSocket connection's TCP socket, and what its kernel knows of the peer."""

import socket
from typing import Final

LINGER_S: Final = 1.0  # after our 0x00; Asterisk closes within milliseconds of it
# A quarter of a second at 8 kHz; with more, the kernel would hide the backlog from the transport.
NOTSENT_LOWAT_BYTES: Final = 4096


def set_socket_options(sock: socket.socket) -> None:
    """Send each message at once, and let the kernel keep little that is not sent."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)
