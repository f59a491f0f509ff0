"""``WebSocketConnection``: clients that go away while several tasks write, and clients that send much."""

import asyncio
import itertools
import logging
from typing import Any

import pytest
from fastapi import WebSocket, WebSocketDisconnect

from vivavoce.gateway.apis.kits.websocket_connection import WebSocketConnection


class SilentConnection(WebSocketConnection):
    """A connection that answers no messages."""

    def __init__(self, socket: WebSocket) -> None:
        super().__init__(socket)
        self.received = 0

    async def on_message(self, data: str | bytes) -> None:
        """Count a message."""
        self.received += 1


async def accepted(error: Exception | None = None) -> WebSocket:
    """A socket after the handshake; error: of every later write."""

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        if error is not None and message["type"] == "websocket.send":
            raise error

    socket = WebSocket({"type": "websocket", "headers": []}, receive, send)
    await socket.accept()
    return socket


def test_a_task_that_writes_after_another_one_found_the_client_gone_sees_a_disconnect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        connection = SilentConnection(await accepted(OSError("broken pipe")))
        works = [connection.error_of(connection.send_text("a"), name) for name in ("first", "second")]
        outcomes = await asyncio.gather(*works, return_exceptions=True)
        assert [type(each) for each in outcomes] == [WebSocketDisconnect, WebSocketDisconnect]

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.records == []


def test_audio_after_its_announcement_on_a_socket_that_was_closed_between_them_is_a_disconnect() -> None:
    async def run() -> None:
        socket = await accepted()
        connection = SilentConnection(socket)
        send_text = socket.send_text

        async def send_and_close(text: str) -> None:
            await send_text(text)
            await socket.close()

        socket.send_text = send_and_close  # type: ignore[method-assign]
        with pytest.raises(WebSocketDisconnect):
            await connection.send_text("a", b"b")

    asyncio.run(run())


def test_a_fault_of_the_server_stays_one() -> None:
    async def run() -> None:
        connection = SilentConnection(await accepted(RuntimeError("a fault")))
        with pytest.raises(RuntimeError, match="a fault"):
            await connection.send_bytes(b"a")

    asyncio.run(run())


def test_other_tasks_run_between_the_messages_of_a_client_that_sends_many_at_once() -> None:
    waiting = [{"type": "websocket.connect"}] + 100 * [{"type": "websocket.receive", "text": "{}"}]
    waiting.append({"type": "websocket.disconnect"})

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        pass

    async def run() -> None:
        socket = WebSocket({"type": "websocket", "headers": []}, receive, send)
        await socket.accept()
        connection = SilentConnection(socket)
        serving = asyncio.create_task(connection.run())
        seen = []
        while not serving.done():
            await asyncio.sleep(0)
            seen.append(connection.received)
        steps = [after - before for before, after in itertools.pairwise(seen)]
        assert (seen[-1], max(steps)) == (100, 1)

    asyncio.run(run())
