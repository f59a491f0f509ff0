"""Back-pressure from TCP windows: the arithmetic, and connections on the loopback interface."""

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

from vivavoce.gateway.apis.kits import backpressure
from vivavoce.gateway.apis.kits.backpressure import (
    STOPPED_AFTER_S,
    BackpressureSender,
    PeerWindow,
    ReadingWatch,
    UnreadBytes,
)
from vivavoce.gateway.apis.kits.streamed_body import StreamedBody
from vivavoce.gateway.web.http_server import HttpServer

TIMEOUT_S = 30.0
RATE = 48_000
PIECES = 400
PIECE = bytes(range(256)) * 40
SECOND = bytes(RATE)
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the window")


def test_unread_bytes_are_the_difference_to_the_widest_window() -> None:
    unread = UnreadBytes()
    windows = (65_536, 60_000, 100_000, 0, 100_000)
    assert [unread.bytes_at(window) for window in windows] == [0, 5_536, 0, 100_000, 0]


def test_after_a_reset_the_next_window_counts_as_the_widest() -> None:
    unread = UnreadBytes()
    unread.bytes_at(100_000)
    unread.reset()
    assert [unread.bytes_at(5_840), unread.bytes_at(840)] == [0, 5_000]


def test_the_window_is_read_at_its_offset_and_absent_from_old_kernels() -> None:
    acked, window = (5_000_000_000).to_bytes(8, sys.byteorder), (107_520).to_bytes(4, sys.byteorder)
    info = bytes(120) + acked + bytes(100) + window + bytes(24)
    assert PeerWindow.of(info) == PeerWindow.of(info[:232]) == PeerWindow(5_000_000_000, 107_520)
    assert PeerWindow.of(info[:231]) is None


def stops(*, buffer: int, rate: int, reads_share: float, seconds: float, shrinks: int = 0) -> list[bool]:
    """Watch a peer that reads a share of what it is sent, and whose kernel shrinks its window."""
    watch, seen = ReadingWatch(), []
    for tick in range(round(seconds / 0.1)):
        acked = round(rate * tick * 0.1)
        unread = acked * (1.0 - reads_share)
        window = max(0, round(buffer - unread - (shrinks if tick > 20 else 0)))
        seen.append(watch.has_stopped(PeerWindow(acked, window), 100.0 + tick * 0.1))
    return seen


def test_a_peer_has_stopped_when_the_end_of_its_window_stands_still_for_two_seconds() -> None:
    seen = stops(buffer=2**22, rate=RATE, reads_share=0.0, seconds=10.0)
    first = seen.index(True)
    assert first == pytest.approx(STOPPED_AFTER_S / 0.1, abs=1)
    assert all(seen[first:])


@pytest.mark.parametrize("rate", [4_000, RATE, 200_000])
def test_a_peer_that_reads_has_not_stopped_although_its_kernel_shrinks_the_window(rate: int) -> None:
    assert not any(stops(buffer=2**19, rate=rate, reads_share=1.0, seconds=60.0, shrinks=36_000))
    assert not any(stops(buffer=2**22, rate=rate, reads_share=0.5, seconds=20.0))


def test_a_pause_of_the_sender_is_no_pause_of_the_reader() -> None:
    watch = ReadingWatch()
    assert not watch.has_stopped(PeerWindow(0, 500_000), 0.0)
    assert not watch.has_stopped(PeerWindow(0, 500_000), 60.0)
    assert not watch.has_stopped(PeerWindow(100_000, 400_000), 60.1)


class FakeTransport:
    """A connection whose peer advertises the windows of a list; the last one stays."""

    def __init__(self, *windows: int) -> None:
        self.windows = list(windows)
        self.acked = 0

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> "FakeTransport":
        assert name == "socket"
        return self

    def getsockopt(self, level: int, name: int, length: int) -> bytes:
        window = self.windows.pop(0) if len(self.windows) > 1 else self.windows[0]
        acked = self.acked.to_bytes(8, sys.byteorder)
        return bytes(120) + acked + bytes(100) + window.to_bytes(4, sys.byteorder)


async def send(sender: BackpressureSender, data: bytes, rate: int = RATE) -> list[bytes]:
    pieces: list[bytes] = []

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    async with asyncio.timeout(TIMEOUT_S):
        await sender.send(data, rate, write)
    return pieces


def sender_over(*windows: int) -> BackpressureSender:
    return BackpressureSender(cast(asyncio.Transport, FakeTransport(*windows)))


@on_linux
def test_up_to_half_a_second_of_audio_may_be_unread() -> None:
    async def test() -> None:
        small, large = sender_over(200_000, 150_000), sender_over(200_000, 149_999)
        assert await send(small, PIECE, 100_000) == await send(small, PIECE, 100_000) == [PIECE]
        assert await send(large, SECOND, 100_000) == [SECOND]
        assert await send(large, PIECE, 100_000) != [PIECE]

    asyncio.run(test())


@on_linux
def test_up_to_32_kib_of_a_slow_stream_may_be_unread() -> None:
    async def test() -> None:
        peer = sender_over(100_000, 100_000 - 32 * 1024)
        assert [await send(peer, PIECE, 4_000) for _ in range(2)] == [[PIECE], [PIECE]]

    asyncio.run(test())


@on_linux
def test_a_window_that_stays_smaller_delays_one_write_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "MAX_HOLD_S", 0.02)

    async def test() -> None:
        peer = sender_over(100_000, 5_840)
        await send(peer, SECOND)
        assert len(await send(peer, PIECE)) > 1
        assert len(await send(peer, PIECE)) == 1

    asyncio.run(test())


@on_linux
def test_a_client_without_audio_in_advance_is_not_kept_waiting() -> None:
    """The window shrinks without a reason while the client plays what it gets."""

    async def test() -> None:
        peer = sender_over(100_000, 5_840)
        assert await send(peer, PIECE, RATE) == [PIECE]  # 0.2 s
        assert await send(peer, PIECE, RATE) == [PIECE]

    asyncio.run(test())


@on_linux
@pytest.mark.parametrize("reads", [True, False])
def test_only_a_client_that_has_stopped_is_kept_waiting_without_audio_in_advance(
    reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "MAX_HOLD_S", 0.02)
    monkeypatch.setattr(backpressure, "MIN_LEAD_S", 100.0)  # it has nothing in advance
    monkeypatch.setattr(backpressure, "STOPPED_AFTER_S", 0.0)

    async def test() -> None:
        transport = FakeTransport(4_000_000)
        peer = BackpressureSender(cast(asyncio.Transport, transport))
        held = []
        for piece in range(1, 10):
            held.append(len(await send(peer, SECOND)) > 1)
            transport.acked = piece * len(SECOND)
            transport.windows = [4_000_000 - (piece * len(SECOND)) // (4 if reads else 1)]
        assert any(held) != reads

    asyncio.run(test())


@on_linux
def test_a_client_that_reads_nothing_for_long_times_out_and_a_slow_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backpressure, "MAX_HOLD_S", 0.01)
    monkeypatch.setattr(backpressure, "MAX_HOLDS", 6)
    monkeypatch.setattr(backpressure, "STOPPED_AFTER_S", 0.05)

    async def test(reads_share: float) -> None:
        transport = FakeTransport(4_000_000)
        peer = BackpressureSender(cast(asyncio.Transport, transport))
        for piece in range(1, 40):
            await send(peer, SECOND)
            transport.acked = piece * len(SECOND)
            transport.windows = [4_000_000 - round((1.0 - reads_share) * transport.acked)]

    asyncio.run(test(reads_share=0.2))
    with pytest.raises(TimeoutError, match="reads nothing"):
        asyncio.run(test(reads_share=0.0))


def test_data_is_sent_at_once_where_the_connection_is_unknown() -> None:
    async def test() -> None:
        for peer in (
            BackpressureSender(),
            BackpressureSender.from_scope({}),
            BackpressureSender.from_scope({"state": {}}),
        ):
            assert await send(peer, PIECE) == [PIECE]

    asyncio.run(test())


class StreamingApp:
    """Streams 400 pieces over HTTP; reports over a WebSocket whether its sender has a transport."""

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

    async def wait_settled(self) -> int:
        """Wait until no more pieces are sent; returns their number."""
        before = -1
        while before != self.pieces:
            before = self.pieces
            await asyncio.sleep(0.3)
        return before


@asynccontextmanager
async def serving(app: StreamingApp) -> AsyncIterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = HttpServer(cast(FastAPI, app), sock)
        server_task = asyncio.create_task(server.run_until_closed())
        await server.wait_started(server_task)
        try:
            yield sock.getsockname()
        finally:
            server.close()
            await server_task


async def read(peer: socket.socket, count: int) -> bytes:
    """Read exactly that many bytes."""
    data = b""
    while len(data) < count:
        data += await asyncio.get_running_loop().sock_recv(peer, count - len(data))
    return data


@on_linux
@pytest.mark.parametrize(("read_before", "buffer", "max_pieces"), [(1, 2**17, 25), (250, 2**22, 60)])
def test_a_peer_that_stops_reading_is_sent_little_until_it_reads_again(
    read_before: int, buffer: int, max_pieces: int
) -> None:
    """Even if its window is so wide that its kernel does not advertise changes."""

    async def test() -> None:
        app = StreamingApp()
        with socket.socket() as peer:
            peer.setblocking(False)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            async with asyncio.timeout(TIMEOUT_S), serving(app) as address:
                await asyncio.get_running_loop().sock_connect(peer, address)
                peer.send(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                while not (await read(peer, 1) == b"\n" and await read(peer, 2) == b"\r\n"):
                    pass
                data = await read(peer, read_before * len(PIECE))
                assert await app.wait_settled() - read_before <= max_pieces
                data += await read(peer, (PIECES - read_before) * len(PIECE))
                assert data == PIECES * PIECE

    asyncio.run(test())


@on_linux
def test_a_websocket_finds_its_sender_in_its_scope() -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            serving(StreamingApp()) as (host, port),
            connect(f"ws://{host}:{port}/", proxy=None) as client,
        ):
            assert await client.recv() == "known"

    asyncio.run(test())
