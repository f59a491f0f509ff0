"""Fetch what a client names by URL, and nothing on the house's own networks.

    name -> addresses, once -> every one public? -> connect to that address -> redirect? the same again

The connection goes to the address that was checked, not to the name, so a name that answers differently the
second time gains nothing. Bytes, seconds and redirects are bounded, proxies of the environment are not used.

Source: OWASP Server-Side Request Forgery Prevention Cheat Sheet; IANA special-purpose address registries as
``ipaddress`` has them.
"""

import asyncio
import base64
import binascii
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

import httpx

from .errors import UrlRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """What a fetch may cost, and where it may go.

    max_bytes, within_s: of one fetch, redirects included. allowed_hosts: "name" or "name:port" that may be
    private, and "name" at any port.
    """

    max_bytes: int = 20_000_000
    timeout_s: float = 15.0
    max_redirects: int = 3
    allowed_hosts: frozenset[str] = frozenset()


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as the system finds them; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class UrlGuard:
    """Fetches URLs that clients name. ``resolver`` takes the place of the system's names."""

    def __init__(self, policy: UrlPolicy = UrlPolicy(), resolver: Resolver = resolve_host) -> None:
        self._policy = policy
        self._resolve = resolver

    async def fetch(self, url: str) -> bytes:
        """The bytes behind an http, https or data URL; raises UrlRefused."""
        if url[:5].lower() == "data:":
            return self._decode_data_url(url)
        try:
            async with asyncio.timeout(self._policy.timeout_s):
                return await self._fetch_following_redirects(url)
        except TimeoutError:
            raise UrlRefused(f"the URL took over {self._policy.timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UrlRefused(f"the URL could not be fetched: {type(error).__name__}") from error

    async def _fetch_following_redirects(self, url: str) -> bytes:
        target = httpx.URL(url)
        timeout = httpx.Timeout(self._policy.timeout_s)
        async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout) as client:
            for _ in range(self._policy.max_redirects + 1):
                content, location = await self._get(client, target)
                if location is None:
                    return content
                target = target.join(location)
        raise UrlRefused(f"the URL redirects more than {self._policy.max_redirects} times")

    async def _get(self, client: httpx.AsyncClient, target: httpx.URL) -> tuple[bytes, str | None]:
        """The content, or where it is instead."""
        address = await self._checked_address(target)
        request = client.build_request(
            "GET",
            target.copy_with(host=address),
            headers={"Host": target.netloc.decode("ascii"), "Accept-Encoding": "identity"},
            extensions={"sni_hostname": target.host},
        )
        response = await client.send(request, stream=True)
        try:
            if response.has_redirect_location:
                return b"", response.headers["location"]
            if response.status_code != 200:
                raise UrlRefused(f"the URL answered {response.status_code}")
            return await self._read_bounded(response), None
        finally:
            await response.aclose()

    async def _read_bounded(self, response: httpx.Response) -> bytes:
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            self._check_size(len(content))
        return bytes(content)

    async def _checked_address(self, target: httpx.URL) -> str:
        """The address to connect to; raises UrlRefused where any address of the name is not public."""
        if target.scheme not in _DEFAULT_PORTS:
            raise UrlRefused(f"a URL of scheme {target.scheme!r}; http, https and data are fetched")
        if target.userinfo:
            raise UrlRefused("a URL with a user name or password is not fetched")
        port = target.port or _DEFAULT_PORTS[target.scheme]
        if {target.host, f"{target.host}:{port}"} & self._policy.allowed_hosts:
            return (await self._addresses(target.host, port))[0]
        if port not in _DEFAULT_PORTS.values():
            raise UrlRefused(f"port {port} is not fetched from; 80 and 443 are")
        addresses = await self._addresses(target.host, port)
        for address in addresses:
            if not is_public(address):
                raise UrlRefused("the URL leads to an address that is not on the public internet")
        return addresses[0]

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise UrlRefused("the URL's host has no address")
        return addresses

    def _decode_data_url(self, url: str) -> bytes:
        header, comma, body = url.partition(",")
        if not comma:
            raise UrlRefused("a data URL without a comma")
        self._check_size(len(body) * 3 // 4)
        if not header.lower().endswith(";base64"):
            return unquote_to_bytes(body)
        try:
            return base64.b64decode(unquote_to_bytes(body), validate=True)
        except binascii.Error:
            raise UrlRefused("a data URL that is not base64") from None

    def _check_size(self, size: int) -> None:
        if size > self._policy.max_bytes:
            raise UrlRefused(f"the URL holds more than {self._policy.max_bytes:,} bytes")


def is_public(address: str) -> bool:
    """Whether an address, "%zone" apart, is on the public internet, and so is any IPv4 address inside it."""
    try:
        parsed: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if not parsed.is_global or parsed.is_multicast:
        return False
    return all(embedded.is_global for embedded in _embedded_ipv4_addresses(parsed))


def _embedded_ipv4_addresses(address: Address) -> list[ipaddress.IPv4Address]:
    """IPv4 addresses that an IPv6 address leads to: mapped, 6to4, Teredo, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [embedded for embedded in found if embedded is not None]
