"""HTTP byte by byte: offers of other protocols, odd targets, chunks, pipelines and what is refused."""

import asyncio
import re
from urllib.parse import urlsplit

import httpx
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from shared.gateways.running_gateway import ask_gateway
from vivavoce.gateway.web.keep_alive import KeepAliveHttpProtocol

BODY = b'{"input": "One.", "response_format": "pcm"}'
HOST = b"Host: 127.0.0.1\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
POST = b"POST /v1/audio/speech HTTP/1.1\r\n" + HOST
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
REQUESTS = {
    "an offer of HTTP/2, as of Java's client": (POST + H2C + LENGTH + b"\r\n" + BODY, [200]),
    "the same in chunks": (POST + H2C + CHUNKED + CHUNKS, [200]),
    "the same twice": (2 * (POST + H2C + LENGTH + b"\r\n" + BODY), [200, 200]),
    "an offer of TLS": (POST + H2C.replace(b"h2c", b"TLS/1.0") + LENGTH + b"\r\n" + BODY, [200]),
    "an offer of a WebSocket with a POST": (POST + WEBSOCKET + LENGTH + b"\r\n" + BODY, [200]),
    "a WebSocket where there is none": (GET + WEBSOCKET + b"\r\n", [404]),
    "an offer with a GET": (GET + H2C + b"\r\n", [200]),
    "a body in chunks": (POST + CHUNKED + CHUNKS, [200]),
    "a body that waits for its permission": (POST + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY, [200]),
    "a pipeline": (3 * (GET + b"\r\n"), [200, 200, 200]),
    "an absolute target": (b"GET http://127.0.0.1/healthz HTTP/1.1\r\n" + HOST + b"\r\n", [200]),
    "double slashes": (b"GET //healthz HTTP/1.1\r\n" + HOST + b"\r\n", [200]),
    "HTTP/1.0": (b"GET /healthz HTTP/1.0\r\n\r\n", [200]),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", [400]),
    "two hosts": (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n", [400]),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\n", [400]),
    "a target with a blank": (b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "HTTP/2 without an offer": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [404, 400]),
    "no HTTP": (b"hello\r\n\r\n", [400]),
}


async def statuses(url: str, pieces: list[bytes], count: int) -> list[int]:
    """Write pieces one after another; return the first ``count`` final statuses."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        received, found = b"", list[int]()
        while len(found) < count and (data := await reader.read(65_536)):
            received += data
            found = [int(status) for status in re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", received)]
        return found
    finally:
        writer.close()


@pytest.mark.parametrize("is_split", [False, True], ids=["at once", "byte by byte"])
def test_requests_are_answered_however_they_are_written(is_split: bool) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        for name, (request, expected) in REQUESTS.items():
            pieces = [bytes([byte]) for byte in request] if is_split else [request]
            assert await statuses(str(client.base_url), pieces, len(expected)) == expected, name

    ask_gateway(questions)


def test_the_server_speaks_http_in_one_way_whatever_is_installed() -> None:
    assert issubclass(KeepAliveHttpProtocol, H11Protocol)
