"""Fetches URLs that clients name, but nothing on the server's own networks (SSRF protection).

    host -> its addresses, resolved once -> all public? -> connect to one of them -> redirect? the same again

The connection goes to the address that was checked, not to the host name, so a name that resolves differently
the second time has no effect. Size, time and redirects are bounded; proxies of the environment are not used.

Source: OWASP Server-Side Request Forgery Prevention Cheat Sheet.
"""

import asyncio
import base64
import binascii
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import unquote_to_bytes

import httpx

from ..outgoing_tls import outgoing_tls
from .errors import UrlRefused
from .networks import is_public

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_LOOKUPS: Final = 4  # of host names at a time; more wait, within the timeout of their fetch
# Of a data URL: above those in 20 MB of base64 whose "+" and "/" are escaped. Each takes 100 bytes to decode.
_MAX_ESCAPES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """The bounds of a fetch."""

    max_bytes: int = 20_000_000  # twice the largest recording that is accepted
    timeout_s: float = 15.0  # of one fetch, redirects included
    max_redirects: int = 3
    # "name" (at any port) or "name:port": may have private addresses and other ports than 80 and 443.
    allowed_hosts: frozenset[str] = frozenset()


class SystemResolver:
    """Looks host names up in the system's resolver.

    A lookup takes half a minute if a name server does not answer, and cannot be cancelled, so that lookups
    have threads of their own.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_MAX_LOOKUPS, thread_name_prefix="url-lookup")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host name; raise OSError."""
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [str(address[0]) for *_, address in found]


class UrlGuard:
    """Fetches URLs of clients. ``resolver`` replaces the system's resolver."""

    def __init__(self, policy: UrlPolicy = UrlPolicy(), resolver: Resolver | None = None) -> None:
        self._policy = policy
        self._resolve = resolver or SystemResolver()

    @classmethod
    def allowing(cls, hosts: Iterable[str]) -> "UrlGuard":
        """Return a guard for which these hosts may be private: ``name`` or ``name:port``."""
        return cls(UrlPolicy(allowed_hosts=frozenset(hosts)))

    async def fetch(self, url: str) -> bytes:
        """Return the content of an http, https or data URL; raise UrlRefused."""
        if url[:5].lower() == "data:":
            # On a thread: a recording takes milliseconds, many escapes take longer.
            return await asyncio.to_thread(self._decode_data_url, url)
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
        async with httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=timeout,
            verify=outgoing_tls(trust_env=False),
        ) as client:
            for _ in range(self._policy.max_redirects + 1):
                content, location = await self._get(client, target)
                if location is None:
                    return content
                target = target.join(location)
        raise UrlRefused(f"the URL redirects more than {self._policy.max_redirects} times")

    async def _get(self, client: httpx.AsyncClient, target: httpx.URL) -> tuple[bytes, str | None]:
        """Return the content and None, or nothing and the target of a redirect."""
        # Connects to the checked address; Host and SNI still carry the name.
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
        """Return the address to connect to; raise UrlRefused if any address of the host is not public."""
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
        if body.count("%") > _MAX_ESCAPES:
            raise UrlRefused(f"a data URL with more than {_MAX_ESCAPES:,} escapes (%XX); base64 needs few")
        if not header.lower().endswith(";base64"):
            return unquote_to_bytes(body)
        try:
            return base64.b64decode(unquote_to_bytes(body), validate=True)
        except binascii.Error:
            raise UrlRefused("a data URL that is not base64") from None

    def _check_size(self, size: int) -> None:
        if size > self._policy.max_bytes:
            raise UrlRefused(f"the URL holds more than {self._policy.max_bytes:,} bytes")
