"""The address of a cluster's head: checked in seconds, where Ray's library would be silent for minutes.

Source: RFC 9113, sections 3.4 and 6.5: each side of an HTTP/2 connection, as gRPC has, sends SETTINGS first.
"""

import errno
import os
import socket
from contextlib import suppress

from .....tts_engine.errors import BadRequest, BundleError

DEFAULT_PORT = 6379  # of Ray's head, and of Redis
_WITHIN_S = 2.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4  # type of a frame, after three bytes of its length


def check_port_is_free(host: str, port: int) -> None:
    """Raise BadRequest if a program listens on the port, or the address is not of this machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise BadRequest(
                    f"--host is {host}: {error.strerror}; allowed is an address of this machine"
                ) from None
            by = ", as Debian's Redis does" if port == DEFAULT_PORT else ""
            raise BadRequest(
                f"a program listens on port {port} of {host}{by}; choose another one for Ray's head: "
                f"--port {port + 1}"
            ) from None


def check_head(address: str) -> None:
    """Raise BundleError if no head answers at HOST:PORT within 2 s; other addresses are Ray's to find."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _WITHIN_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0") and not _is_grpc(connection):
                raise BundleError(
                    f"what answers at {address} is no head of a Ray cluster; 'vivavoce cluster up' starts one"
                )
    except OSError as error:
        raise BundleError(
            f"no head of a Ray cluster answers at {address} ({error.strerror or 'within 2 s'}); "
            "'vivavoce cluster up' starts one"
        ) from None


def _is_grpc(connection: socket.socket) -> bool:
    """Whether the peer answers as HTTP/2 does. Raises OSError, and TimeoutError if it is silent."""
    connection.settimeout(_WITHIN_S)
    connection.sendall(_PREFACE)
    begin = b""
    with suppress(ConnectionResetError):
        while len(begin) < 4 and (received := connection.recv(16)):
            begin += received
    return len(begin) >= 4 and begin[3] == _SETTINGS
