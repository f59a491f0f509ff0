"""Connections whose peers have not said who they are: bounded, and the oldest is closed for a new one.

    HTTP           until a request has a valid key, or its WebSocket is accepted
    AudioSocket    until the call's id
    WebSockets     of calls, until the start of the stream

A peer that means to call says so within milliseconds of its connection, so that the oldest connection is one
of a stranger. A listener of another protocol adds each connection that it accepts, and removes it when the
peer has named itself or is gone. Deadlines are the listeners' own.
"""

import ipaddress
from collections.abc import Callable, Container, Hashable, Iterator
from typing import Final

DEFAULT_MAX_UNIDENTIFIED: Final = 500  # more than clients of a busy server open in the same moment
_IPV6_PREFIX: Final = 64  # the smallest network that a subscriber gets; its addresses are one peer's


class UnidentifiedConnections:
    """The connections of one listener whose peers are unknown yet; belongs to an event loop.

    Args:
        max_connections: at a time, from all addresses.
        max_from_address: at a time, from one address, or from one IPv6 network of 64 bits.
        proxies: addresses that connect for many peers, of which only ``max_connections`` counts.
        report: takes a sentence for the log about a connection that was closed.
    """

    def __init__(
        self,
        max_connections: int,
        max_from_address: int,
        proxies: Container[str] = (),
        report: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._max_connections = max_connections
        self._max_from_address = max_from_address
        self._proxies = proxies
        self._report = report
        self._networks: dict[Hashable, str] = {}  # of the connections
        self._closers: dict[str, dict[Hashable, Callable[[], object]]] = {}  # by network, oldest first

    def __len__(self) -> int:
        return len(self._networks)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(tuple(self._networks))

    def __contains__(self, connection: Hashable) -> bool:
        return connection in self._networks

    def add(self, connection: Hashable, address: str, close: Callable[[], object]) -> None:
        """Add a new connection; ``close`` ends one. The oldest of the address, or of all, may be closed."""
        network = _network_of(address)
        self._networks[connection] = network
        self._closers.setdefault(network, {})[connection] = close
        if len(self._closers[network]) > self._max_from_address and address not in self._proxies:
            self._close_oldest(network)
        elif len(self._networks) > self._max_connections:
            self.close_oldest()

    def remove(self, connection: Hashable) -> None:
        """Forget a connection: its peer is known, or gone. Twice is no error."""
        network = self._networks.pop(connection, None)
        if network is None:
            return
        closers = self._closers[network]
        del closers[connection]
        if not closers:
            del self._closers[network]

    def close_oldest(self) -> bool:
        """Close the oldest connection of the address that has most; return whether there was one."""
        if not self._closers:
            return False
        self._close_oldest(max(self._closers, key=lambda network: len(self._closers[network])))
        return True

    def _close_oldest(self, network: str) -> None:
        connection, close = next(iter(self._closers[network].items()))
        self._report(
            f"closed the oldest of {len(self._networks)} connections whose peers have not said who they are, "
            f"{len(self._closers[network])} of them from {network}"
        )
        self.remove(connection)
        close()


def _network_of(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX), strict=False))
