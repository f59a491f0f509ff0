"""TCP sockets that the server listens on: bound first, so that a port in use stops the start early."""

import errno
import logging
import socket
from collections.abc import Container
from ipaddress import ip_address

from ..adapters.unidentified_connections import DEFAULT_MAX_UNIDENTIFIED, UnidentifiedConnections
from ..tts_engine.errors import VivavoceError
from ..tts_engine.process_limits import descriptor_limit

logger = logging.getLogger(__name__)


class AddressUnavailable(VivavoceError):
    """The server cannot listen on an address; the message is a sentence for the operator."""


def bind_socket(host: str, port: int, *, flag: str = "") -> socket.socket:
    """Return a bound TCP socket; raise AddressUnavailable, which names the flag that sets the port.

    It does not listen yet, so no client waits in its queue while the engine is opened. A host name with
    addresses of both families is bound to its IPv4 address.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    # asyncio sets TCP_NODELAY on accepted sockets only where the protocol is named. Without it, an answer of
    # two writes waits 40 ms for the peer's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise address_unavailable((host, port), error, flag=flag) from None
    return sock


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address; raise OSError if it cannot be resolved."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def limit_unidentified(
    listener: str, max_connections: int = DEFAULT_MAX_UNIDENTIFIED, proxies: Container[str] = ()
) -> UnidentifiedConnections:
    """Return an empty set for the connections of a listener, with at most an eighth of all descriptors.

    Half of them may come from one address. listener: its name in the log.
    """
    max_connections = max(2, min(max_connections, descriptor_limit() // 8))
    return UnidentifiedConnections(
        max_connections,
        max_connections // 2,
        proxies,
        lambda sentence: logger.warning("%s: %s", listener, sentence),
    )


def bound_address(sock: socket.socket) -> tuple[str, int]:
    """Return the host and the port of a bound socket."""
    host, port, *_ = sock.getsockname()
    return host, port


def address_unavailable(address: tuple[str, int], error: OSError, *, flag: str = "") -> AddressUnavailable:
    """Translate the error of a bind or listen call."""
    if error.errno == errno.EADDRINUSE:
        remedy = f"choose another port with {flag}" if flag else "choose another port"
        return AddressUnavailable(f"{format_address(address)} is in use by another program; {remedy}.")
    return AddressUnavailable(f"Cannot listen on {format_address(address)}: {error.strerror}.")


def format_address(address: tuple[str, int]) -> str:
    """Return host:port as URLs have it, an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
