"""Idle HTTP connections: the header that clients read, and the moment at which the server closes them."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.web.app import make_app
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.gateway.web.keep_alive import CLOSE_MARGIN_S, DEFAULT_KEEP_ALIVE_S, UnreadRequestGuard
from vivavoce.tts_engine.metrics import Metrics

TIMEOUT_S = 30.0
IDLE_S = 1.0
STALL_S = 0.2
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Guarded(UnreadRequestGuard, H11Protocol):
    """uvicorn's protocol, with the guard."""


def make_health_app() -> FastAPI:
    return make_app(unready=lambda: None, registry=Metrics().registry, access=AccessControl.open_to_all())


@asynccontextmanager
async def serving(server: HttpServer) -> AsyncIterator[HttpServer]:
    task = asyncio.create_task(server.run_until_closed())
    await server.wait_started(task)
    yield server
    server.close()
    await task


@asynccontextmanager
async def connected(sock: socket.socket) -> AsyncIterator[socket.socket]:
    with socket.socket() as client:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, sock.getsockname())
        yield client


async def ask(client: socket.socket, request: bytes = REQUEST) -> bytes:
    """Send a request and return all of a short response, b"" if the server has closed."""
    client.sendall(request)
    return await asyncio.get_running_loop().sock_recv(client, 65_536)


async def idle_protocol(server: HttpServer) -> Any:
    """The protocol of the only connection, once its timer runs."""
    (protocol,) = server.server_state.connections
    await until(lambda: protocol.timeout_keep_alive_task is not None)
    return protocol


@pytest.mark.parametrize(
    ("request_bytes", "says_so"),
    [
        (REQUEST, True),
        (REQUEST.replace(b"GET", b"HEAD"), True),
        (REQUEST.replace(b"/healthz", b"/nowhere"), True),
        (REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False),
    ],
)
def test_a_response_says_how_long_its_connection_may_be_idle(request_bytes: bytes, says_so: bool) -> None:
    async def test() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(make_health_app(), sock)
        async with asyncio.timeout(TIMEOUT_S), serving(server), connected(sock) as client:
            headers = (await ask(client, request_bytes)).lower()
        assert (b"\r\nkeep-alive: timeout=150\r\n" in headers) == says_so
        assert (b"\r\nconnection: close\r\n" in headers) != says_so

    asyncio.run(test())


def test_the_default_exceeds_the_120_s_of_livekit_and_the_margin_is_added() -> None:
    assert DEFAULT_KEEP_ALIVE_S == 150

    async def test() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(make_health_app(), sock, 7)
        async with asyncio.timeout(TIMEOUT_S), serving(server), connected(sock) as client:
            asked_at = asyncio.get_running_loop().time()
            assert b"keep-alive: timeout=7\r\n" in await ask(client)
            protocol = await idle_protocol(server)
            assert protocol.timeout_keep_alive_task.when() >= asked_at + 7 + CLOSE_MARGIN_S

    asyncio.run(test())


def test_a_connection_is_not_closed_on_a_request_that_has_come() -> None:
    """The request comes after the loop has looked for bytes and before it runs the connection's timer."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(make_health_app(), sock)
        server.config.http, server.config.timeout_keep_alive = Guarded, IDLE_S
        async with asyncio.timeout(TIMEOUT_S), serving(server), connected(sock) as client:
            assert await ask(client)
            protocol = await idle_protocol(server)
            closes_at = protocol.timeout_keep_alive_task.when()

            def stall() -> None:
                while loop.time() < closes_at + STALL_S:
                    time.sleep(0.01)

            # Both are overdue when the stall ends, so the loop runs them one after the other.
            loop.call_at(closes_at - 2 * STALL_S, stall)
            loop.call_at(closes_at - STALL_S, client.sendall, REQUEST)
            await asyncio.sleep(IDLE_S)
            assert b"200 OK" in await loop.sock_recv(client, 65_536)

    asyncio.run(test())


def test_a_body_that_turns_out_to_be_no_http_ends_its_request_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(make_health_app(), sock)
        async with asyncio.timeout(TIMEOUT_S), serving(server), connected(sock) as client:
            chunked = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
            assert b" 400 " in await ask(client, chunked)
            await until(lambda: not server.server_state.connections and not server.server_state.tasks)

    asyncio.run(test())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_idle_connection_is_closed_at_last() -> None:
    async def test() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(make_health_app(), sock)
        server.config.http, server.config.timeout_keep_alive = Guarded, 0
        async with asyncio.timeout(TIMEOUT_S), serving(server), connected(sock) as client:
            assert await ask(client)
            assert await asyncio.get_running_loop().sock_recv(client, 65_536) == b""
            await until(lambda: not server.server_state.connections)

    asyncio.run(test())
