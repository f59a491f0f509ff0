"""The headers in which a trusted proxy says for whom it asks: X-Forwarded-For and X-Forwarded-Proto.

    client 198.51.100.7 -> proxy 10.0.0.2 -> proxy 127.0.0.1 -> server
    X-Forwarded-For: ANYTHING THAT THE CLIENT SENT, 198.51.100.7, 10.0.0.2

The peer is the last address that is no trusted proxy. What is before it comes from the client and is not
read. Text that is no address names no peer: the proxy that passed it on is the peer then.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from ..access.networks import AddressSet, parse_address

_SCHEMES = {"http": ("http", "ws"), "https": ("https", "wss"), "ws": ("http", "ws"), "wss": ("https", "wss")}


class ForwardedHeaders:
    """ASGI middleware that replaces the peer and the scheme of requests of trusted proxies."""

    def __init__(self, app: ASGIApp, proxies: AddressSet) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        client = scope.get("client")
        if client is not None and client[0] in self._proxies:
            self._apply(scope)
        await self._app(scope, receive, send)

    def _apply(self, scope: Scope) -> None:
        forwarded: list[str] = []
        for name, value in scope["headers"]:
            if name == b"x-forwarded-for":
                forwarded += value.decode("latin-1").split(",")
            elif name == b"x-forwarded-proto" and (schemes := _SCHEMES.get(value.decode("latin-1").strip())):
                scope["scheme"] = schemes[scope["type"] == "websocket"]
        peer = forwarded_peer(forwarded, self._proxies)
        if peer is not None:
            scope["client"] = peer


def forwarded_peer(forwarded: list[str], proxies: AddressSet) -> tuple[str, int] | None:
    """Return the host and port of the peer in the texts of X-Forwarded-For; port 0 is unknown.

    It is None if there is no text, or if the last proxy did not add an address.
    """
    peer = None
    for text in reversed(forwarded):
        found = _parse_host(text.strip())
        if found is None:
            return peer
        peer = found
        if peer[0] not in proxies:
            return peer
    return peer


def _parse_host(text: str) -> tuple[str, int] | None:
    """Read an address, with a port or without: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1]:80."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    address = parse_address(host)
    if address is None:
        return None
    return str(address), int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 0
