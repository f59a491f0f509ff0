"""The messages of a streamed HTTP body."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from vivavoce.gateway.apis.kits import streamed_body
from vivavoce.gateway.apis.kits.streamed_body import MAX_PAUSE_S, SEND_TIMEOUT_S, StreamedBody


class Player:
    """A client that reads, or pauses."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.heard = b""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.reads.wait()
        self.heard += message.get("body", b"")


def test_a_player_that_pauses_for_hours_gets_everything(run_virtually: Any) -> None:
    async def test() -> None:
        player, clock = Player(), asyncio.get_running_loop().time
        body = StreamedBody({"type": "http"}, player.send, {})
        player.reads.set()
        await body.write(b"a")
        player.reads.clear()
        started = clock()
        for piece in b"bcd":
            await body.write(bytes([piece]))
        assert clock() - started == pytest.approx(SEND_TIMEOUT_S, abs=1.0)  # the work is done soon
        ending = asyncio.create_task(body.end())
        await asyncio.sleep(MAX_PAUSE_S - 100.0)
        assert player.heard == b"a" and not ending.done()
        player.reads.set()
        await ending
        assert player.heard == b"abcd"

    run_virtually(test())


def test_a_player_that_goes_on_is_sent_what_follows_as_before(run_virtually: Any) -> None:
    async def test() -> None:
        player, clock = Player(), asyncio.get_running_loop().time
        body = StreamedBody({"type": "http"}, player.send, {})
        for piece in b"ab":
            await body.write(bytes([piece]))
        player.reads.set()
        await asyncio.sleep(1.0)
        assert player.heard == b"ab"
        player.reads.clear()
        started = clock()
        await body.write(b"c")
        assert clock() - started == pytest.approx(SEND_TIMEOUT_S, abs=1.0)
        await body.aclose()
        player.reads.set()
        await asyncio.sleep(1.0)
        assert player.heard == b"ab"

    run_virtually(test())


def test_what_waits_for_a_player_is_bounded_in_bytes_and_time(
    run_virtually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_body, "MAX_BACKLOG_BYTES", 10)

    async def test() -> None:
        body = StreamedBody({"type": "http"}, Player().send, {})
        await body.write(bytes(6))
        await body.write(bytes(4))
        with pytest.raises(TimeoutError):
            await body.write(b"x")
        with pytest.raises(TimeoutError):
            await body.end()

    run_virtually(test())


def test_a_body_without_a_piece_has_its_headers() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(StreamedBody({"type": "http"}, send, {"content-type": "audio/pcm"}).end())
    assert sent == [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"audio/pcm")]},
        {"type": "http.response.body", "body": b""},
    ]


def test_headers_that_cannot_be_sent_leave_the_body_unstarted() -> None:
    async def send(message: MutableMapping[str, Any]) -> None:
        pytest.fail(f"sent {message}")

    body = StreamedBody({"type": "http"}, send, {"x-voice": "Ирина"})
    with pytest.raises(UnicodeEncodeError):
        asyncio.run(body.end())
    assert not body.started
