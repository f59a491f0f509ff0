"""Which web pages may ask a browser to talk to this server: our own, and those on a list.

A browser adds ``Origin`` to what a page asks for, and opens WebSockets to anyone. Without this check a page
on the internet could listen in on the calls of a server on its visitor's own machine. Programs send no
Origin, or that of the server (websocket-client does), and are not held up.

Source: RFC 6454, RFC 6455 section 10.2; DNS rebinding: Jackson et al., "Protecting Browsers from DNS
Rebinding Attacks", 2007.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .errors import OriginRefused


@dataclass(frozen=True, slots=True)
class Origins:
    """allowed: origins as browsers write them, "https://app.example.org". loopback_names_only: a request must
    name this machine as an address or "localhost", so that a name of somebody else's cannot point at it."""

    allowed: frozenset[str] = frozenset()
    loopback_names_only: bool = False

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise OriginRefused for a page of another origin, or a foreign name for this machine."""
        host = headers.get("host", "")
        if self.loopback_names_only and not _names_this_machine(host):
            raise OriginRefused(f"this server is not {host!r}; call it by its address")
        origin = headers.get("origin")
        if origin is None or origin in self.allowed or _is_same(origin, host):
            return
        raise OriginRefused(f"pages of {origin} may not use this server; its allowed_origins can list them")


def _is_same(origin: str, host: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.netloc.lower() == host.lower()


def _names_this_machine(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
