"""The servers of a SIP domain, by the name server: SRV records, else the addresses of the name.

Source: RFC 3263, 4 (without NAPTR: the transports are asked for in their order); RFC 2782 (priority, weight).
"""

import asyncio
import ipaddress
import logging
import random
import socket
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import dns.asyncresolver
import dns.exception

from .....adapters.sip.headers import DEFAULT_PORTS
from .....adapters.sip.transactions import SipFlow

logger = logging.getLogger(__name__)

_SERVICES: Final[Mapping[str, str]] = {"tls": "_sips._tcp", "udp": "_sip._udp", "tcp": "_sip._tcp"}
_TIMEOUT_S: Final = 5.0
_MAX_SERVERS: Final = 16


class SrvRecord(Protocol):
    """What is used of an SRV record."""

    priority: int
    weight: int
    port: int
    target: object  # name


class SipResolver:
    """Finds servers; what it found last is kept for when the name server fails."""

    async def find(self, host: str, port: int | None, transport: str) -> list[SipFlow]:
        """Return the servers, the best one first; none if the name is unknown or the name server fails."""
        if _is_address(host):
            return [_flow(transport, host, port)]
        if port is not None:
            return await self._addresses(host, port, transport)
        for each in _SERVICES if transport == "auto" else (transport,):
            records = await self.srv(f"{_SERVICES[each]}.{host}")
            found = [
                flow
                for record in order_records(records)
                for flow in await self._addresses(str(record.target).rstrip("."), record.port, each)
            ]
            if found:
                return found[:_MAX_SERVERS]
        return await self._addresses(host, None, transport)

    async def srv(self, name: str) -> list[SrvRecord]:
        """Return the SRV records of a name; none if there are none, or the name server fails."""
        try:
            answer = await dns.asyncresolver.resolve(name, "SRV", lifetime=_TIMEOUT_S)
        except (dns.exception.DNSException, OSError, ValueError):
            return []
        return list(answer)

    async def _addresses(self, host: str, port: int | None, transport: str) -> list[SipFlow]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        except (OSError, TimeoutError, UnicodeError) as error:
            logger.warning("SIP: the servers of %s are not found: %s", host, error)
            return []
        ordered = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
        return [_flow(transport, str(address[0]), port) for *_, address in ordered][:_MAX_SERVERS]


def order_records(records: Iterable[SrvRecord]) -> list[SrvRecord]:
    """Return records by priority, and by chance among those of one, heavier ones more often first."""
    return sorted(
        records, key=lambda record: (record.priority, -(random.random() ** (1 / (record.weight + 0.01))))
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _flow(transport: str, host: str, port: int | None) -> SipFlow:
    transport = "udp" if transport == "auto" else transport
    return SipFlow(transport, (host, port or DEFAULT_PORTS[transport]))
