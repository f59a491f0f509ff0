"""Limits of HTTP connections of unknown clients."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from websockets.asyncio.client import connect

from shared.event_loop import until
from vivavoce.adapters.unidentified_connections import UnidentifiedConnections
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.dependencies import require_scope
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.gateway.web.connection_limits import ConnectionLimits, LimitedConnection
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.tts_engine.metrics import Metrics

TIMEOUT_S = 60.0
NEVER_S = 300.0
SOON_S = 0.05
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Server:
    """A running server with one key, and raw clients of it."""

    def __init__(
        self, sock: socket.socket, limits: ConnectionLimits, key: str, stack: AsyncExitStack
    ) -> None:
        self.limits, self.key = limits, key
        self.address = sock.getsockname()
        self._stack = stack

    @property
    def unidentified(self) -> int:
        return len(self.limits.unidentified)

    async def connect(self, data: bytes = b"") -> "Client":
        client = self._stack.enter_context(socket.socket())
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, self.address)
        client.sendall(data)
        return Client(client)

    def with_key(self, request: bytes) -> bytes:
        return request.replace(b"\r\n\r\n", f"\r\nX-API-Key: {self.key}\r\n\r\n".encode(), 1)


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def answer(self) -> bytes:
        """What comes next; b"" at the end of the connection."""
        try:
            return await asyncio.get_running_loop().sock_recv(self.sock, 65_536)
        except ConnectionError:
            return b""


def make_routes(access: AccessControl) -> APIRouter:
    router = APIRouter(dependencies=[Depends(require_scope(access, Scope.SPEAK))])

    @router.websocket("/socket")
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())

    @router.post("/size")
    async def size(request: Request) -> int:
        return len(await request.body())

    return router


def run(
    test: Callable[[Server], Awaitable[None]],
    folder: Path,
    *,
    request_s: float = NEVER_S,
    max_unidentified: int = 100,
    max_connections: int = 100,
) -> None:
    keys = KeysFile(folder / "keys.json")
    key = keys.add("test", (Scope.SPEAK,), KeyLimits())
    access = AccessControl(keys)
    unidentified = UnidentifiedConnections(max_unidentified, max_unidentified)
    limits = ConnectionLimits(unidentified, max_connections, request_s)
    app = make_app(
        unready=lambda: None,
        registry=Metrics().registry,
        access=access,
        mounts=[Mount(make_routes(access), None)],
    )

    async def run_test() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            _serving(app, limits) as sock,
            AsyncExitStack() as stack,
        ):
            await test(Server(sock, limits, key, stack))

    asyncio.run(run_test())


@asynccontextmanager
async def _serving(app: FastAPI, limits: ConnectionLimits) -> AsyncIterator[socket.socket]:
    sock = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(app, sock, limits=limits)
    task = asyncio.create_task(server.run_until_closed())
    await server.wait_started(task)
    yield sock
    server.close()
    await task


@pytest.mark.parametrize(
    "begin", [b"", b"G", HEALTH[:-2], b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_an_unknown_client_that_does_not_complete_its_request_is_closed(begin: bytes, tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        client = await server.connect(begin)
        while await client.answer():
            pass  # a request without a key may be refused before its body has come
        await until(lambda: server.unidentified == 0)

    run(test, tmp_path, request_s=SOON_S)


def test_bytes_that_trickle_in_do_not_extend_the_time_for_headers(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        client = await server.connect(b"GET / HTTP/1.1\r\n")
        (connection,) = await connections_of(server)
        closes_at = connection._request_timer.when()
        client.sock.sendall(b"X-One: 1\r\n")
        await until(lambda: b"X-One" in connection.conn.trailing_data[0])
        assert connection._request_timer.when() == closes_at

    run(test, tmp_path)


def test_a_later_request_has_its_own_time_and_an_idle_connection_has_none(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        client = await server.connect(HEALTH)
        assert b"200" in await client.answer()
        (connection,) = await connections_of(server)
        assert connection._request_timer is None and server.unidentified == 1
        client.sock.sendall(HEALTH[:5])
        await until(lambda: connection._request_timer is not None)
        client.sock.sendall(HEALTH[5:])
        assert b"200" in await client.answer()
        assert connection._request_timer is None

    run(test, tmp_path)


def test_a_client_with_a_key_may_take_its_time_for_the_body(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        request = b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc"
        client = await server.connect()
        (connection,) = await connections_of(server)
        client.sock.sendall(server.with_key(request))
        await until(lambda: server.unidentified == 0)
        assert connection._request_timer is None
        client.sock.sendall(b"def")
        assert b"\r\n\r\n6" in await client.answer()

    run(test, tmp_path)


def test_the_oldest_unknown_client_is_closed_for_a_new_one_and_a_known_one_is_not(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        known = await server.connect(server.with_key(HEALTH))
        assert b"200" in await known.answer()
        prober = await server.connect(HEALTH)  # answered, and idle without a key
        assert b"200" in await prober.answer()
        silent = [await server.connect() for _ in range(40)]
        await until(lambda: server.unidentified == 3)
        assert await prober.answer() == b""
        assert await silent[0].answer() == b""
        for _ in range(5):
            caller = await server.connect(HEALTH)
            assert b"200" in await caller.answer()
        known.sock.sendall(HEALTH)
        assert b"200" in await known.answer()

    run(test, tmp_path, max_unidentified=3)


def test_an_accepted_websocket_is_known_and_a_refused_one_is_gone(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        url = f"ws://127.0.0.1:{server.address[1]}/socket"
        async with connect(url, additional_headers={"X-API-Key": server.key}, proxy=None) as socket:
            await socket.send("a")
            assert await socket.recv() == "a"
            assert server.unidentified == 0
        with pytest.raises(Exception, match="401"):
            await connect(url, proxy=None)
        await until(lambda: server.unidentified == 0)

    run(test, tmp_path, request_s=NEVER_S)


def test_headers_without_end_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        client = await server.connect(b"GET / HTTP/1.1\r\nHost: x\r\n")
        loop, answer = asyncio.get_running_loop(), b""
        try:
            for _ in range(1_000):
                await loop.sock_sendall(client.sock, b"X-Filler: " + b"a" * 990 + b"\r\n")
        except ConnectionError:
            pass
        else:
            answer = await client.answer()
        assert answer == b"" or answer.split()[1] == b"400"

    run(test, tmp_path)


def test_when_all_places_are_taken_by_known_clients_a_new_one_is_closed_and_they_go_on(
    tmp_path: Path,
) -> None:
    async def test(server: Server) -> None:
        known = [await server.connect(server.with_key(HEALTH)) for _ in range(3)]
        for client in known:
            assert b"200" in await client.answer()
        assert await (await server.connect(HEALTH)).answer() == b""
        known[0].sock.sendall(HEALTH)
        assert b"200" in await known[0].answer()

    run(test, tmp_path, max_connections=3)


async def connections_of(server: Server) -> list[LimitedConnection]:
    """The unknown connections, once there is one."""
    await until(lambda: server.unidentified > 0)
    return [one for one in server.limits.unidentified if isinstance(one, LimitedConnection)]
