"""Sets of network addresses, and which addresses are on the public internet.

Python's ``is_global`` differs between versions, so that the special-purpose networks are listed here.

Source: IANA IPv4 and IPv6 Special-Purpose Address Registries, and IANA IPv6 Global Unicast Address
Assignments (2000::/3); RFC 6890, RFC 6052 (64:ff9b::/96), RFC 8215 (64:ff9b:1::/48), RFC 3056 (6to4),
RFC 4380 (Teredo), RFC 9637 (3fff::/20), RFC 9602 (5f00::/16).
"""

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC: Final[tuple[Network, ...]] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared, behind a carrier's NAT
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local, with the metadata of cloud providers
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
            "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks and others
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, whose addresses contain IPv4 addresses
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
# Networks without IPv4 reach public IPv4 addresses through it, and their name servers answer with it.
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether an address is one of a single host on the public internet; ignore a "%zone".

    Of IPv6 addresses that contain an IPv4 address, only those with NAT64's well-known prefix can be public.
    """
    try:
        parsed: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed in _TRANSLATED:
            parsed = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        elif parsed not in _GLOBAL_UNICAST:
            return False
    return not any(parsed in network for network in _NOT_PUBLIC if network.version == parsed.version)


@dataclass(frozen=True, slots=True)
class AddressSet:
    """Addresses and networks; an IPv4 address is also found in its form of IPv6, ``::ffff:192.0.2.1``."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the set of addresses and networks as "192.0.2.1" and "192.0.2.0/24"; raises ValueError."""
        return cls(tuple(ipaddress.ip_network(text) for text in texts))

    def __contains__(self, address: object) -> bool:
        parsed = parse_address(str(address))
        return parsed is not None and any(
            parsed in network for network in self.networks if network.version == parsed.version
        )

    def __iter__(self) -> Iterator[Network]:
        return iter(self.networks)


NO_ADDRESSES: Final = AddressSet()


def parse_address(text: str) -> Address | None:
    """Return an address without its zone, a mapped one as the IPv4 address; None for other text."""
    try:
        parsed: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed
