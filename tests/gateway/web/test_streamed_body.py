"""The messages of a streamed HTTP body."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from vivavoce.gateway.web.streamed_body import StreamedBody


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
