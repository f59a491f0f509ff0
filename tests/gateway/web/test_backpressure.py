"""A client's window as a measure of what it has not read, in numbers and on sockets of this machine."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from vivavoce.gateway.web import backpressure
from vivavoce.gateway.web.backpressure import BackpressureSender, UnreadBytes, peer_window
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.gateway.web.streamed_body import StreamedBody

TIMEOUT_S = 30.0
RATE = 48_000
PIECES = 400
PIECE = bytes(range(256)) * 40
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the window")


def test_what_is_missing_from_the_widest_window_is_unread() -> None:
    backlog = UnreadBytes()
    assert [backlog.bytes_at(window) for window in (65_536, 60_000, 100_000, 0, 100_000)] == [
        0,
        5_536,
        0,
        100_000,
        0,
    ]


def test_a_window_that_counts_as_the_widest_has_nothing_unread() -> None:
    backlog = UnreadBytes()
    backlog.bytes_at(100_000)
    backlog.reset()
    assert [backlog.bytes_at(5_840), backlog.bytes_at(840)] == [0, 5_000]


def test_the_window_is_where_linux_has_it_and_an_old_kernel_has_none() -> None:
    info = bytes(228) + (107_520).to_bytes(4, sys.byteorder) + bytes(24)
    assert (peer_window(info), peer_window(info[:232]), peer_window(info[:231])) == (107_520, 107_520, None)


class FakeTransport:
    """A connection whose peer's window is whatever the test says."""

    def __init__(self, *windows: int) -> None:
        self.windows = list(windows)

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> "FakeTransport":
        assert name == "socket"
        return self

    def getsockopt(self, level: int, name: int, length: int) -> bytes:
        window = self.windows.pop(0) if len(self.windows) > 1 else self.windows[0]
        return bytes(228) + window.to_bytes(4, sys.byteorder)


async def written(peer: BackpressureSender, data: bytes, rate: int = RATE) -> list[bytes]:
    pieces: list[bytes] = []

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    async with asyncio.timeout(TIMEOUT_S):
        await peer.send(data, rate, write)
    return pieces


def over(*windows: int) -> BackpressureSender:
    return BackpressureSender(cast(asyncio.Transport, FakeTransport(*windows)))


@on_linux
def test_half_a_second_of_the_streams_own_rate_may_lie_unread() -> None:
    async def test() -> None:
        near, far = over(100_000, 76_000), over(100_000, 75_999, 100_000)
        assert await written(near, PIECE) == await written(near, PIECE) == [PIECE]
        assert await written(far, PIECE) == [PIECE]
        assert await written(far, PIECE) == [PIECE[:8], PIECE[8:]]

    asyncio.run(test())


@on_linux
def test_of_a_slow_stream_a_little_more_may() -> None:
    async def test() -> None:
        peer = over(100_000, 100_000 - 16 * 1024)
        assert [await written(peer, PIECE, 4_000) for _ in range(2)] == [[PIECE], [PIECE]]

    asyncio.run(test())


@on_linux
def test_a_window_that_has_become_smaller_for_good_holds_up_a_piece_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backpressure, "RECEIVE_STALL_S", 0.02)

    async def test() -> None:
        peer = over(100_000, 5_840)
        await written(peer, PIECE)
        assert len(await written(peer, PIECE)) > 1
        assert len(await written(peer, PIECE)) == 1

    asyncio.run(test())


@on_linux
def test_one_that_reads_nothing_for_long_is_given_up_and_one_that_reads_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backpressure, "RECEIVE_STALL_S", 0.02)

    async def test(read_every: int) -> None:
        transport, window = FakeTransport(4_000_000), 4_000_000
        peer = BackpressureSender(cast(asyncio.Transport, transport))
        for piece in range(1, 40):
            await written(peer, 3 * PIECE)
            window += len(PIECE) if piece % read_every == 0 else -3 * len(PIECE)
            transport.windows = [window]

    asyncio.run(test(read_every=5))
    with pytest.raises(TimeoutError, match="reads nothing"):
        asyncio.run(test(read_every=100))


def test_nothing_is_held_back_where_nothing_is_known() -> None:
    async def test() -> None:
        for peer in (
            BackpressureSender(),
            BackpressureSender.from_scope({}),
            BackpressureSender.from_scope({"state": {}}),
        ):
            assert await written(peer, PIECE) == [PIECE]

    asyncio.run(test())


class House:
    """A server whose only answer is 400 pieces, and whose sockets answer whether it knows their reader."""

    def __init__(self) -> None:
        self.pieces = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            body = StreamedBody(scope, send, {"content-length": str(PIECES * len(PIECE))})
            body.bytes_per_s = RATE
            for self.pieces in range(1, PIECES + 1):
                await body.write(PIECE)
                await asyncio.sleep(0.001)
            await body.end()
        else:
            await send({"type": "websocket.accept"})
            known = BackpressureSender.from_scope(scope)._transport is not None
            await send({"type": "websocket.send", "text": "known" if known else "unknown"})
            await send({"type": "websocket.close"})

    async def settled(self) -> int:
        """How many pieces went out, once no more do."""
        before = -1
        while before != self.pieces:
            before = self.pieces
            await asyncio.sleep(0.3)
        return before


@asynccontextmanager
async def serving(house: House) -> AsyncIterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = HttpServer(cast(FastAPI, house), sock)
        running = asyncio.create_task(server.run_until_closed())
        await server.wait_started(running)
        try:
            yield sock.getsockname()
        finally:
            server.close()
            await running


async def read(peer: socket.socket, count: int) -> bytes:
    """What comes next, and nothing beyond it."""
    data = b""
    while len(data) < count:
        data += await asyncio.get_running_loop().sock_recv(peer, count - len(data))
    return data


@on_linux
@pytest.mark.parametrize(("read_before", "buffer", "most"), [(1, 2**17, 25), (250, 2**22, 60)])
def test_a_peer_that_stops_reading_is_sent_little_more_and_one_that_goes_on_gets_all(
    read_before: int, buffer: int, most: int
) -> None:
    """Also where its window has grown so wide that its kernel sees no reason to tell of it."""

    async def test() -> None:
        house = House()
        with socket.socket() as peer:
            peer.setblocking(False)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            async with asyncio.timeout(TIMEOUT_S), serving(house) as address:
                await asyncio.get_running_loop().sock_connect(peer, address)
                peer.send(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                while not (await read(peer, 1) == b"\n" and await read(peer, 2) == b"\r\n"):
                    pass
                data = await read(peer, read_before * len(PIECE))
                assert await house.settled() - read_before <= most
                data += await read(peer, (PIECES - read_before) * len(PIECE))
                assert data == PIECES * PIECE

    asyncio.run(test())


@on_linux
def test_a_websocket_knows_its_reader() -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            serving(House()) as (host, port),
            connect(f"ws://{host}:{port}/", proxy=None) as client,
        ):
            assert await client.recv() == "known"

    asyncio.run(test())
