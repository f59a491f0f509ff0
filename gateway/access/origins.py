"""The origin check: which web pages may use this server from a visitor's browser.

A browser sends ``Origin`` with the requests of a page, and lets any page open WebSockets to any server.
Without this check, a page on the internet could use the server on its visitor's own machine. Programs send no
Origin, or the server's own (websocket-client does), and pass.

A browser sends no ``Origin`` for what a page loads by an element, such as ``<img src>``, but says in
``Sec-Fetch-Site`` that the page is another site's, also one of another port of this machine. Only a link of
such a page, which shows the answer in its place, is followed.

Source: RFC 6454, RFC 6455 section 10.2; W3C Fetch Metadata Request Headers; DNS rebinding: Jackson et al.,
"Protecting Browsers from DNS Rebinding Attacks", 2007.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .errors import OriginRefused


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of web pages that may use the server.

    ``allowed`` has origins as browsers write them, such as "https://app.example.org", and
    "https://*.example.org" for each host below that domain. The server's own origin is always allowed.
    With ``loopback_names_only``, a request must name the server by an IP address or as localhost, which
    defeats DNS rebinding. One without a host, as over gRPC, is of no browser. ``public_url`` is the server's
    origin behind a proxy; its pages are the server's own, and its name is one of the server.
    """

    allowed: frozenset[str] = frozenset()
    loopback_names_only: bool = False
    public_url: str | None = None

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise OriginRefused for a page of an origin that is not allowed, or a host name that is not."""
        host = headers.get("host", "")
        if self.loopback_names_only and "host" in headers and not self._is_own_name(host):
            raise OriginRefused(f"this server is not {host!r}; call it by its address")
        origin = headers.get("origin")
        if origin is None:
            self._check_site(headers)
        elif not self.allows(origin) and not _is_same(origin, host):
            raise OriginRefused(self.refusal(origin))

    def allows(self, origin: str) -> bool:
        """Whether pages of another origin may use the server."""
        if origin == self.public_url or origin in self.allowed:
            return True
        scheme, _, host = origin.lower().partition("://")
        places = [place for place, character in enumerate(host) if character == "."]
        return any(f"{scheme}://*{host[place:]}" in self.allowed for place in places)

    @staticmethod
    def refusal(origin: str) -> str:
        """Return what a page of an origin that is not allowed is told."""
        return f"pages of {origin} may not use this server; its allowed_origins can list them"

    def _is_own_name(self, host: str) -> bool:
        name = _name_of(host)
        if _names_this_machine(name):
            return True
        return self.public_url is not None and name == urlsplit(self.public_url).hostname

    def _check_site(self, headers: Mapping[str, str]) -> None:
        site = headers.get("sec-fetch-site", "none")
        if site in ("none", "same-origin") or _is_followed_link(headers):
            return
        if not self.allows(_origin_of(headers.get("referer", ""))):
            raise OriginRefused(self.refusal("other sites"))


def _is_followed_link(headers: Mapping[str, str]) -> bool:
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _origin_of(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _is_same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:  # as "http://[" is
        return False
    return parts.scheme in ("http", "https", "ws", "wss") and parts.netloc.lower() == host.lower()


def _name_of(host: str) -> str:
    """The name in a host with or without a port; empty if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _names_this_machine(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
