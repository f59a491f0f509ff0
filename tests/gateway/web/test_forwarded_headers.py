"""Who asks through a proxy: only trusted proxies are believed, and only addresses."""

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from vivavoce.gateway.access.networks import AddressSet
from vivavoce.gateway.web.forwarded_headers import ForwardedHeaders

PROXIES = AddressSet.parse(["127.0.0.1", "10.0.0.0/8", "2001:db8::/64"])


def peer_of(*headers: tuple[str, str], client: str = "127.0.0.1", kind: str = "http") -> tuple[Any, str]:
    """The peer and the scheme that the app sees."""
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def unused(*_: object) -> Any:
        raise AssertionError

    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scheme = {"http": "http", "websocket": "ws"}[kind]
    scope = {"type": kind, "client": (client, 7), "headers": pairs, "scheme": scheme}
    asyncio.run(ForwardedHeaders(app, PROXIES)(scope, unused, unused))
    return seen[0]["client"], seen[0]["scheme"]


@pytest.mark.parametrize(
    ("forwarded", "peer"),
    [
        ("198.51.100.7", ("198.51.100.7", 0)),
        ("198.51.100.7:4711", ("198.51.100.7", 4711)),
        ("2001:db8:1::7", ("2001:db8:1::7", 0)),
        ("[2001:db8:1::7]:80", ("2001:db8:1::7", 80)),
        ("::ffff:198.51.100.7", ("198.51.100.7", 0)),
        ("forged, 198.51.100.7, 10.0.0.2", ("198.51.100.7", 0)),
        ("192.0.2.1, 198.51.100.7", ("198.51.100.7", 0)),
        ("10.0.0.3, 10.0.0.2", ("10.0.0.3", 0)),
        ("198.51.100.7, Call 1 closed, 10.0.0.2", ("10.0.0.2", 0)),
        ("", ("127.0.0.1", 7)),
        ("a\x1b[2J", ("127.0.0.1", 7)),
        ("198.51.100.7 ERROR all is lost", ("127.0.0.1", 7)),
        ("198.51.100.7:x", ("198.51.100.7", 0)),
        ("[198.51.100.7", ("198.51.100.7", 0)),
        ("1" * 10_000, ("127.0.0.1", 7)),
    ],
)
def test_the_peer_is_the_last_address_that_is_no_proxy(forwarded: str, peer: tuple[str, int]) -> None:
    assert peer_of(("x-forwarded-for", forwarded))[0] == peer


def test_headers_of_anybody_else_are_not_read() -> None:
    headers = (("x-forwarded-for", "198.51.100.7"), ("x-forwarded-proto", "https"))
    assert peer_of(*headers, client="192.0.2.1") == (("192.0.2.1", 7), "http")


def test_several_headers_are_one_list() -> None:
    assert peer_of(("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "10.0.0.2"))[0] == ("192.0.2.1", 0)


def test_the_scheme_is_that_of_the_proxy() -> None:
    assert peer_of(("x-forwarded-proto", "https"))[1] == "https"
    assert peer_of(("x-forwarded-proto", "https"), kind="websocket")[1] == "wss"
    assert peer_of(("x-forwarded-proto", "gopher"))[1] == "http"
