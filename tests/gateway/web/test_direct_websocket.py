"""WebSocket messages handed over as they arrive: whole, split, joined and fragmented, in order."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from shared.event_loop import until
from vivavoce.gateway.web import direct_websocket
from vivavoce.gateway.web.direct_websocket import DirectWebSocketProtocol, Message, is_lost, whole_message
from vivavoce.gateway.web.http_server import HttpServer

MESSAGES: list[Message] = ["", "a", b"\0" * 160, "é" * 70, b"x" * 65_535, "y" * 70_000, b""]


def frame_of(message: Message, *, fin: bool = True, opcode: Opcode | None = None) -> bytes:
    """The frame of a client, as ``websockets`` writes it."""
    kind = Opcode.TEXT if isinstance(message, str) else Opcode.BINARY
    data = message.encode() if isinstance(message, str) else message
    return Frame(kind if opcode is None else opcode, data, fin).serialize(mask=True)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(len(message)))
def test_a_whole_frame_is_its_message(message: Message) -> None:
    frame = frame_of(message)
    assert whole_message(frame) == (message if len(message) < 65_536 else None)
    assert whole_message(frame + b"\x81") is None
    assert whole_message(frame[:-1]) is None


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(list(Opcode)), st.binary(max_size=125), st.booleans(), st.booleans(), st.integers(0, 8)
)
def test_a_frame_that_is_not_a_whole_message_is_left_alone(
    opcode: Opcode, data: bytes, fin: bool, mask: bool, rest: int
) -> None:
    if opcode >= Opcode.CLOSE:
        fin = True  # control frames are whole
    frame = Frame(opcode, data, fin).serialize(mask=mask) + bytes(rest)
    message = whole_message(frame)
    if message is None:
        is_text = opcode is Opcode.TEXT
        is_message = fin and mask and not rest and opcode in (Opcode.TEXT, Opcode.BINARY)
        assert not is_message or (is_text and "\ufffd" in data.decode(errors="replace"))
    else:
        assert fin and mask and not rest
        assert (opcode, message) in ((Opcode.TEXT, data.decode(errors="replace")), (Opcode.BINARY, data))


class Application:
    """Receives messages as ASGI has it up to ``direct_after``, then as they arrive."""

    def __init__(self, direct_after: int) -> None:
        self.received: list[Message] = []
        self.direct = 0
        self.ended = False
        self.protocol: DirectWebSocketProtocol
        self._direct_after = direct_after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        protocol = DirectWebSocketProtocol.from_scope(scope)
        assert protocol is not None
        self.protocol = protocol
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(self._direct_after):
            self._take((await receive())["text"])
        protocol.deliver_to(self._take_direct)
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            self._take(message["bytes"] if text is None else text)
        await protocol.send_messages(["never sent"])
        self.ended = True

    def _take(self, message: Message) -> None:
        self.received.append(message)

    def _take_direct(self, message: Message) -> None:
        self.direct += 1
        self._take(message)


def talk(
    application: Application, test: Callable[[ClientConnection], Awaitable[None]], ping_s: float = 20.0
) -> None:
    """Run ``test`` with a client of a server with that application, which pings as often as ``ping_s``."""

    async def run() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(cast(FastAPI, application), sock)
        server.config.ws_ping_interval = server.config.ws_ping_timeout = ping_s
        serving = asyncio.create_task(server.run_until_closed())
        await server.wait_started(serving)
        async with asyncio.timeout(30):
            url = f"ws://127.0.0.1:{sock.getsockname()[1]}"
            async with connect(url, compression=None, proxy=None, ping_interval=None) as client:
                await test(client)
            await until(lambda: application.ended)
        server.close()
        await serving

    asyncio.run(run())


def test_messages_arrive_in_order_however_they_are_sent() -> None:
    application = Application(0)
    parts = [
        [frame_of(message) for message in MESSAGES],
        [b"".join(frame_of(message) for message in MESSAGES)],
        [frame_of("a", fin=False), frame_of("b", opcode=Opcode.CONT)],
        [frame_of("c", fin=False) + frame_of(b"", opcode=Opcode.PING) + frame_of("d", opcode=Opcode.CONT)],
        [bytes([byte]) for byte in frame_of("bytes")],
    ]
    expected: list[Message] = [*MESSAGES, *MESSAGES, "ab", "cd", "bytes"]

    async def test(client: ClientConnection) -> None:
        for pieces in parts:
            for piece in pieces:
                client.transport.write(piece)
                await asyncio.sleep(0.001)
        await until(lambda: len(application.received) >= len(expected))

    talk(application, test)
    assert application.received == expected
    assert application.direct == len(expected)


def test_messages_before_the_change_are_received_before_those_after_it() -> None:
    application = Application(1)

    async def test(client: ClientConnection) -> None:
        client.transport.write(b"".join(frame_of(f"{number}") for number in range(100)))
        await until(lambda: len(application.received) == 100)
        await client.send("100")
        await until(lambda: len(application.received) == 101)

    talk(application, test)
    assert application.received == [f"{number}" for number in range(101)]
    assert application.direct == 1


def test_text_that_is_not_utf_8_ends_the_connection() -> None:
    application = Application(0)

    async def test(client: ClientConnection) -> None:
        client.transport.write(frame_of(b"\xff\xfe", opcode=Opcode.TEXT))
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1007

    talk(application, test)
    assert application.received == []


def withheld_pongs(client: ClientConnection) -> list[Frame]:
    """Answer no ping; return the list of pongs that would have been sent."""
    pongs: list[Frame] = []
    send = client.protocol.send_frame

    def send_others(frame: Frame) -> None:
        pongs.append(frame) if frame.opcode is Opcode.PONG else send(frame)

    client.protocol.send_frame = send_others  # type: ignore[method-assign]
    return pongs


def test_a_client_that_answers_no_ping_stays_connected_and_gets_more_of_them() -> None:
    application = Application(0)

    async def test(client: ClientConnection) -> None:
        pings = withheld_pongs(client)
        await until(lambda: len(pings) >= 5)
        await client.send("still here")
        await until(lambda: application.received)

    talk(application, test, ping_s=0.01)
    assert application.received == ["still here"]


@pytest.mark.parametrize(
    ("unacked", "silent_ms", "lost"),
    [(1, 20_000, True), (1, 19_999, False), (0, 60_000, False)],
    ids=["acknowledges nothing", "acknowledges some", "has nothing to acknowledge"],
)
def test_a_peer_is_lost_whose_kernel_acknowledges_no_ping(unacked: int, silent_ms: int, lost: bool) -> None:
    info = bytes(24) + struct.pack("=I28xI", unacked, silent_ms)
    assert is_lost(info, 20.0) is lost
    assert not is_lost(b"", 20.0)


def test_a_client_that_the_network_has_lost_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_websocket, "is_lost", lambda info, timeout_s: len(info) == 60)
    application = Application(0)

    async def test(client: ClientConnection) -> None:
        withheld_pongs(client)
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1011

    talk(application, test, ping_s=0.01)


def test_messages_are_sent_at_once_and_in_order() -> None:
    class Sender(Application):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            protocol = DirectWebSocketProtocol.from_scope(scope)
            assert protocol is not None
            await protocol.send_messages(MESSAGES)
            await receive()
            self.ended = True

    async def test(client: ClientConnection) -> None:
        assert [await client.recv() for _ in MESSAGES] == MESSAGES

    talk(Sender(0), test)


def test_bytes_that_look_like_a_message_in_the_middle_of_another_one_are_part_of_it() -> None:
    application = Application(0)
    inner = frame_of("inner")

    async def test(client: ClientConnection) -> None:
        client.transport.write(bytes([0x82, 0x80 | len(inner), 0, 0, 0, 0]))  # the mask changes nothing
        await asyncio.sleep(0.01)
        client.transport.write(inner)
        await until(lambda: application.received)

    talk(application, test)
    assert application.received == [inner]


def test_a_message_between_the_fragments_of_another_one_ends_the_connection() -> None:
    application = Application(0)

    async def test(client: ClientConnection) -> None:
        client.transport.write(frame_of("a", fin=False))
        await asyncio.sleep(0.01)
        client.transport.write(frame_of("b"))
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1002

    talk(application, test)
    assert application.received == []


def test_a_client_that_reads_nothing_gets_one_pong_for_many_pings() -> None:
    application = Application(0)

    async def test(client: ClientConnection) -> None:
        client.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.transport.pause_reading()
        client.transport.write(frame_of(b"x" * 125, opcode=Opcode.PING) * 10_000)
        pong = await client.ping()
        await client.send("last")
        await until(lambda: application.received)
        assert application.protocol.transport.get_write_buffer_size() < 500_000
        client.transport.resume_reading()
        await pong

    talk(application, test)
